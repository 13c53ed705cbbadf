//! Tables of every kind: types of ids and payloads, times without a zone, names that must be quoted, rows that are marked.

use outlast_testkit::broker::memory::Memory;
use serde_json::json;

use super::{Given, at_rest, encore, relaying, with_outboxes};

const TABLES: &str = r#"
create table public.a (id int primary key, data bytea, at timestamp not null);
create table public.b (id uuid primary key, data json);
create table public.c (id varchar(40) primary key, data text, at timestamptz);
create schema "Their ""Outbox""";
create table "Their ""Outbox""".outboxevent (id uuid primary key, aggregatetype varchar(255), aggregateid varchar(255), type varchar(255), payload jsonb);
create table public."d$1%s; drop table a" (id bigint, data jsonb, "at%I" timestamptz not null, published_at timestamptz, other text,
  primary key (id, "at%I")) partition by range (id);
create table public.d1 partition of public."d$1%s; drop table a" for values from (0) to (100);
create table public.d2 partition of public."d$1%s; drop table a" for values from (100) to (200);
create table public.e (id smallint primary key, data text, at timestamptz not null, sent boolean);

insert into public.a values (1, '\x00ff', 'infinity'), (2, null, '0001-01-01'), (3, '\x7b7d', '2026-01-01 00:00:00');
insert into public.b values ('00000000-0000-0000-0000-000000000007', '{"z" : 1,  "a": 2}');
insert into public.c values ('x', 'plain', null);
insert into "Their ""Outbox""".outboxevent values ('00000000-0000-0000-0000-000000000008', 'Order', '42', 'OrderCreated', '{"n": 1}');
insert into public."d$1%s; drop table a" values (1, '{"n": 1}', now(), null, 'kept'), (150, '{"n": 2}', now(), null, 'kept'), (2, '{"n": 3}', now(), now(), 'done before');
insert into public.e values (1, 'one', now(), null), (2, 'two', now(), false), (3, 'three', now(), true);
"#;

#[tokio::test]
async fn every_kind_of_table_is_read_as_it_is() {
    let of = |table: &str, columns: serde_json::Value| {
        encore(&json!({"table": table, "topic": table, "type": "t", "columns": columns}))
    };
    let given = with_outboxes(
        TABLES,
        json!({
            "a": of("a", json!({"id": "id", "payload": "data", "time": "at"})),
            "b": of("b", json!({"id": "id", "payload": "data"})),
            "c": of("c", json!({"id": "id", "payload": "data", "time": "at"})),
            "debezium": encore(&json!({"schema": "Their \"Outbox\"", "table": "outboxevent", "topic": "outbox.event.{topic}",
                "columns": {"id": "id", "topic": "aggregatetype", "key": "aggregateid", "type": "type", "payload": "payload"}})),
            "d": encore(&json!({"table": "d$1%s; drop table a", "topic": "d", "type": "t",
                "columns": {"id": "id", "payload": "data", "time": "at%I", "mark": "published_at"}})),
            "e": encore(&json!({"table": "e", "topic": "e", "type": "t", "content_type": "text/plain",
                "columns": {"id": "id", "payload": "data", "time": "at", "mark": "sent"}})),
        }),
    )
    .await;
    let problems = "select count(*) from outlast._outbox o cross join lateral outlast._outbox_problems(o.name) p";
    assert_eq!(given.count(problems).await, 0);
    let mut broker = Memory::new();
    for topic in ["a", "b", "c", "outbox.event.Order", "d", "e"] {
        broker = broker.with_topic(topic);
    }
    let relay = relaying(&given, &broker, Given::settings());
    let left = r#"select (select count(*) from public.a) + (select count(*) from public.b) + (select count(*) from public.c)
        + (select count(*) from "Their ""Outbox""".outboxevent)
        + (select count(*) from public."d$1%s; drop table a" where published_at is null) + (select count(*) from public.e where sent is not true)"#;
    given.until(left, 0).await;
    at_rest(&given).await;
    relay.stop().await.unwrap();

    let mut seen: Vec<(String, String)> = broker
        .accepted()
        .iter()
        .map(|m| {
            (
                m.topic.to_string(),
                String::from_utf8_lossy(&m.body).into_owned(),
            )
        })
        .collect();
    seen.sort();
    let expected = [
        ("a", ""),
        ("a", "\0\u{fffd}"),
        ("a", "{}"),
        ("b", "{\"z\" : 1,  \"a\": 2}"),
        ("c", "plain"),
        ("d", "{\"n\": 1}"),
        ("d", "{\"n\": 2}"),
        ("e", "one"),
        ("e", "two"),
        ("outbox.event.Order", "{\"n\": 1}"),
    ];
    assert_eq!(
        seen,
        expected.map(|(topic, body)| (topic.to_owned(), body.to_owned()))
    );
    let all = broker.accepted();
    let debezium = all.iter().find(|m| m.topic.starts_with("outbox")).unwrap();
    let e = &debezium.envelope;
    assert_eq!((&*e.name, e.key.as_deref()), ("ordercreated", Some("42")));
    let plain = all.iter().find(|m| &*m.topic == "e").unwrap();
    assert_eq!(plain.envelope.content_type, "text/plain");
    // What is marked is only marked.
    let kept = r#"select count(*) from public."d$1%s; drop table a" where other = 'kept' and published_at > "at%I""#;
    assert_eq!(given.count(kept).await, 2);
    assert_eq!(
        given
            .count("select count(*) from public.e where sent")
            .await,
        3
    );
}

#[tokio::test]
async fn an_id_means_the_same_in_every_time_zone_and_whatever_its_width() {
    let given = with_outboxes(
        "create table public.outbox (id int primary key, topic text, data text, inserted_at timestamp)",
        json!({"shop": encore(&json!({}))}),
    )
    .await;
    let register =
        "select outlast._register_delivered('outbox/shop', array['*'], 'outbox', 'outbox', 'shop')";
    given.sql.batch_execute(register).await.unwrap();
    let insert = "insert into public.outbox values (7, 'pings', '{}', '2026-07-01 12:00:00')";
    given.sql.batch_execute(insert).await.unwrap();
    let mut ids = Vec::new();
    for settings in [
        "set timezone = 'UTC'",
        "set timezone = 'Asia/Tokyo'; set datestyle = 'German'; set default_transaction_isolation = 'read committed'",
        "alter table public.outbox alter column id type bigint; set timezone = 'America/New_York'",
    ] {
        given.sql.batch_execute(settings).await.unwrap();
        let claim = "select token::text from outlast._outbox_claim((select id from outlast._consumer), 'shop', 10, 1000, 1000, 5000, 0)";
        let token = given.count_text(claim).await;
        let read = format!(
            "select event_id::text || ' ' || extract(epoch from emitted_at) from outlast._outbox_read('shop', '{token}')"
        );
        ids.push(given.count_text(&read).await);
        let end = format!("select outlast._outbox_end('{token}', '{{}}')");
        given.sql.batch_execute(&end).await.unwrap();
    }
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}
