//! Many ordering keys. Google's client has a task for each key that it has ever seen; ours keeps nothing of a key.

use std::{fs, time::Duration};

use google_cloud_pubsub::client::Publisher;
use outlast_testkit::broker::emulator::{self, Emulator};
use tokio::runtime::Handle;

use crate::{
    official::theirs,
    support::{Project, keyed},
};

async fn publisher(project: &Project) -> Publisher {
    Publisher::builder(project.topic("events"))
        .with_endpoint(&project.endpoint)
        .with_credentials(google_cloud_auth::credentials::anonymous::Builder::new().build())
        .set_delay_threshold(Duration::from_millis(5))
        .build()
        .await
        .expect("a publisher")
}

#[tokio::test(flavor = "multi_thread")]
async fn no_task_is_left_of_an_ordering_key_where_googles_client_leaves_one_of_each() {
    const KEYS: usize = 500;
    let Some(project) = Project::new().await else {
        return;
    };
    project.events().await;
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let messages = keyed(KEYS, 1);
    project.confirmed(&messages).await;
    let before = tasks();
    project.confirmed(&messages).await;
    let ours = tasks().saturating_sub(before);
    let publisher = publisher(&project).await;
    let before = tasks();
    for one in &messages {
        publisher.publish(theirs(one)).await.expect("published");
    }
    let googles = tasks().saturating_sub(before);
    assert!(ours < 20, "{ours} tasks are left");
    assert!(googles >= KEYS, "the control has {googles} tasks");
}

/// Prints its figures: `cargo nextest run -p outlast-pubsub --run-ignored only --no-capture -E 'test(flat)'`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a minute or two, with the machine for itself"]
async fn memory_stays_flat_with_20000_ordering_keys() {
    const KEYS: usize = 20_000;
    const OF_EACH: usize = 5;
    if !emulator::is_installed() {
        return;
    }
    let server = Emulator::start().await.expect("the emulator starts");
    let project = Project::at(server.endpoint(), emulator::project());
    let topic = outlast_core::broker::Topology::topic("events", true);
    let how = outlast_core::broker::Ensure::Create;
    let made =
        outlast_core::broker::Broker::ensure(&project.pubsub, &topic, how, Duration::from_secs(10));
    made.await.expect("made");
    let messages = keyed(KEYS, OF_EACH);
    project.confirmed(&messages[..1_000]).await;
    let began = std::time::Instant::now();
    let (before, mut most) = (resident_mb(), 0);
    for call in messages.chunks(1_000) {
        project.confirmed(call).await;
        most = most.max(resident_mb());
    }
    let ours = most.saturating_sub(before);
    let took = began.elapsed();
    println!("ours: {before} MB, at most {most} MB, {took:?}");
    let publisher = publisher(&project).await;
    let began = std::time::Instant::now();
    let (before, mut most) = (resident_mb(), 0);
    for call in messages.chunks(1_000) {
        let sent: Vec<_> = call
            .iter()
            .map(|one| publisher.publish(theirs(one)))
            .collect();
        for one in sent {
            one.await.expect("published");
        }
        most = most.max(resident_mb());
    }
    let googles = most.saturating_sub(before);
    let took = began.elapsed();
    println!("one Publisher of Google's: {before} MB, at most {most} MB, {took:?}");
    assert!(ours < 50, "{ours} MB more");
    assert!(googles > ours, "the control grew by {googles} MB only");
}

fn resident_mb() -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kb = line.and_then(|line| line.split_whitespace().nth(1));
    kb.and_then(|kb| kb.parse::<usize>().ok())
        .expect("Linux says it")
        / 1024
}
