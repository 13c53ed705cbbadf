//! Outbox tables of other systems: what was committed there is published until the broker has confirmed it, always with the same
//! id, and only then its row goes. Nothing else of their table is touched.

mod faults;
mod kinds;
mod order;
mod refused;
mod share;
mod unreadable;

use std::{collections::BTreeSet, time::Duration};

use outlast_core::broker::Message;
use outlast_engine::{Outlast, Settings};
use outlast_testkit::broker::memory::{Fault, Memory};
use serde_json::{Value, json};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::given::{Given, Running, given};

/// As Encore makes it.
pub(crate) const ENCORE: &str =
    "create table public.outbox (id bigserial primary key, topic text not null, data jsonb not null, inserted_at timestamptz not null);
     create index outbox_topic_idx on public.outbox (topic, id)";

/// An outbox as Encore makes it, of the broker `memory`; these parts of it are said otherwise.
pub(crate) fn encore(parts: &Value) -> Value {
    let mut outbox = json!({
        "broker": "memory", "schema": "public", "table": "outbox", "topic": "{topic}", "ordered": false,
        "content_type": "application/json", "poll": "20ms", "attributes": {},
        "columns": {"id": "id", "topic": "topic", "payload": "data", "time": "inserted_at"}
    });
    for (name, part) in parts.as_object().expect("an object") {
        outbox[name] = part.clone();
    }
    outbox
}

/// A database with this table, and these outboxes.
pub(crate) async fn with_outboxes(tables: &str, outboxes: Value) -> Given {
    let given = given().await;
    given.sql.batch_execute(tables).await.unwrap();
    apply(&given, outboxes).await;
    given
}

pub(crate) async fn apply(given: &Given, outboxes: Value) {
    let sql = "select count(*) from outlast._apply_outboxes($1)";
    given.sql.query(sql, &[&outboxes]).await.unwrap();
}

/// A database with Encore's table as the outbox `shop`.
pub(crate) async fn with_encore() -> Given {
    with_outboxes(ENCORE, json!({"shop": encore(&json!({}))})).await
}

/// A process that relays to this broker.
pub(crate) fn relaying(given: &Given, broker: &Memory, settings: Settings) -> Running {
    relaying_at(given.database.url(), broker, settings)
}

pub(crate) fn relaying_at(url: &str, broker: &Memory, settings: Settings) -> Running {
    let worker = Outlast::new()
        .worker(())
        .database(url)
        .settings(settings)
        .relay("memory", broker.clone());
    Given::run(worker)
}

/// Writes rows of these numbers, each in a transaction of its own, to the topic `pings`.
pub(crate) async fn write(sql: &Client, numbers: std::ops::Range<i64>) {
    for n in numbers {
        let insert = format!(
            "insert into public.outbox (topic, data, inserted_at) values ('pings', '{{\"n\": {n}}}', now())"
        );
        sql.batch_execute(&insert).await.unwrap();
    }
}

pub(crate) fn number(message: &Message) -> i64 {
    let body: Value = serde_json::from_slice(&message.body).expect("JSON");
    body["n"].as_i64().expect("a number")
}

/// The numbers of what the broker took, each once, in order.
pub(crate) fn numbers(broker: &Memory) -> Vec<i64> {
    let all: BTreeSet<i64> = broker.accepted().iter().map(number).collect();
    all.into_iter().collect()
}

/// The ids under which the broker took what has this number.
pub(crate) fn ids(broker: &Memory, n: i64) -> BTreeSet<Uuid> {
    let all = broker.accepted();
    let of = all.iter().filter(|message| number(message) == n);
    of.map(|message| message.envelope.id).collect()
}

/// Waits until the table is empty and nothing of it is in flight, known or parked.
pub(crate) async fn emptied(given: &Given) {
    given.until("select count(*) from public.outbox", 0).await;
    at_rest(given).await;
}

pub(crate) async fn at_rest(given: &Given) {
    let left = "select (select count(*) from outlast._outbox_row) + (select count(*) from outlast.lease where room in ('outbox', 'parked'))
        + (select count(*) from outlast._parked where state = 'retry')";
    given.until(left, 0).await;
    given.verified().await;
}

#[tokio::test]
async fn a_row_is_published_whole_and_then_deleted() {
    let given = with_encore().await;
    let broker = Memory::new().with_topic("pings");
    let relay = relaying(&given, &broker, Given::settings());
    let insert = "insert into public.outbox (topic, data, inserted_at)
        values ('pings', '{\"b\": 1, \"a\": \"é\"}', '2026-03-04 05:06:07.123456+00') returning id";
    given
        .sql
        .batch_execute(&format!("begin; {insert}; rollback"))
        .await
        .unwrap();
    given.sql.batch_execute(insert).await.unwrap();
    emptied(&given).await;
    let [message] = &broker.accepted()[..] else {
        panic!("one message: {:?}", broker.accepted());
    };
    let e = &message.envelope;
    assert_eq!((&*message.topic, &*e.name), ("pings", "pings"));
    assert_eq!(
        &message.body[..],
        "{\"a\": \"é\", \"b\": 1}".as_bytes(),
        "as their jsonb is"
    );
    assert_eq!(e.subject.as_deref(), Some("pings"));
    let source = format!(
        "{}/public.outbox",
        given.count_text("select current_database()").await
    );
    assert_eq!(e.source.as_deref(), Some(&*source));
    assert_eq!((e.key.as_deref(), &*e.tenant, e.version), (None, "", 1));
    let at = humantime(e.emitted_at);
    assert_eq!(at, 1_772_600_767_123_456);
    // Anybody can derive it: no state of ours is in it.
    let id = format!("select outlast._outbox_event_id('{source}', '2', 1772600767123456)::text");
    assert_eq!(e.id.to_string(), given.count_text(&id).await);
    assert!(e.log.is_none() && message.ordering_key.is_none());
    relay.stop().await.unwrap();
}

