//! Processes that die, stand still or are stopped: nothing is lost, nothing done twice.

use std::{sync::Arc, time::Duration};

use outlast_core::Failure;
use outlast_engine::{Attempt, Settings};
use outlast_postgres::tx::ClientTx;
use outlast_testkit::proxy::Proxy;
use tokio::sync::{Semaphore, mpsc};

use super::Post;
use crate::given::{Given, Ping, Told, next};

#[derive(Clone)]
struct App {
    told: Told,
    gate: Arc<Semaphore>,
}

fn app(open: usize) -> (App, mpsc::UnboundedReceiver<i64>) {
    let (told, hears) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(open));
    (App { told, gate }, hears)
}

async fn row(app: App, tx: &mut ClientTx, ping: Attempt<Ping>) -> Result<(), Failure> {
    let _ = app.told.send(ping.n);
    app.gate.acquire().await.unwrap().forget();
    tx.execute("insert into effect values ($1, $2)", &[&ping.id(), &ping.n])
        .await?;
    Ok(())
}

/// A process dies inside its handler. How many events are left, at the broker or done by another one.
async fn after_a_death(acks_first: bool) -> (usize, i64) {
    let post = Post::new().await;
    let (dying, mut hears) = app(0);
    let consumer = post.mailer().on_tx(&post.given.pool, row);
    let consumer = if acks_first {
        consumer.acks_first()
    } else {
        consumer
    };
    let worker = post.given.start(dying, consumer);
    post.publish(1..2).await;
    assert_eq!(next(&mut hears).await, 1);
    if acks_first {
        post.settled().await;
    }
    drop(worker);
    let at_broker = post.broker.unsettled(&post.subscription);
    let (well, _hears) = app(10);
    let worker = post
        .given
        .start(well, post.mailer().on_tx(&post.given.pool, row));
    // One more, so that there is something to wait for.
    post.publish(2..3).await;
    post.given
        .until("select count(*) from effect where n = 2", 1)
        .await;
    if !acks_first {
        post.done(2).await;
    }
    let done = post
        .given
        .count("select count(*) from effect where n = 1")
        .await;
    worker.stop().await.unwrap();
    (at_broker, done)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_process_had_is_delivered_again_and_done() {
    assert_eq!(after_a_death(false).await, (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ack_before_the_commit_loses_what_a_dead_process_had() {
    assert_eq!(after_a_death(true).await, (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_stood_still_past_its_lease_commits_nothing_after_another_has_it() {
    async fn slow(app: App, tx: &mut ClientTx, ping: Attempt<Ping>) -> Result<(), Failure> {
        // It does not listen to `lost`: as if it had stood still.
        row(app, tx, ping).await
    }
    let post = Post::new().await;
    let proxy = Proxy::before(post.given.database.url()).await;
    let (first, mut hears) = app(0);
    let consumer = post.mailer().on_tx(&post.given.pool, slow);
    let one = post
        .given
        .start_at(proxy.url(), first.clone(), consumer, Given::settings());
    post.publish(1..2).await;
    assert_eq!(next(&mut hears).await, 1);
    // Its handler has its own connection; whoever renews its lease is cut off.
    proxy.freeze();
    let (second, mut others) = app(1);
    let two = post
        .given
        .start(second, post.mailer().on_tx(&post.given.pool, slow));
    assert_eq!(next(&mut others).await, 1);
    post.given
        .until("select count(*) from outlast.processed", 1)
        .await;
    first.gate.add_permits(1);
    proxy.thaw();
    one.stop().await.unwrap();
    post.done(1).await;
    assert_eq!(post.given.count("select count(*) from effect").await, 1);
    two.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_finishes_what_runs_and_gives_back_what_does_not_end() {
    let post = Post::new().await;
    let (first, mut hears) = app(0);
    let settings = Settings {
        drain: Duration::from_millis(200),
        grace: Duration::from_millis(100),
        ..Given::settings()
    };
    let consumer = post.mailer().on_tx(&post.given.pool, row);
    let worker = post.given.start_with(first.clone(), consumer, settings);
    post.publish(0..2).await;
    next(&mut hears).await;
    next(&mut hears).await;
    worker.stop().await.unwrap();
    // Given back at once: nobody has to wait for a lease or for the broker.
    let leases = "select count(*) from outlast._lease where room = 'delivered'";
    assert_eq!(post.given.count(leases).await, 0);
    assert_eq!(post.broker.unsettled(&post.subscription), 2);
    let (second, mut others) = app(2);
    let worker = post
        .given
        .start(second, post.mailer().on_tx(&post.given.pool, row));
    next(&mut others).await;
    next(&mut others).await;
    post.done(2).await;
    first.gate.add_permits(2);
    worker.stop().await.unwrap();
    assert_eq!(post.given.count("select count(*) from effect").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_database_is_away_nothing_is_settled_and_it_goes_on_afterwards() {
    let post = Post::new().await;
    let proxy = Proxy::before(post.given.database.url()).await;
    let (well, _hears) = app(100);
    let consumer = post.mailer().on_tx(&post.given.pool, row);
    let worker = post
        .given
        .start_at(proxy.url(), well, consumer, Given::settings());
    post.publish(0..1).await;
    post.done(1).await;
    proxy.freeze();
    post.publish(1..6).await;
    // Three leases; nothing is waited for here but time itself.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(post.broker.unsettled(&post.subscription), 5);
    proxy.thaw();
    post.done(6).await;
    worker.stop().await.unwrap();
}
