//! An ordered outbox: nothing of a key is published after what was not confirmed of it, by whichever relay.

use std::collections::HashMap;

use outlast_core::broker::{Limits, Why};
use outlast_testkit::broker::memory::{Fault, Memory};
use serde_json::json;

use super::{
    apply, at_rest, emptied, encore, few_at_once, number, numbers, relaying, with_outboxes,
};
use crate::given::Given;

const KEYED: &str =
    "create table public.outbox (id bigserial primary key, topic text not null, data json not null, inserted_at timestamptz not null default now(), k int);
     create index on public.outbox (k, id)";

async fn keyed() -> Given {
    let columns =
        json!({"id": "id", "topic": "topic", "payload": "data", "time": "inserted_at", "key": "k"});
    let outbox = encore(&json!({"ordered": true, "columns": columns}));
    with_outboxes(KEYED, json!({"shop": outbox})).await
}

async fn write(given: &Given, numbers: std::ops::Range<i64>, keys: i64) {
    for n in numbers {
        let insert = format!(
            "insert into public.outbox (topic, data, k) values ('pings', '{{\"n\": {n}}}', {})",
            n % keys
        );
        given.sql.batch_execute(&insert).await.unwrap();
    }
}

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

/// Two relays, one of which dies now and then, and a broker that fails now and then.
async fn keeps(broker: Memory) {
    let given = keyed().await;
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let rng = std::sync::Mutex::new(fastrand::Rng::with_seed(seed));
    broker.meanwhile(Fault::refuse(move |_| {
        let dice = rng.lock().unwrap().u32(..20);
        (dice == 0).then_some(Why::Unavailable)
    }));
    broker.then(Fault::ConfirmLost);
    let _steady = relaying(&given, &broker, few_at_once());
    for round in 0..4 {
        let dies = relaying(&given, &broker, few_at_once());
        write(&given, round * 100..(round + 1) * 100, 25).await;
        dies.worker.abort();
    }
    emptied(&given).await;
    assert_eq!(numbers(&broker), (0..400).collect::<Vec<_>>());
    for (key, order) in firsts(&broker) {
        assert!(order.is_sorted(), "{key}: {order:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_order_of_each_key_survives_failures_and_deaths() {
    keeps(Memory::new().with_topic("pings").without_dedup()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_without_ordered_batches_gets_one_message_of_a_key_at_a_time() {
    let broker = Memory::new().with_topic("pings").without_dedup();
    keeps(broker.with_limits(Limits::new(50, 1 << 20, 1 << 18))).await;
}

#[tokio::test]
async fn a_row_that_can_never_be_published_holds_up_its_own_key_until_somebody_decides() {
    let given = keyed().await;
    let broker = Memory::new().with_topic("pings");
    broker.meanwhile(Fault::refuse(|message| {
        (number(message) == 7).then_some(Why::Message)
    }));
    let _relay = relaying(&given, &broker, Given::settings());
    write(&given, 0..50, 5).await;
    // 7 is parked; what follows of its key stays where it is: 12, 17 .. 47.
    given.until("select count(*) from public.outbox", 8).await;
    given
        .until(
            "select count(*) from outlast.incident where consumer = 'outbox/shop'",
            1,
        )
        .await;
    let left = given
        .count("select count(*) from public.outbox where k <> 2")
        .await;
    assert_eq!(left, 0);
    let skip =
        "select outlast.skip('outbox/shop', (select about from outlast.incident), 'not needed')";
    given.sql.batch_execute(skip).await.unwrap();
    emptied(&given).await;
    let all: Vec<i64> = (0..50).filter(|n| *n != 7).collect();
    assert_eq!(numbers(&broker), all);
    assert!(firsts(&broker).values().all(|order| order.is_sorted()));
}

#[tokio::test]
async fn rows_without_a_key_wait_for_nobody() {
    let given = keyed().await;
    let broker = Memory::new().with_topic("pings");
    let sql = "insert into public.outbox (topic, data) select 'pings', json_build_object('n', n) from generate_series(0, 99) n";
    given.sql.batch_execute(sql).await.unwrap();
    let _relay = relaying(&given, &broker, Given::settings());
    emptied(&given).await;
    assert_eq!(numbers(&broker), (0..100).collect::<Vec<_>>());
}

#[tokio::test]
async fn order_is_refused_where_the_table_cannot_give_it() {
    let given = keyed().await;
    given
        .sql
        .batch_execute("drop index outbox_k_id_idx")
        .await
        .unwrap();
    let problems =
        "select coalesce(string_agg(p, '; '), '') from outlast._outbox_problems('shop') p";
    let why = given.count_text(problems).await;
    assert!(
        why.contains("create index concurrently on public.outbox (k, id)"),
        "{why}"
    );
    let changed = encore(&json!({}));
    let sql = "select count(*) from outlast._apply_outboxes($1)";
    let refused = given.sql.query(sql, &[&json!({"shop": changed})]).await;
    assert!(refused.is_err(), "order cannot be changed");
    apply(&given, json!({})).await;
    at_rest(&given).await;
}
