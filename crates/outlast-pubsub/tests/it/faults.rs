//! A server that dies while it is published to, and ways to it that lose what they carry.

use std::time::Duration;

use outlast_core::broker::{Broker, Published, Why};
use outlast_pubsub::PubSub;
use outlast_testkit::broker::{
    Wire,
    emulator::{self, Emulator},
};

use crate::support::{PATIENCE, Project, envelope, keyed, message, options};

const SHORT: Duration = Duration::from_secs(2);

/// Goal: no message counts as confirmed or as certainly not sent without a reason. Method: several calls under way when the
/// server is killed; then without a server; then with one that has forgotten everything.
#[tokio::test(flavor = "multi_thread")]
async fn of_calls_that_the_server_dies_under_nothing_is_said_that_was_not_so() {
    if !emulator::is_installed() {
        return;
    }
    let server = Emulator::start().await.expect("the emulator starts");
    let project = Project::at(server.endpoint(), emulator::project());
    project.events().await;
    let publishing = {
        let pubsub = project.pubsub.clone();
        tokio::spawn(async move {
            let mut confirmed = 0;
            loop {
                let said = pubsub.publish(&keyed(50, 4), SHORT * 5).await;
                confirmed += said.iter().filter(|one| one.is_confirmed()).count();
                if !said.iter().all(Published::is_confirmed) {
                    return (confirmed, said);
                }
            }
        })
    };
    // It dies among requests, whenever that is.
    tokio::time::sleep(Duration::from_millis(500)).await;
    server.kill().await;
    let (confirmed, said) = publishing.await.expect("no panic");
    assert!(confirmed > 0, "nothing was confirmed before the kill");
    let behind = |one: &Published| matches!(one, Published::NotSent(not) if not.why == Why::Behind);
    for one in said.iter().filter(|one| !one.is_confirmed()) {
        let fits = match one {
            Published::NotSent(not) => matches!(not.why, Why::Unavailable | Why::Behind),
            other => matches!(other, Published::Unknown(_)),
        };
        assert!(fits, "{one:?}");
    }
    // Of one key nothing is confirmed after what was not.
    for key in 0..50 {
        let of_key: Vec<&Published> = said.iter().skip(key).step_by(50).collect();
        let first = of_key.iter().position(|one| !one.is_confirmed());
        let after = of_key.iter().skip(first.unwrap_or(of_key.len()));
        assert!(!after.clone().any(|one| one.is_confirmed()), "{of_key:?}");
        assert!(!of_key[0].is_confirmed() || !behind(of_key[0]));
    }

    let said = project
        .pubsub
        .publish(&[message(None, "gone")], SHORT)
        .await;
    let certainly = matches!(&said[0], Published::NotSent(not) if not.why == Why::Unavailable);
    assert!(certainly, "nobody listens, so nothing was sent: {said:?}");
    assert!(project.pubsub.probe(SHORT).await.is_err());

    server.restart().await.expect("it starts again");
    let said = project
        .pubsub
        .publish(&[message(None, "lost")], SHORT)
        .await;
    let missing = matches!(&said[0], Published::NotSent(not) if not.why == Why::Missing);
    assert!(missing, "it has forgotten the topic: {said:?}");
    project.events().await;
    project.confirmed(&keyed(50, 4)).await;
}

/// A project of which `far` goes through a wire and the rest does not.
async fn wired() -> Option<(Project, PubSub, Wire)> {
    let project = Project::new().await?;
    let wire = Wire::before(&project.endpoint).await;
    let endpoint = format!("http://{}", wire.address());
    let far = PubSub::new(options(&endpoint, &project.name)).expect("the options are right");
    Some((project, far, wire))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_confirmation_is_lost_is_unknown_and_comes_again_with_the_same_id() {
    let Some((project, far, wire)) = wired().await else {
        return;
    };
    let reader = project.events().await;
    let sent = [message(Some("a"), "1")];
    let said = far.publish(&sent, SHORT).await;
    assert!(said[0].is_confirmed(), "{said:?}");
    wire.lose_answers();
    let said = far.publish(&sent, SHORT).await;
    assert!(matches!(said[0], Published::Unknown(_)), "{said:?}");
    assert!(wire.lost() > 0, "no answer was lost");
    wire.cut();
    let said = far.publish(&sent, SHORT).await;
    assert!(said[0].is_confirmed(), "{said:?}");
    // It was published three times, and the second one arrived too.
    let mut stream = project.subscribe(&reader).await;
    let mut came = Vec::new();
    while came.len() < 3 {
        let more = stream.next(3, PATIENCE).await.expect("next");
        assert!(!more.is_empty(), "{} came", came.len());
        for one in more {
            came.push(envelope(&one).id);
            one.settle.ack(PATIENCE).await;
        }
    }
    assert_eq!(came, [sent[0].envelope.id; 3]);
}

/// Goal: a connection that is dead without a word costs one call, not all of them until TCP gives up, which is a quarter of an
/// hour. Method: the old connection carries nothing any more and stays open; new ones carry.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_dead_without_a_word_is_left_after_one_call() {
    let Some((project, far, wire)) = wired().await else {
        return;
    };
    let reader = project.events().await;
    let mut stream = far.subscribe(&reader, PATIENCE).await.expect("a stream");
    stream.health(SHORT).await.expect("it is healthy");
    wire.hold_open();
    let said = far.publish(&[message(None, "a")], SHORT).await;
    assert!(matches!(said[0], Published::Unknown(_)), "{said:?}");
    let said = far.publish(&[message(None, "b")], SHORT).await;
    assert!(said[0].is_confirmed(), "on a new connection: {said:?}");
    let came = stream.next(10, PATIENCE).await.expect("next");
    assert_eq!(&*came[0].body, b"b");
    came.into_iter()
        .next()
        .expect("one")
        .settle
        .ack(SHORT)
        .await;

    // And of a stream that waits in silence its health tells.
    wire.hold_open();
    let silent = stream.next(10, SHORT).await.expect("silence is no error");
    assert!(silent.is_empty());
    assert!(stream.health(SHORT).await.is_err(), "nothing answers");
    let mut stream = far.subscribe(&reader, PATIENCE).await.expect("anew");
    project.confirmed(&[message(None, "c")]).await;
    // The dead pull may have been given it: then it comes when its time is over.
    let came = stream.next(10, PATIENCE * 4).await.expect("next");
    assert_eq!(&*came[0].body, b"c");
}
