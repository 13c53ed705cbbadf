//! What a broker has given up on.

use outlast_core::Failure;
use outlast_engine::{Attempt, Imported, import_dead};
use outlast_postgres::connect::Target;
use outlast_testkit::broker::Memory;
use tokio::sync::mpsc;

use super::Post;
use crate::given::{Ping, Told, next};

async fn tell(told: Told, ping: Attempt<Ping>) -> Result<(), Failure> {
    let _ = told.send(ping.n);
    Ok(())
}

/// Takes all that is there and lets it go, until the broker gives up.
async fn let_die(post: &Post) {
    use outlast_core::broker::{Broker, Ensure, Topology};
    let within = std::time::Duration::from_millis(200);
    let topology = Topology::Subscription(post.subscription.clone());
    post.broker
        .ensure(&topology, Ensure::Create, within)
        .await
        .unwrap();
    let mut stream = post
        .broker
        .subscribe(&post.subscription, within)
        .await
        .unwrap();
    loop {
        let some = stream.next(100, within).await.unwrap();
        if some.is_empty() {
            return;
        }
        for one in some {
            one.settle.release(std::time::Duration::ZERO).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_becomes_an_incident_under_its_own_id_once_and_a_person_can_have_it_done() {
    let post = Post::of(Memory::new().with_deliveries(3)).await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let worker = post.given.start(told.clone(), post.mailer().on(tell));
    worker.registered(&post.given).await;
    worker.stop().await.unwrap();
    let ids = post.publish(1..3).await;
    let_die(&post).await;

    let target = Target::parse(post.given.database.url()).unwrap();
    let import = async || {
        import_dead(
            &target,
            None,
            "mailer",
            &post.broker,
            &post.subscription,
            1000,
        )
        .await
        .unwrap()
    };
    let first = import().await;
    assert_eq!((first.incidents, first.settled, first.left), (2, 0, 0));
    assert_eq!(
        import().await,
        Imported::default(),
        "they are not there any more"
    );
    let incidents = "select about from outlast.incident where class = 'dead-letter' order by about";
    let rows = post.given.sql.query(incidents, &[]).await.unwrap();
    let about: Vec<uuid::Uuid> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(about, ids);

    let retry = "select outcome from outlast.retry('mailer', $1)";
    post.given.sql.query_one(retry, &[&ids[0]]).await.unwrap();
    let worker = post.given.start(told, post.mailer().on(tell));
    assert_eq!(next(&mut hears).await, 1);
    post.given
        .until("select count(*) from outlast.processed", 1)
        .await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_completed_before_the_broker_gave_up_is_only_taken_away() {
    let post = Post::of(Memory::new().without_dedup().with_deliveries(2)).await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let worker = post.given.start(told.clone(), post.mailer().on(tell));
    let ping = Post::ping(1, None);
    post.send(1, &ping).await;
    assert_eq!(next(&mut hears).await, 1);
    post.done(1).await;
    worker.stop().await.unwrap();
    // A copy of it, under another message id, that nobody acked.
    post.send(1, &ping).await;
    let_die(&post).await;
    let target = Target::parse(post.given.database.url()).unwrap();
    let imported = import_dead(
        &target,
        None,
        "mailer",
        &post.broker,
        &post.subscription,
        10,
    )
    .await;
    assert_eq!(imported.unwrap().settled, 1);
    assert_eq!(
        post.given
            .count("select count(*) from outlast.incident")
            .await,
        0
    );

    let unknown = import_dead(
        &target,
        None,
        "nobody",
        &post.broker,
        &post.subscription,
        10,
    )
    .await;
    assert!(unknown.is_err());
}
