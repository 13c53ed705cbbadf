//! Many ordering keys. Google's client has a task for each key that it has ever seen; ours keeps nothing of a key. How much
//! memory a relay has while 100,000 of them go through it: the row `keys` of `./run bench relay`.

use std::time::Duration;

use google_cloud_pubsub::client::Publisher;
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
