//! What is made, and what is said of what others made.

use google_cloud_pubsub::client::{SubscriptionAdmin, TopicAdmin};
use outlast_core::broker::{Broker, Ensure, Finding, Severity, Subscription, Topology, Why};
use std::time::Duration;

use crate::support::{PATIENCE, Project};

fn about<'a>(findings: &'a [Finding], about: &str) -> &'a Finding {
    let mut found = findings.iter().filter(|one| one.about.contains(about));
    found
        .next()
        .unwrap_or_else(|| panic!("nothing is said about {about}: {findings:#?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_we_make_keeps_what_is_promised_as_google_itself_reads_it() {
    let Some(project) = Project::new().await else {
        return;
    };
    project.events().await;
    let google = admin(&project).await;
    let name = project.subscription("reader");
    let made = google.get_subscription().set_subscription(&name);
    let made = made.send().await.expect("it is there");
    assert_eq!(made.topic, project.topic("events"));
    assert_eq!(made.ack_deadline_seconds, 60);
    assert!(made.enable_message_ordering);
    assert!(!made.enable_exactly_once_delivery);
    assert_eq!(made.filter, "");
    let never = made.expiration_policy.expect("it was set");
    assert_eq!(never.ttl, None, "it never expires");
    let retry = made.retry_policy.expect("it was set");
    assert_eq!(retry.minimum_backoff.map(|time| time.seconds()), Some(1));
    assert_eq!(retry.maximum_backoff.map(|time| time.seconds()), Some(600));
    let dead = made.dead_letter_policy.expect("it was set");
    assert_eq!(dead.dead_letter_topic, project.topic("reader-dead"));
    assert_eq!(dead.max_delivery_attempts, 50);
    let kept = made.message_retention_duration.expect("it was set");
    assert_eq!(kept.seconds(), 7 * 24 * 3600);
    let name = project.subscription("reader-dead");
    let made = google.get_subscription().set_subscription(&name);
    let made = made.send().await.expect("dead letters are kept");
    assert_eq!(made.topic, project.topic("reader-dead"));
    assert_eq!(made.expiration_policy.expect("it was set").ttl, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_made_without_a_thought_is_told_setting_by_setting() {
    let Some(project) = Project::new().await else {
        return;
    };
    crate::support::cryptography();
    let topics = TopicAdmin::builder()
        .with_endpoint(&project.endpoint)
        .with_credentials(google_cloud_auth::credentials::anonymous::Builder::new().build())
        .build()
        .await
        .expect("a client");
    let make = topics.create_topic().set_name(project.topic("events"));
    make.send().await.expect("made");
    let topic = Topology::topic("events", true);
    let verify = async |topology: &Topology| {
        let found = project.pubsub.ensure(topology, Ensure::Verify, PATIENCE);
        found.await.expect("the server answers")
    };
    let found = verify(&topic).await;
    let readers = about(&found, "topic events: subscriptions");
    assert_eq!(
        (readers.severity, &*readers.found),
        (Severity::Warning, "none")
    );

    let google = admin(&project).await;
    let make = google.create_subscription();
    let make = make
        .set_name(project.subscription("reader"))
        .set_topic(project.topic("events"))
        .set_filter("attributes:nothing");
    make.send().await.expect("made");
    let mut asked = Subscription::new("reader", "events");
    asked.ordered = true;
    asked.ack_within = Duration::from_secs(60);
    let found = verify(&Topology::Subscription(asked.clone())).await;
    for (setting, severity) in [
        ("ack deadline", Severity::Warning),
        ("retry policy", Severity::Warning),
        ("expiration", Severity::Warning),
        ("filter", Severity::Warning),
        ("dead letters", Severity::Warning),
        ("order", Severity::Bad),
        ("topic", Severity::Good),
        ("retention", Severity::Good),
        ("our rights", Severity::Unverified),
    ] {
        let about = about(&found, setting);
        assert_eq!(about.severity, severity, "{about:?}");
        let told = about.severity == Severity::Good || !about.advice.is_empty();
        assert!(told, "{about:?}");
    }
    // Dead letters that nobody keeps.
    let other = Topology::Subscription({
        let mut other = Subscription::new("other", "events");
        other.ordered = true;
        other
    });
    let made = project
        .pubsub
        .ensure(&other, Ensure::Create, PATIENCE)
        .await;
    made.expect("made");
    let kept = project.subscription("other-dead");
    let delete = google.delete_subscription().set_subscription(&kept);
    delete.send().await.expect("deleted");
    let found = verify(&other).await;
    let kept = about(&found, "dead-letter subscription other-dead");
    assert_eq!(kept.severity, Severity::Bad, "{kept:?}");
    let agent = about(&found, "service agent");
    assert_eq!(agent.severity, Severity::Unverified, "{agent:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_cannot_be_is_an_error_and_makes_nothing() {
    let Some(project) = Project::new().await else {
        return;
    };
    let mut reader = Subscription::new("reader/1", "events");
    for how in [Ensure::Verify, Ensure::Create] {
        let topology = Topology::Subscription(reader.clone());
        let refused = project.pubsub.ensure(&topology, how, PATIENCE).await;
        assert_eq!(refused.map_err(|why| why.why), Err(Why::Configuration));
    }
    reader.name = "reader".into();
    let topology = Topology::Subscription(reader);
    let found = project.pubsub.ensure(&topology, Ensure::Verify, PATIENCE);
    let found = found.await.expect("the server answers");
    assert_eq!(about(&found, "subscription reader").severity, Severity::Bad);
}

async fn admin(project: &Project) -> SubscriptionAdmin {
    crate::support::cryptography();
    SubscriptionAdmin::builder()
        .with_endpoint(&project.endpoint)
        .with_credentials(google_cloud_auth::credentials::anonymous::Builder::new().build())
        .build()
        .await
        .expect("a client")
}