fn humantime(at: std::time::SystemTime) -> u128 {
    let since = at.duration_since(std::time::UNIX_EPOCH);
    since.expect("after 1970").as_micros()
}

#[tokio::test]
async fn a_row_with_a_lower_id_that_commits_late_is_published_too() {
    let given = with_encore().await;
    let broker = Memory::new().with_topic("pings");
    let _relay = relaying(&given, &broker, Given::settings());
    let late = given.database.connect().await;
    late.batch_execute("begin").await.unwrap();
    write(&late, 1..3).await;
    write(&given.sql, 3..30).await;
    let published = || numbers(&broker).len();
    outlast_testkit::wait_for("what has committed", crate::given::SOON, async || {
        (published() == 27).then_some(())
    })
    .await;
    late.batch_execute("commit").await.unwrap();
    emptied(&given).await;
    assert_eq!(numbers(&broker), (1..30).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_row_whose_confirmation_is_lost_keeps_its_id_and_one_with_an_id_that_comes_again_gets_another()
 {
    let given = with_encore().await;
    let broker = Memory::new().with_topic("pings").without_dedup();
    broker.then(Fault::ConfirmLost).then(Fault::RequestLost);
    let _relay = relaying(&given, &broker, Given::settings());
    write(&given.sql, 1..2).await;
    emptied(&given).await;
    assert!(broker.accepted_count() >= 2, "published twice");
    assert_eq!(ids(&broker, 1).len(), 1, "with one id");
    given
        .sql
        .batch_execute("truncate public.outbox restart identity")
        .await
        .unwrap();
    write(&given.sql, 2..3).await;
    emptied(&given).await;
    assert!(ids(&broker, 1).is_disjoint(&ids(&broker, 2)), "row 1 again");
}

#[tokio::test]
async fn an_outage_parks_a_few_rows_and_leaves_the_others_where_they_are() {
    let given = with_encore().await;
    let broker = Memory::new().with_topic("pings");
    broker.down();
    write(&given.sql, 0..200).await;
    let _relay = relaying(&given, &broker, Given::settings());
    given
        .until(
            "select count(*) from outlast.outage where consumer = 'outbox/shop'",
            1,
        )
        .await;
    let parked = given.count("select count(*) from outlast._parked").await;
    assert!(parked <= 20, "{parked} were parked");
    let charged = given
        .count("select count(*) from outlast._parked where state = 'quarantined'")
        .await;
    assert_eq!(charged, 0);
    broker.up();
    emptied(&given).await;
    assert_eq!(numbers(&broker), (0..200).collect::<Vec<_>>());
    given.until("select count(*) from outlast.outage", 0).await;
}

#[tokio::test]
async fn a_paused_outbox_is_left_alone_and_goes_on_when_it_is_resumed() {
    let given = with_encore().await;
    let broker = Memory::new().with_topic("pings");
    let relay = relaying(&given, &broker, Given::settings());
    relay.registered_as(&given, "outbox/shop").await;
    let pause = "select outlast.pause('outbox/shop', 'we look')";
    given.sql.batch_execute(pause).await.unwrap();
    write(&given.sql, 0..5).await;
    // A claim that is refused is one that has seen the pause.
    let claim = "select state from outlast._outbox_claim((select id from outlast._consumer where name = 'outbox/shop'), 'shop', 10, 1000, 1000, 1000, 0)";
    assert_eq!(given.count_text(claim).await, "paused");
    assert_eq!(given.count("select count(*) from public.outbox").await, 5);
    given
        .sql
        .batch_execute("select outlast.resume('outbox/shop')")
        .await
        .unwrap();
    emptied(&given).await;
    relay.stop().await.unwrap();
}

#[tokio::test]
async fn an_outbox_that_is_changed_or_removed_while_it_is_read_is_served_as_it_is_now() {
    let given = with_encore().await;
    let broker = Memory::new().with_topic("pings").with_topic("x.pings");
    let relay = relaying(&given, &broker, Given::settings());
    write(&given.sql, 0..3).await;
    emptied(&given).await;
    apply(&given, json!({"shop": encore(&json!({"topic": "x.{topic}", "type": "shop.{topic}", "source": "shop"}))})).await;
    let topic =
        "select count(*) from outlast.outbox where topic = 'x.{topic}' and identity = 'shop'";
    assert_eq!(given.count(topic).await, 1);
    tokio::time::timeout(crate::given::SOON, async {
        // Rows that the old one still gets go where it says.
        let mut n = 3;
        while !broker.accepted().iter().any(|m| &*m.topic == "x.pings") {
            write(&given.sql, n..n + 1).await;
            emptied(&given).await;
            n += 1;
        }
    })
    .await
    .expect("it is served as it is now");
    let last = broker.accepted().pop().expect("a message");
    assert_eq!(last.envelope.name, "shop.pings");
    assert_eq!(last.envelope.source.as_deref(), Some("shop"));
    apply(&given, json!({})).await;
    relay.stop().await.unwrap();
    let audit = "select count(*) from outlast._audit where action in ('outbox.set', 'outbox.removed') and about = 'shop'";
    assert_eq!(given.count(audit).await, 3);
}

/// Times that let a test see a lease lapse, and batches of a few rows.
pub(crate) fn few_at_once() -> Settings {
    Settings {
        batch_rows: 20,
        lease: Duration::from_secs(1),
        ..Given::settings()
    }
}

impl Given {
    /// One text of a query.
    pub(crate) async fn count_text(&self, sql: &str) -> String {
        self.sql.query_one(sql, &[]).await.unwrap().get(0)
    }
}
