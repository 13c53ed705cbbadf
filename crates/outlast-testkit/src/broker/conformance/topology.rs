//! What has to be there: told, made, and never changed.

use std::time::Duration;

use outlast_core::broker::{
    Broker, Ensure, Finding, Published, Severity, Subscription, Topology, Why,
};

use super::stage::{PATIENCE, Stage, message};

async fn ensure(broker: &dyn Broker, topology: &Topology, how: Ensure) -> Vec<Finding> {
    let findings = broker.ensure(topology, how, PATIENCE).await;
    let findings = findings.unwrap_or_else(|why| panic!("{topology:?}: {why}"));
    assert!(!findings.is_empty(), "{topology:?}: nothing was said of it");
    findings
}

fn worst(findings: &[Finding]) -> Severity {
    let worst = findings.iter().map(|one| one.severity).max();
    worst.unwrap_or(Severity::Good)
}

pub(super) async fn what_is_missing_is_told_and_then_made(stage: &Stage) {
    let topic = stage.name("a");
    let subscription = Subscription::new(format!("{topic}-reader"), &topic);
    let both = [
        Topology::topic(&topic, true),
        Topology::Subscription(subscription.clone()),
    ];
    for wanted in &both {
        let before = ensure(&*stage.broker, wanted, Ensure::Verify).await;
        assert_eq!(worst(&before), Severity::Bad, "{wanted:?}: {before:?}");
        assert!(before.iter().any(|one| one.missing), "{before:?}");
        // Looking makes nothing.
        let before = ensure(&*stage.broker, wanted, Ensure::Verify).await;
        assert_eq!(worst(&before), Severity::Bad, "{wanted:?}: {before:?}");
        if let Topology::Subscription(_) = wanted {
            let early = stage.broker.subscribe(&subscription, PATIENCE).await;
            let early = early.err().expect("there is nothing to subscribe to");
            assert_eq!(early.why, Why::Missing, "{early}");
        }
        // Twice, as every process does at its start.
        for broker in [&stage.broker, &stage.other] {
            let made = ensure(&**broker, wanted, Ensure::Create).await;
            assert!(worst(&made) < Severity::Bad, "{wanted:?}: {made:?}");
        }
        let after = ensure(&*stage.other, wanted, Ensure::Verify).await;
        assert!(worst(&after) < Severity::Bad, "{wanted:?}: {after:?}");
        assert!(!after.iter().any(|one| one.missing), "{after:?}");
    }
}

pub(super) async fn what_somebody_else_made_with_other_settings_is_found_and_not_changed(
    stage: &Stage,
) {
    let topic = stage.topic("a").await;
    let theirs = stage.subscription_of(&topic, Duration::from_secs(20)).await;
    let mut ours = theirs.clone();
    ours.ack_within = Duration::from_secs(300);
    let ours = Topology::Subscription(ours);
    for how in [Ensure::Verify, Ensure::Create, Ensure::Verify] {
        let found = ensure(&*stage.broker, &ours, how).await;
        assert!(worst(&found) >= Severity::Warning, "{how:?}: {found:?}");
    }
    let theirs = Topology::Subscription(theirs);
    let found = ensure(&*stage.other, &theirs, Ensure::Verify).await;
    let about = found.iter().filter(|one| one.severity == Severity::Bad);
    assert_eq!(about.count(), 0, "it was changed: {found:?}");
}

pub(super) async fn names_that_cannot_be_are_refused_and_harm_nobody(stage: &Stage) {
    let topic = stage.topic("a").await;
    let good = message(&topic, "good");
    let long = "x".repeat(5_000);
    let odd = [
        "",
        " ",
        "a b",
        "a\r\nb",
        "*",
        ">",
        "a..b",
        "$JS.API.INFO",
        "ü\0",
        &long,
    ];
    for name in odd {
        let said = stage.publish(&[message(name, "odd"), good.clone()]).await;
        let refused = matches!(
            &said[0],
            Published::NotSent(not) if matches!(not.why, Why::Message | Why::Missing | Why::Denied)
        );
        assert!(refused, "to the topic {name:?}: {:?}", said[0]);
        assert!(said[1].is_confirmed(), "beside {name:?}: {:?}", said[1]);
        for wanted in [
            Topology::topic(name, false),
            Topology::Subscription(Subscription::new(name, &topic)),
        ] {
            let found = stage.broker.ensure(&wanted, Ensure::Verify, PATIENCE).await;
            let told = found.map_or(Severity::Bad, |found| worst(&found));
            assert_eq!(told, Severity::Bad, "{wanted:?}");
        }
    }
}
