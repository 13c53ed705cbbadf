//! On an ordered route nothing of a key is published after what was not confirmed of it, whatever fails.

use std::collections::HashMap;

use outlast_core::broker::{Limits, Why};
use outlast_testkit::broker::memory::{Fault, Memory};

use super::{Given, emit, number, numbers, relaying, with_route};

/// The first time that each message was taken, by key.
fn firsts(broker: &Memory) -> HashMap<String, Vec<i64>> {
    let mut keys: HashMap<String, Vec<i64>> = HashMap::new();
    for message in broker.accepted() {
        let key = message.ordering_key.clone().expect("it has a key");
        let seen = keys.entry(key).or_default();
        let n = number(&message);
        if !seen.contains(&n) {
            seen.push(n);
        }
    }
    keys
}

async fn keeps(broker: Memory) {
    let given = with_route(true).await;
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let rng = std::sync::Mutex::new(fastrand::Rng::with_seed(seed));
    broker.meanwhile(Fault::refuse(move |_| {
        let dice = rng.lock().unwrap().u32(..20);
        (dice == 0).then_some(Why::Unavailable)
    }));
    broker.then(Fault::ConfirmLost);
    let _relay = relaying(&given, &broker, Given::settings()).await;
    emit(&given, 0..400, 25).await;
    given.processed(400).await;
    assert_eq!(numbers(&broker), (0..400).collect::<Vec<_>>());
    for (key, order) in firsts(&broker) {
        assert!(order.is_sorted(), "{key}: {order:?}");
    }
}

#[tokio::test]
async fn the_order_of_each_key_survives_failures() {
    keeps(Memory::new().with_topic("pings").without_dedup()).await;
}

#[tokio::test]
async fn a_broker_without_ordered_batches_gets_one_message_of_a_key_at_a_time() {
    let broker = Memory::new().with_topic("pings").without_dedup();
    keeps(broker.with_limits(Limits::new(50, 1 << 20, 1 << 18))).await;
}
