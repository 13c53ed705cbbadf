//! Receiving, where the suite for all brokers does not look.

use std::time::Duration;

use futures_util::future::join_all;
use outlast_core::broker::{Acked, Broker, Why};
use tokio::time::Instant;

use crate::support::{PATIENCE, Project, envelope, message};

/// Goal: a pull that is still at the server when its reader goes takes nothing with it. Without giving back it would be the
/// time for an ack, a minute, until somebody else got the message.
#[tokio::test(flavor = "multi_thread")]
async fn what_comes_for_a_reader_that_has_gone_goes_to_another_at_once() {
    let Some(project) = Project::new().await else {
        return;
    };
    let reader = project.events().await;
    let mut gone = project.subscribe(&reader).await;
    let nothing = gone.next(10, Duration::from_millis(200)).await;
    assert!(nothing.expect("next").is_empty());
    gone.drain(PATIENCE).await;
    project.confirmed(&[message(None, "a")]).await;
    let began = Instant::now();
    let mut other = project.subscribe(&reader).await;
    let came = other.next(10, PATIENCE).await.expect("next");
    assert_eq!(came.len(), 1);
    assert!(
        began.elapsed() < Duration::from_secs(15),
        "it took {:?}",
        began.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn many_acks_at_once_all_hold() {
    let Some(project) = Project::new().await else {
        return;
    };
    let mut reader = project.events().await;
    // What is not acked comes again within the test.
    reader.ack_within = Duration::from_secs(10);
    reader.name = "acker".into();
    let made = outlast_core::broker::Topology::Subscription(reader.clone());
    let made = project
        .pubsub
        .ensure(&made, outlast_core::broker::Ensure::Create, PATIENCE);
    made.await.expect("made");
    let sent: Vec<_> = (0..500).map(|n| message(None, n.to_string())).collect();
    project.confirmed(&sent).await;
    let mut stream = project.subscribe(&reader).await;
    let mut acks = Vec::new();
    while acks.len() < sent.len() {
        let came = stream.next(200, PATIENCE).await.expect("next");
        assert!(!came.is_empty(), "{} of {} came", acks.len(), sent.len());
        acks.extend(came.into_iter().map(|one| one.settle.ack(PATIENCE)));
    }
    let acks = join_all(acks).await;
    assert!(acks.iter().all(|one| *one == Acked::Sent), "{acks:?}");
    let again = stream.next(1, Duration::from_secs(12)).await.expect("next");
    let again: Vec<_> = again.iter().map(envelope).collect();
    assert!(again.is_empty(), "it was acked: {again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_of_another_topic_or_of_none_is_refused_at_the_start() {
    let Some(project) = Project::new().await else {
        return;
    };
    let reader = project.events().await;
    let why = async |name: &str, topic: &str| {
        let mut asked = reader.clone();
        (asked.name, asked.topic) = (name.into(), topic.into());
        let refused = project.pubsub.subscribe(&asked, PATIENCE).await;
        refused.err().map(|refused| refused.why)
    };
    assert_eq!(why("reader", "events").await, None);
    assert_eq!(why("reader", "others").await, Some(Why::Configuration));
    assert_eq!(why("nobody", "events").await, Some(Why::Missing));
    assert_eq!(why("no name", "events").await, Some(Why::Configuration));
}
