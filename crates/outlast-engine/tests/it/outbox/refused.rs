//! Rows that can never be published are set aside whole, and hold up nobody.

use outlast_core::broker::{Limits, Why};
use outlast_testkit::broker::memory::{Fault, Memory};
use serde_json::json;

use super::{
    at_rest, emptied, encore, number, numbers, relaying, with_encore, with_outboxes, write,
};
use crate::given::Given;

#[tokio::test]
async fn one_that_the_broker_refuses_is_quarantined_alone_and_published_when_somebody_says_so() {
    let given = with_encore().await;
    let broker = Memory::new().with_topic("pings");
    broker.meanwhile(Fault::refuse(|message| {
        (number(message) == 13).then_some(Why::Message)
    }));
    let _relay = relaying(&given, &broker, Given::settings());
    write(&given.sql, 0..100).await;
    emptied(&given).await;
    let row = "select convert_from(p.payload, 'UTF8') || p.subject || i.kind || i.reason
        from outlast._parked p join outlast.incident i on i.about = p.event_id where p.state = 'quarantined'";
    let row = given.count_text(row).await;
    assert!(row.starts_with("{\"n\": 13}pings"), "{row}");
    assert!(row.contains("the message is refused"), "{row}");
    assert_eq!(numbers(&broker).len(), 99);
    // The cause is mended: the copy is published, under the same id, to the same topic.
    broker.as_usual();
    let retry = "select outlast.retry('outbox/shop', (select event_id from outlast._parked))";
    given.sql.batch_execute(retry).await.unwrap();
    given.until("select count(*) from outlast._parked", 0).await;
    at_rest(&given).await;
    assert_eq!(numbers(&broker), (0..100).collect::<Vec<_>>());
}

#[tokio::test]
async fn one_over_the_limit_is_never_read_and_kept_whole() {
    let given = with_encore().await;
    let broker = Memory::new().with_topic("pings");
    let broker = broker.with_limits(Limits::new(100, 100_000, 50_000));
    // Packed it is small, and must not pass for that.
    let large = "insert into public.outbox (topic, data, inserted_at) values ('pings', jsonb_build_object('n', 0, 'pad', repeat('x', 200000)), now())";
    given.sql.batch_execute(large).await.unwrap();
    write(&given.sql, 1..50).await;
    let _relay = relaying(&given, &broker, Given::settings());
    emptied(&given).await;
    assert_eq!(numbers(&broker), (1..50).collect::<Vec<_>>());
    let kept = "select count(*) from outlast._parked where state = 'quarantined' and octet_length(payload) > 200000
        and reason like '%payload of 200%over the limit of 50000%'";
    assert_eq!(given.count(kept).await, 1);
    let most = broker.calls().iter().flatten().map(|m| m.body.len()).max();
    assert!(most < Some(1000), "{most:?}");
}

#[tokio::test]
async fn one_that_breaks_the_relay_is_found_and_the_others_go_on() {
    let given = with_encore().await;
    let broker = Memory::new().with_topic("pings").without_dedup();
    let breaks = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = breaks.clone();
    broker.meanwhile(Fault::refuse(move |message| {
        if number(message) == 5 {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            panic!("this one breaks it");
        }
        None
    }));
    write(&given.sql, 0..12).await;
    let _relay = relaying(&given, &broker, Given::settings());
    given
        .until(
            "select count(*) from outlast._parked where state = 'quarantined'",
            1,
        )
        .await;
    emptied(&given).await;
    let all: Vec<i64> = (0..12).filter(|n| *n != 5).collect();
    assert_eq!(numbers(&broker), all);
    let why = given.count_text("select reason from outlast._parked").await;
    assert!(why.contains("lost 5 times"), "{why}");
    assert_eq!(breaks.load(std::sync::atomic::Ordering::Relaxed), 5);
}

#[tokio::test]
async fn what_nobody_could_publish_is_told_by_its_reason() {
    let columns = json!({"id": "id", "topic": "topic", "payload": "data", "key": "k", "tenant": "t", "headers": "h"});
    let table = "create table public.outbox (id text primary key, topic text, data text, k text, t text, h jsonb)";
    let given = with_outboxes(table, json!({"shop": encore(&json!({"columns": columns}))})).await;
    let broker = Memory::new().with_topic("pings");
    let rows = "insert into public.outbox values
        ('good', 'pings', '{\"n\": 1}', 'k', 'acme', '{\"region\": \"eu\", \"n\": 1}'),
        ('topic', null, '{}', null, null, null),
        ('key', 'pings', '{}', repeat('k', 501), null, null),
        ('tenant', 'pings', '{}', null, E'a\\nb', null),
        ('headers', 'pings', '{}', null, null, '[1]'),
        (repeat('i', 501), 'pings', '{}', null, null, null)";
    given.sql.batch_execute(rows).await.unwrap();
    let _relay = relaying(&given, &broker, Given::settings());
    emptied(&given).await;
    let [message] = &broker.accepted()[..] else {
        panic!("one message: {:?}", broker.accepted());
    };
    let e = &message.envelope;
    assert_eq!((&*e.tenant, e.key.as_deref()), ("acme", Some("k")));
    assert_eq!(e.headers.get("region").map(String::as_str), Some("eu"));
    let reasons =
        "select string_agg(reason, '; ') from outlast._parked where state = 'quarantined'";
    let reasons = given.count_text(reasons).await;
    for why in [
        "no topic",
        "its key is longer",
        "control characters",
        "headers are no object",
        "its id is longer",
    ] {
        assert!(reasons.contains(why), "{why}: {reasons}");
    }
}
