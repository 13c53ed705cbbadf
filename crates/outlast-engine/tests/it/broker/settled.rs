//! When a message is acked, and what comes of one that comes again.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use outlast_core::Failure;
use outlast_engine::Attempt;
use outlast_postgres::tx::ClientTx;
use tokio::sync::{Semaphore, mpsc};

use super::Post;
use crate::given::{Ping, Told, next};

/// Tells that it runs, then waits to be let on.
#[derive(Clone)]
struct Gated {
    told: Told,
    gate: Arc<Semaphore>,
}

fn gated() -> (Gated, mpsc::UnboundedReceiver<i64>) {
    let (told, hears) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    (Gated { told, gate }, hears)
}

async fn wait(app: Gated, ping: Attempt<Ping>) -> Result<(), Failure> {
    let _ = app.told.send(ping.n);
    app.gate.acquire().await.unwrap().forget();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_under_another_message_id_waits_while_the_first_runs_and_is_acked_then() {
    let post = Post::new().await;
    let (app, mut hears) = gated();
    let worker = post.given.start(app.clone(), post.mailer().on(wait));
    let ping = Post::ping(1, None);
    post.send(1, &ping).await;
    assert_eq!(next(&mut hears).await, 1);
    post.send(1, &ping).await;
    post.send(2, &Post::ping(2, None)).await;
    // The next one runs, so the copy was looked at before it or with it.
    assert_eq!(next(&mut hears).await, 2);
    assert_eq!(post.broker.unsettled(&post.subscription), 3);
    app.gate.add_permits(2);
    post.done(2).await;
    assert!(hears.try_recv().is_err(), "it ran once");
    // And once more, long after it was done.
    post.send(1, &ping).await;
    post.settled().await;
    assert!(hears.try_recv().is_err(), "it ran once");
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_longer_than_the_broker_gives_it_keeps_its_message() {
    let post = Post::new().await;
    let (app, mut hears) = gated();
    let one = post.given.start(app.clone(), post.mailer().on(wait));
    let two = post.given.start(app.clone(), post.mailer().on(wait));
    post.publish(1..2).await;
    assert_eq!(next(&mut hears).await, 1);
    // Three times what the broker gives; nothing is waited for here but time itself.
    tokio::time::sleep(Duration::from_secs(3)).await;
    app.gate.add_permits(1);
    post.done(1).await;
    assert!(hears.try_recv().is_err(), "it ran once");
    one.stop().await.unwrap();
    two.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_is_taken_from_the_broker_than_can_start() {
    let post = Post::new().await;
    let (app, mut hears) = gated();
    post.publish(0..10).await;
    let slow = post
        .given
        .start(app.clone(), post.mailer().concurrency(2).on(wait));
    next(&mut hears).await;
    next(&mut hears).await;
    // Another process gets all that is left, because nobody hoards it.
    let (other, mut others) = gated();
    other.gate.add_permits(8);
    let quick = post.given.start(other, post.mailer().on(wait));
    for _ in 0..8 {
        next(&mut others).await;
    }
    app.gate.add_permits(2);
    post.done(10).await;
    slow.stop().await.unwrap();
    quick.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_lost_ack_it_is_acked_when_it_comes_again_and_not_run() {
    let post = Post::new().await;
    let (app, mut hears) = gated();
    let worker = post.given.start(app.clone(), post.mailer().on(wait));
    post.publish(1..2).await;
    assert_eq!(next(&mut hears).await, 1);
    post.broker.down();
    app.gate.add_permits(1);
    post.given.processed(1).await;
    assert_eq!(
        post.broker.unsettled(&post.subscription),
        1,
        "its ack was lost"
    );
    post.broker.up();
    post.settled().await;
    assert!(hears.try_recv().is_err(), "it ran once");
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_failed_is_acked_once_it_is_parked_and_retried_while_the_broker_is_away() {
    async fn second_time(app: Gated, ping: Attempt<Ping>) -> Result<(), Failure> {
        let _ = app.told.send(i64::from(ping.number()));
        assert_eq!(ping.payload_bytes(), b"{\"n\":1}");
        match ping.number() {
            1 => Err(Failure::retry("not yet")),
            _ => wait(app, ping).await,
        }
    }
    let post = Post::new().await;
    let (app, mut hears) = gated();
    let worker = post.given.start(app.clone(), post.mailer().on(second_time));
    post.publish(1..2).await;
    assert_eq!(next(&mut hears).await, 1);
    post.settled().await;
    post.broker.down();
    assert_eq!(next(&mut hears).await, 2);
    app.gate.add_permits(1);
    post.given.processed(1).await;
    assert_eq!(
        post.given
            .count("select count(*) from outlast.parked")
            .await,
        0
    );
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_workers_of_one_subscription_share_it_and_copies_are_handled_once() {
    async fn row(_: (), tx: &mut ClientTx, ping: Attempt<Ping>) -> Result<(), Failure> {
        tx.execute("insert into effect values ($1, $2)", &[&ping.id(), &ping.n])
            .await?;
        Ok(())
    }
    let post = Post::new().await;
    let pings: Vec<_> = (0..80).map(|n| Post::ping(n, None)).collect();
    for _ in 0..3 {
        for (n, ping) in pings.iter().enumerate() {
            post.send(n as i64, ping).await;
        }
    }
    let consumer = || post.mailer().on_tx(&post.given.pool, row);
    let one = post.given.start((), consumer());
    let two = post.given.start((), consumer());
    post.done(80).await;
    assert_eq!(post.given.count("select count(*) from effect").await, 80);
    one.stop().await.unwrap();
    two.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn while_everything_fails_few_are_parked_and_the_rest_stays_at_the_broker() {
    async fn down(broken: Arc<AtomicI64>, _: Attempt<Ping>) -> Result<(), Failure> {
        match broken.load(Ordering::SeqCst) {
            0 => Ok(()),
            _ => Err(Failure::retry("no route")),
        }
    }
    let post = Post::new().await;
    let broken = Arc::new(AtomicI64::new(1));
    post.publish(0..100).await;
    let worker = post
        .given
        .start(broken.clone(), post.mailer().concurrency(2).on(down));
    post.given
        .until("select count(*) from outlast.outage", 1)
        .await;
    // The outage is told before the tenth is parked.
    let ten = "select (count(*) >= 10)::int::bigint from outlast.parked";
    post.given.until(ten, 1).await;
    let parked = "select count(*) from outlast.parked";
    assert!(post.given.count(parked).await < 20);
    broken.store(0, Ordering::SeqCst);
    post.done(100).await;
    worker.stop().await.unwrap();
}
