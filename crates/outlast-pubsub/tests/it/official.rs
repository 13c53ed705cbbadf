//! Google's own client on the other side: what we say on the wire is what it says.

use std::{collections::BTreeMap, time::Duration};

use google_cloud_pubsub::{
    client::{Publisher, Subscriber},
    model,
};
use outlast_core::broker::{Envelope, Message};
use tokio::time::timeout;

use crate::support::{PATIENCE, Project, keyed, take};

/// The bodies of each key, as they came.
fn of_keys(came: &[(Envelope, String)]) -> BTreeMap<String, Vec<&str>> {
    let mut keys: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (envelope, body) in came {
        let key = envelope.key.clone().unwrap_or_default();
        keys.entry(key).or_default().push(body);
    }
    keys
}

fn in_order(came: &[(Envelope, String)], of_each: usize) {
    let numbers: Vec<String> = (0..of_each).map(|n| n.to_string()).collect();
    for (key, bodies) in of_keys(came) {
        assert_eq!(bodies, numbers, "the order of {key}");
    }
}

fn anonymous() -> google_cloud_auth::credentials::Credentials {
    google_cloud_auth::credentials::anonymous::Builder::new().build()
}

#[tokio::test(flavor = "multi_thread")]
async fn googles_client_receives_what_we_publish_with_its_envelope_and_in_the_order_of_each_key() {
    const OF_EACH: usize = 30;
    let Some(project) = Project::new().await else {
        return;
    };
    project.events().await;
    let sent = keyed(10, OF_EACH);
    for call in sent.chunks(77) {
        project.confirmed(call).await;
    }
    let client = Subscriber::builder()
        .with_endpoint(&project.endpoint)
        .with_credentials(anonymous())
        .build()
        .await
        .expect("a client");
    let mut stream = client.subscribe(project.subscription("reader")).build();
    let mut came: Vec<(Envelope, String)> = Vec::new();
    while came.len() < sent.len() {
        let next = timeout(PATIENCE, stream.next()).await.expect("all of them");
        let (message, handler) = next.expect("the stream goes on").expect("a message");
        let attributes: Vec<_> = message.attributes.into_iter().collect();
        let envelope = Envelope::from_attributes(&attributes).expect("ours");
        assert_eq!(Some(message.ordering_key), envelope.key);
        if !came.iter().any(|(known, _)| known.id == envelope.id) {
            came.push((
                envelope,
                String::from_utf8_lossy(&message.data).into_owned(),
            ));
        }
        handler.ack();
    }
    in_order(&came, OF_EACH);
    let whole = |id| sent.iter().find(|one| one.envelope.id == id);
    for (envelope, _) in &came {
        assert_eq!(whole(envelope.id).map(|one| &*one.envelope), Some(envelope));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn we_receive_what_googles_client_publishes_in_the_order_of_each_key() {
    const OF_EACH: usize = 30;
    let Some(project) = Project::new().await else {
        return;
    };
    let reader = project.events().await;
    let publisher = Publisher::builder(project.topic("events"))
        .with_endpoint(&project.endpoint)
        .with_credentials(anonymous())
        .set_delay_threshold(Duration::from_millis(5))
        .build()
        .await
        .expect("a publisher");
    let sent: Vec<_> = keyed(10, OF_EACH)
        .iter()
        .map(|one| publisher.publish(theirs(one)))
        .collect();
    for one in sent {
        one.await.expect("published");
    }
    let mut reader = project.subscribe(&reader).await;
    let came = take(&mut *reader, 10 * OF_EACH).await;
    in_order(&came, OF_EACH);
}

/// The same message as Google's client has it.
pub(crate) fn theirs(message: &Message) -> model::Message {
    model::Message::new()
        .set_data(message.body.clone())
        .set_attributes(message.all_attributes())
        .set_ordering_key(message.ordering_key.clone().unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_in_buckets_keep_their_order_and_their_names() {
    const OF_EACH: usize = 20;
    let Some(project) = Project::new().await else {
        return;
    };
    let reader = project.events().await;
    let mut options = crate::support::options(&project.endpoint, &project.name);
    options.ordering_buckets = std::num::NonZeroU32::new(3);
    let bucketed = outlast_pubsub::PubSub::new(options).expect("the options are right");
    let project = Project {
        pubsub: bucketed,
        ..project
    };
    let sent = keyed(40, OF_EACH);
    project.confirmed(&sent).await;
    let mut reader = project.subscribe(&reader).await;
    let came = take(&mut *reader, sent.len()).await;
    assert_eq!(of_keys(&came).len(), 40);
    in_order(&came, OF_EACH);
}
