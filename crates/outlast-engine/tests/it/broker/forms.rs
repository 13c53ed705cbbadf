//! Every form of a handler, as it is on the log.

use outlast_core::{Failure, Outcome};
use outlast_engine::{Attempt, Raw};
use outlast_postgres::tx::{ClientTx, Pool};
use tokio::sync::mpsc;

use super::Post;
use crate::given::{Ping, Told, next};

async fn tell(told: Told, ping: Attempt<Ping>) -> Result<(), Failure> {
    let _ = told.send(ping.n);
    Ok(())
}

async fn row(_: Told, tx: &mut ClientTx, ping: Attempt<Ping>) -> Result<(), Failure> {
    tx.execute("insert into effect values ($1, $2)", &[&ping.id(), &ping.n])
        .await?;
    Ok(())
}

async fn rows(told: Told, tx: &mut ClientTx, pings: Vec<Attempt<Ping>>) -> Result<(), Failure> {
    let _ = told.send(pings.len() as i64);
    for ping in &pings {
        tx.execute("insert into effect values ($1, $2)", &[&ping.id(), &ping.n])
            .await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn outside_effects_are_done_and_acked_once_each_and_nothing_is_left() {
    let post = Post::new().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let worker = post.given.start(told, post.mailer().on(tell));
    post.publish(0..60).await;
    post.done(60).await;
    let mut all = Vec::new();
    for _ in 0..60 {
        all.push(next(&mut hears).await);
    }
    all.sort_unstable();
    assert_eq!(all, (0..60).collect::<Vec<_>>());
    assert!(hears.try_recv().is_err());
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn its_rows_and_the_completion_are_one_commit_and_acked_after_it() {
    let post = Post::new().await;
    let (told, _hears) = mpsc::unbounded_channel();
    let worker = post
        .given
        .start(told, post.mailer().on_tx(&post.given.pool, row));
    post.publish(0..40).await;
    post.done(40).await;
    let once = "select count(distinct event) from effect";
    assert_eq!(post.given.count(once).await, 40);
    assert_eq!(post.given.count("select count(*) from effect").await, 40);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn many_are_taken_together_and_one_that_fails_does_not_hold_up_the_others() {
    async fn thirteen(
        told: Told,
        tx: &mut ClientTx,
        pings: Vec<Attempt<Ping>>,
    ) -> Result<(), Failure> {
        if pings.iter().any(|ping| ping.n == 13) {
            return Err(Failure::permanent("13"));
        }
        rows(told, tx, pings).await
    }
    let post = Post::new().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    // They wait at the broker before anybody reads them: the subscription begins with the first message.
    post.publish(0..100).await;
    let worker = post
        .given
        .start(told, post.mailer().on_batch(&post.given.pool, thirteen));
    post.done(99).await;
    let mut largest = 0;
    while let Ok(n) = hears.try_recv() {
        largest = largest.max(n);
    }
    assert!(largest > 8, "at most {largest} were taken together");
    assert_eq!(post.given.count("select count(*) from effect").await, 99);
    let incident = "select count(*) from outlast.incident where reason = '13'";
    assert_eq!(post.given.count(incident).await, 1);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_handler_sees_is_the_event_as_it_was_emitted() {
    async fn raw(told: Told, event: Attempt<Raw>) -> Result<Outcome, Failure> {
        assert_eq!((event.name.as_str(), event.version), ("ping", 3));
        assert_eq!(event.header("x").as_deref(), Some("ü"));
        assert_eq!((event.key(), event.tenant()), (Some("k"), "acme"));
        assert_eq!(&*event.bytes, b"{\"n\":7}");
        let _ = told.send(i64::from(event.number()));
        Ok(Outcome::skipped("seen"))
    }
    let post = Post::new().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let worker = post.given.start(told, post.mailer().on_raw("ping", raw));
    let mut envelope = Post::ping(7, Some("k"));
    (envelope.version, envelope.tenant) = (3, "acme".into());
    envelope.headers.insert("x".into(), "ü".into());
    post.send(7, &envelope).await;
    assert_eq!(next(&mut hears).await, 1);
    post.done(1).await;
    let skipped =
        "select count(*) from outlast.processed where outcome = 'skipped' and reason = 'seen'";
    assert_eq!(post.given.count(skipped).await, 1);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_calls_out_first_seals_by_itself() {
    #[derive(Clone)]
    struct App(Told, deadpool_postgres::Pool);
    async fn seals(app: App, ping: Attempt<Ping>) -> Result<outlast_engine::Sealed, Failure> {
        let tx = app.1.begin().await?;
        tx.execute("insert into effect values ($1, $2)", &[&ping.id(), &ping.n])
            .await?;
        let sealed = ping.seal(tx).await?;
        let _ = app.0.send(ping.n);
        Ok(sealed)
    }
    let post = Post::new().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let app = App(told, post.given.pool.clone());
    let worker = post.given.start(app, post.mailer().on(seals));
    post.publish(0..1).await;
    assert_eq!(next(&mut hears).await, 0);
    post.done(1).await;
    assert_eq!(post.given.count("select count(*) from effect").await, 1);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_is_too_new_waits_in_the_database_and_others_flow() {
    let post = Post::new().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let worker = post.given.start(told, post.mailer().on(tell));
    let mut newer = Post::ping(1, None);
    newer.version = 2;
    post.send(1, &newer).await;
    post.publish(2..3).await;
    assert_eq!(next(&mut hears).await, 2);
    post.settled().await;
    let waits = "select count(*) from outlast.parked where state = 'waiting-version'";
    assert_eq!(post.given.count(waits).await, 1);
    worker.stop().await.unwrap();
}
