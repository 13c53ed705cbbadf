//! The stream itself: broken, silent, full of what is no event, or not to be read now.

use std::sync::Arc;

use bytes::Bytes;
use outlast_core::{
    Failure,
    broker::{Envelope, Message},
};
use outlast_engine::{Attempt, Consumer, Outlast};
use tokio::sync::mpsc;

use super::Post;
use crate::given::{Ping, Told, next};

async fn tell(told: Told, ping: Attempt<Ping>) -> Result<(), Failure> {
    let _ = told.send(ping.n);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_was_away_is_read_again_when_it_is_back() {
    let post = Post::new().await;
    post.broker.down();
    let (told, mut hears) = mpsc::unbounded_channel();
    let worker = post.given.start(told, post.mailer().on(tell));
    worker.registered(&post.given).await;
    post.broker.up();
    post.publish(0..1).await;
    assert_eq!(next(&mut hears).await, 0);
    post.broker.down();
    post.broker.up();
    post.publish(1..2).await;
    assert_eq!(next(&mut hears).await, 1);
    post.done(2).await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_event_is_put_before_a_person_and_out_of_the_way() {
    let post = Post::new().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let worker = post.given.start(told, post.mailer().on(tell));
    for spoil in [
        |e: &mut Envelope| e.key = Some("a\0b".into()),
        |e: &mut Envelope| e.name = "No Such Type".into(),
        |e: &mut Envelope| e.version = 0,
    ] {
        let mut envelope = Post::ping(1, None);
        spoil(&mut envelope);
        let body = Bytes::from_static(b"\x00\xff junk");
        post.put(Message::new("orders", Arc::new(envelope), body))
            .await;
    }
    post.publish(2..3).await;
    assert_eq!(next(&mut hears).await, 2);
    post.settled().await;
    let kept = "select count(*) from outlast.unreadable where payload = '\\x00ff206a756e6b'";
    post.given.until(kept, 3).await;
    let incidents = "select count(*) from outlast.incident where kind = 'unreadable message'";
    assert_eq!(post.given.count(incidents).await, 3);
    post.done(1).await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_of_another_type_is_stepped_over() {
    let post = Post::new().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let worker = post.given.start(told, post.mailer().on(tell));
    let mut other = Post::ping(1, None);
    other.name = "pong".into();
    post.send(1, &other).await;
    post.publish(2..3).await;
    assert_eq!(next(&mut hears).await, 2);
    post.done(1).await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_taken_while_it_is_paused_or_held_and_then_it_goes_on() {
    let post = Post::new().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let worker = post.given.start(told.clone(), post.mailer().on(tell));
    worker.registered(&post.given).await;
    worker.stop().await.unwrap();
    let hold =
        "update outlast._house set held = 'a test'; select outlast.pause('mailer', 'a test')";
    post.given.sql.batch_execute(hold).await.unwrap();
    post.publish(0..3).await;
    let worker = post.given.start(told, post.mailer().on(tell));
    let free = "update outlast._house set held = null";
    post.given.sql.batch_execute(free).await.unwrap();
    // What another consumer of the same process does shows that time has passed.
    post.given
        .sql
        .batch_execute("select outlast.resume('mailer')")
        .await
        .unwrap();
    for _ in 0..3 {
        next(&mut hears).await;
    }
    post.done(3).await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_of_the_log_does_not_become_one_of_a_broker_under_its_name() {
    let post = Post::new().await;
    let (told, _hears) = mpsc::unbounded_channel();
    let worker = post
        .given
        .start(told.clone(), Consumer::new("mailer").on(tell));
    worker.registered(&post.given).await;
    worker.stop().await.unwrap();
    let mut refused = post.given.start(told, post.mailer().on(tell));
    let ended = (&mut refused.worker).await.unwrap();
    let why = ended.unwrap_err().to_string();
    assert!(why.contains("reads the log"), "{why}");
}

#[test]
fn a_subscription_that_cannot_work_is_refused_before_anything_starts() {
    let broker = Arc::new(outlast_testkit::broker::Memory::new());
    let mut subscription = outlast_core::broker::Subscription::new("", "orders");
    subscription.ack_within = std::time::Duration::from_millis(10);
    let (told, _hears) = mpsc::unbounded_channel();
    let worker = Outlast::new()
        .worker(told)
        .database("postgres://u@h/d")
        .consumer(
            Consumer::new("mailer")
                .from_broker(broker, subscription)
                .on(tell),
        );
    let why = worker.check().unwrap_err().to_string();
    assert!(
        why.contains("no name") && why.contains("ack_within"),
        "{why}"
    );
}
