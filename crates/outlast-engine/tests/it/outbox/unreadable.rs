//! A table that is not there, not as it was said, or not ours to read: told in plain words, and nothing else is held up.

use outlast_testkit::broker::memory::Memory;
use serde_json::json;

use super::{ENCORE, emptied, encore, numbers, relaying, relaying_at, with_outboxes, write};
use crate::given::Given;

async fn told(given: &Given, name: &str, why: &str) {
    let sql = format!(
        "select count(*) from outlast.outage where consumer = 'outbox/{name}' and strpos(reason, '{why}') > 0"
    );
    given.until(&sql, 1).await;
}

#[tokio::test]
async fn a_table_that_is_missing_or_changed_is_told_and_read_again_when_it_is_right() {
    let tables = format!("{ENCORE}; create table public.odd (id bigint primary key, topic text, data int, inserted_at timestamptz);
        create view public.seen as select * from public.outbox; create table public.bare (id int, topic text, data text, inserted_at timestamptz)");
    let given = with_outboxes(
        &tables,
        json!({
            "shop": encore(&json!({})),
            "later": encore(&json!({"table": "later"})),
            "odd": encore(&json!({"table": "odd"})),
            "seen": encore(&json!({"table": "seen"})),
            "bare": encore(&json!({"table": "bare"})),
            "timeless": encore(&json!({"columns": {"id": "id", "topic": "topic", "payload": "nothing"}})),
        }),
    )
    .await;
    let broker = Memory::new().with_topic("pings");
    let _relay = relaying(&given, &broker, Given::settings());
    told(&given, "later", "there is no table public.later").await;
    told(
        &given,
        "odd",
        "column data of table public.odd is integer; columns.payload can be",
    )
    .await;
    told(&given, "seen", "public.seen is no table").await;
    told(&given, "bare", "no unique index on id").await;
    told(&given, "timeless", "has no column nothing").await;
    told(&given, "timeless", "comes again when its sequence is reset").await;
    write(&given.sql, 0..5).await;
    emptied(&given).await;

    given
        .sql
        .batch_execute("create table public.later (like public.outbox including all)")
        .await
        .unwrap();
    given
        .sql
        .batch_execute("insert into public.later values (1, 'pings', '{\"n\": 100}', now())")
        .await
        .unwrap();
    given.until("select count(*) from public.later", 0).await;
    given
        .until(
            "select count(*) from outlast.outage where consumer = 'outbox/later'",
            0,
        )
        .await;
    // Changed while it is read.
    given
        .sql
        .batch_execute("alter table public.outbox rename column data to body")
        .await
        .unwrap();
    told(&given, "shop", "has no column data").await;
    given
        .sql
        .batch_execute("alter table public.outbox rename column body to data")
        .await
        .unwrap();
    write(&given.sql, 5..10).await;
    emptied(&given).await;
    assert_eq!(numbers(&broker), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 100]);
}

#[tokio::test]
async fn a_login_needs_to_read_and_delete_and_is_told_what_it_lacks() {
    let given = with_outboxes(ENCORE, json!({"shop": encore(&json!({}))})).await;
    let url = given.database.login("in role outlast_engine").await;
    let broker = Memory::new().with_topic("pings");
    let _relay = relaying_at(&url, &broker, Given::settings());
    told(&given, "shop", "grant select on public.outbox to").await;
    told(&given, "shop", "grant delete on public.outbox to").await;
    let (_, login) = url.split_once("user=").unwrap();
    let (login, _) = login.split_once('&').unwrap();
    let grant = format!("grant select, delete on public.outbox to \"{login}\"");
    given.sql.batch_execute(&grant).await.unwrap();
    write(&given.sql, 0..5).await;
    emptied(&given).await;
    let secure = "alter table public.outbox enable row level security";
    given.sql.batch_execute(secure).await.unwrap();
    write(&given.sql, 5..6).await;
    let problems = format!(
        "set role \"{login}\"; select string_agg(p, '; ') from outlast._outbox_problems('shop') p"
    );
    let rows = given.sql.simple_query(&problems).await.unwrap();
    assert!(
        format!("{rows:?}").contains("row level security"),
        "{rows:?}"
    );
    given.sql.batch_execute("reset role").await.unwrap();
}

#[tokio::test]
async fn what_may_be_read_is_decided_by_the_rights_of_the_login_never_by_ours() {
    let tables = "create table public.secret (id uuid primary key, data text); insert into public.secret values (gen_random_uuid(), 'geheim')";
    let secret = encore(
        &json!({"table": "secret", "topic": "pings", "columns": {"id": "id", "payload": "data"}}),
    );
    let given = with_outboxes(tables, json!({"s": secret})).await;
    // Not even whoever owns the schema reads it for us.
    given
        .sql
        .batch_execute("grant all on public.secret to outlast_owner")
        .await
        .unwrap();
    let url = given.database.login("in role outlast_engine").await;
    let (client, _driver) = outlast_postgres::connect::connect(
        &outlast_postgres::connect::Target::parse(&url).unwrap(),
    )
    .await
    .unwrap();
    client
        .batch_execute(
            "select outlast._register_delivered('outbox/s', array['*'], 'outbox', 'secret', 's')",
        )
        .await
        .unwrap();
    let claim = "select * from outlast._outbox_claim((select id from outlast._consumer), 's', 10, 1000, 1000, 5000, 0)";
    let refused = client.batch_execute(claim).await.unwrap_err();
    assert_eq!(
        refused.code().map(|state| state.code()),
        Some("42501"),
        "{refused}"
    );
    let own = "select count(*) from outlast._apply_outboxes($1)";
    for schema in ["outlast", "pg_catalog"] {
        let ours = json!({"x": encore(&json!({"schema": schema, "table": "_event"}))});
        assert!(given.sql.query(own, &[&ours]).await.is_err(), "{schema}");
    }
}
