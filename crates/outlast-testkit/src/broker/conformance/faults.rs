//! A server that stands still, is gone, and comes back.

use std::{collections::HashSet, time::Duration};

use outlast_core::broker::{Message, Published, Subscription, Why};
use tokio::time::timeout;

use super::stage::{GRACE, PATIENCE, Stage, ids, message, messages, read};
use crate::wait::until;

const SHORT: Duration = Duration::from_secs(1);

pub(super) async fn a_frozen_server_is_answered_for_in_time_and_honestly(stage: &Stage) {
    let topic = stage.topic("a").await;
    let subscription = stage.subscription(&topic).await;
    stage.confirmed(&messages(&topic, None, 1)).await;
    stage.server().freeze();
    let (mut outcomes, mut last) = (Outcomes::default(), Vec::new());
    // More than once: what the first call left behind must not make the second one dishonest.
    for key in [None, Some("a"), None] {
        let call = messages(&topic, key, if key.is_some() { 1 } else { 20 });
        let said = stage.publish_within(&call, SHORT).await;
        outcomes.note(&call, &said);
        last = said;
    }
    // The first one may have gone through: a signal takes its time.
    let confirmed = last.iter().any(Published::is_confirmed);
    assert!(!confirmed, "a server that stands still: {last:?}");
    stage.server().thaw();
    stage.reachable().await;
    outcomes.check(stage, &subscription).await;
}

pub(super) async fn without_a_server_calls_end_in_time_and_go_on_when_it_is_back(stage: &Stage) {
    let topic = stage.topic("a").await;
    stage.confirmed(&messages(&topic, None, 1)).await;
    stage.server().kill().await;
    for _ in 0..2 {
        let said = stage
            .publish_within(&messages(&topic, None, 5), SHORT)
            .await;
        for one in said {
            let fits = match &one {
                Published::Confirmed => false,
                Published::NotSent(not) => matches!(not.why, Why::Unavailable | Why::NotTried),
                Published::Unknown(_) => true,
            };
            assert!(fits, "with the server gone: {one:?}");
        }
    }
    let probe = timeout(SHORT + GRACE, stage.broker.probe(SHORT)).await;
    let probe = probe.expect("a probe returns in its time");
    assert!(probe.is_err(), "a probe without a server");
    stage.server().start().await;
    stage.reachable().await;
    // A server that keeps nothing has lost the topic too.
    let topic = stage.topic("a").await;
    let subscription = stage.subscription(&topic).await;
    let again = messages(&topic, None, 5);
    let goes = async || {
        let said = stage.publish(&again).await;
        said.iter().all(Published::is_confirmed).then_some(())
    };
    assert!(
        until(PATIENCE, goes).await.is_some(),
        "nothing is confirmed after the restart"
    );
    stage.read(&subscription, &again).await;
}

pub(super) async fn what_was_confirmed_before_a_kill_is_there_and_what_was_not_sent_is_not(
    stage: &Stage,
) {
    let topic = stage.topic("a").await;
    let subscription = stage.subscription(&topic).await;
    let mut outcomes = Outcomes::default();
    // It dies among calls, not between two.
    let enough = tokio::sync::Notify::new();
    let killing = async {
        enough.notified().await;
        stage.server().kill().await;
    };
    let publishing = async {
        for calls in 1.. {
            let call = messages(&topic, None, 50);
            let said = stage.publish_within(&call, SHORT * 2).await;
            outcomes.note(&call, &said);
            if !said.iter().all(Published::is_confirmed) {
                return;
            }
            if calls == 20 {
                enough.notify_one();
            }
        }
    };
    let both = futures_util::future::join(killing, publishing);
    timeout(PATIENCE, both)
        .await
        .expect("calls fail once the server is dead");
    stage.server().start().await;
    stage.reachable().await;
    assert!(
        !outcomes.confirmed.is_empty(),
        "nothing was confirmed before the kill"
    );
    outcomes.check(stage, &subscription).await;
}

/// What was said, to be compared with what is there.
#[derive(Default)]
struct Outcomes {
    confirmed: HashSet<uuid::Uuid>,
    not_sent: HashSet<uuid::Uuid>,
}

impl Outcomes {
    fn note(&mut self, call: &[Message], said: &[Published]) {
        for (message, said) in call.iter().zip(said) {
            let id = message.envelope.id;
            match said {
                Published::Confirmed => _ = self.confirmed.insert(id),
                Published::NotSent(_) => _ = self.not_sent.insert(id),
                Published::Unknown(_) => {}
            }
        }
    }

    async fn check(&self, stage: &Stage, subscription: &Subscription) {
        let there = ids(&stage.read_all(subscription).await);
        let lost = self.confirmed.difference(&there).count();
        assert_eq!(
            lost,
            0,
            "of {} confirmed ones so many are gone",
            self.confirmed.len()
        );
        let ghosts = self.not_sent.intersection(&there).count();
        assert_eq!(
            ghosts,
            0,
            "of {} that were not sent so many are there",
            self.not_sent.len()
        );
    }
}

pub(super) async fn health_and_probe_notice_a_server_that_stands_still(stage: &Stage) {
    let topic = stage.topic("a").await;
    let subscription = stage.subscription(&topic).await;
    let mut reader = stage.subscribe(&subscription).await;
    let healthy = reader.health(PATIENCE).await;
    assert_eq!(healthy, Ok(()), "a subscription of a server that lives");
    stage.server().freeze();
    let health = timeout(SHORT + GRACE, reader.health(SHORT)).await;
    let probe = timeout(SHORT + GRACE, stage.broker.probe(SHORT)).await;
    stage.server().thaw();
    assert!(
        health.expect("health returns in its time").is_err(),
        "frozen, and healthy"
    );
    assert!(
        probe.expect("a probe returns in its time").is_err(),
        "frozen, and it answers"
    );
    stage.reachable().await;
}

pub(super) async fn receiving_goes_on_after_a_restart(stage: &Stage) {
    let topic = stage.topic("a").await;
    let subscription = stage.subscription(&topic).await;
    let sent = [message(&topic, "before")];
    stage.confirmed(&sent).await;
    let mut reader = stage.subscribe(&subscription).await;
    stage.server().kill().await;
    let without = timeout(SHORT + GRACE, reader.next(1, SHORT)).await;
    let without = without.expect("next returns in its time");
    assert!(
        !without.is_ok_and(|came| !came.is_empty()),
        "deliveries without a server"
    );
    stage.server().start().await;
    let comes = async || {
        match reader.next(1, SHORT).await {
            Ok(mut came) => came.pop(),
            // As the contract has it: who sees an error subscribes anew.
            Err(_) => {
                if let Ok(anew) = stage.broker.subscribe(&subscription, SHORT).await {
                    reader = anew;
                }
                None
            }
        }
    };
    let came = until(PATIENCE, comes)
        .await
        .expect("deliveries after the restart");
    assert_eq!(read(&came).envelope.id, sent[0].envelope.id);
}
