//! Per key, in its order, with failures and several processes.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use outlast_core::Failure;
use outlast_engine::Attempt;

use super::Post;
use crate::given::Ping;

/// What was done, in this order; each seventh fails twice.
#[derive(Clone, Default)]
struct App {
    done: Arc<Mutex<Vec<(String, i64)>>>,
}

async fn seventh_fails(app: App, ping: Attempt<Ping>) -> Result<(), Failure> {
    if ping.n % 7 == 3 && ping.number() < 3 {
        return Err(Failure::retry("the seventh"));
    }
    let key = ping.key().unwrap_or("").to_owned();
    app.done.lock().unwrap().push((key, ping.n));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_key_is_done_in_its_order_and_a_failed_event_delays_only_its_own() {
    let post = Post::new().await;
    let app = App::default();
    let consumer = || post.mailer().ordered().concurrency(4).on(seventh_fails);
    let one = post.given.start(app.clone(), consumer());
    let two = post.given.start(app.clone(), consumer());
    let keys = ["a", "b", "c", "d", "e"];
    let pings: Vec<_> = (0..100)
        .map(|n| Post::ping(n, Some(keys[n as usize % keys.len()])))
        .collect();
    for (n, ping) in pings.iter().enumerate() {
        post.send(n as i64, ping).await;
        if n % 10 == 0 {
            post.send(n as i64, ping).await;
        }
    }
    post.done(100).await;
    one.stop().await.unwrap();
    two.stop().await.unwrap();
    let mut by_key: HashMap<String, Vec<i64>> = HashMap::new();
    for (key, n) in app.done.lock().unwrap().iter() {
        by_key.entry(key.clone()).or_default().push(*n);
    }
    assert_eq!(by_key.len(), keys.len());
    for (key, mut done) in by_key {
        assert!(done.is_sorted(), "{key}: {done:?}");
        done.dedup();
        assert_eq!(done.len(), 20, "{key}");
    }
    let parked = "select (select count(*) from outlast._parked) + (select count(*) from outlast._parked_key)";
    assert_eq!(post.given.count(parked).await, 0);
}
