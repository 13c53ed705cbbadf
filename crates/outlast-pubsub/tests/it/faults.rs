//! A server that dies while it is published to.

use outlast_core::broker::{Broker, Published, Why};
use outlast_testkit::broker::emulator::{self, Emulator};
use std::time::Duration;

use crate::support::{Project, keyed, message};

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
