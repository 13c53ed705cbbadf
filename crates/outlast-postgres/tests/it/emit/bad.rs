//! Bad input as any language may send it: a typed answer, and nothing written.

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error};
use uuid::Uuid;

use crate::house::House;
use crate::sql;

/// One argument of `emit` and what it is; all others are good.
pub(super) type Argument<'a> = (&'a str, &'a (dyn ToSql + Sync));

async fn emit(client: &Client, arguments: &[Argument<'_>]) -> Result<(), Error> {
    let mut names = String::new();
    let mut values: Vec<&(dyn ToSql + Sync)> = Vec::new();
    let has = |name: &str| arguments.iter().any(|(n, _)| *n == name);
    if !has("type") {
        names.push_str("type => 'good', ");
    }
    if !has("payload") && !has("bytes") {
        names.push_str("payload => '{}'::text, ");
    }
    for (n, (name, value)) in arguments.iter().enumerate() {
        let kind = match *name {
            "bytes" => "bytea",
            "version" => "int",
            "event_id" => "uuid",
            _ => "text",
        };
        let cast = if *name == "headers" { "::jsonb" } else { "" };
        names.push_str(&format!("{name} => ${}::{kind}{cast}, ", n + 1));
        values.push(*value);
    }
    let sql = format!("select outlast.emit({})", names.trim_end_matches(", "));
    client.execute(&sql, &values).await.map(|_| ())
}

/// Refused with this state; the transaction goes on from a savepoint and holds nothing of it.
pub(super) async fn refused(client: &Client, state: &str, what: &str, arguments: &[Argument<'_>]) {
    sql::run(client, "begin; savepoint s").await;
    let answer = emit(client, arguments).await;
    match answer {
        Ok(()) => panic!("{what}: must be refused with {state}"),
        Err(error) => assert_eq!(
            error.code().map(|code| code.code()),
            Some(state),
            "{what}: {error:?}"
        ),
    }
    sql::run(client, "rollback to s; commit").await;
    let rows: i64 = sql::one(
        client,
        "select (select count(*) from outlast._event) + (select count(*) from outlast._dedup)",
        &[],
    )
    .await;
    assert_eq!(rows, 0, "{what}: something was written");
}

pub(super) async fn taken(client: &Client, what: &str, arguments: &[Argument<'_>]) {
    sql::run(client, "begin").await;
    if let Err(error) = emit(client, arguments).await {
        panic!("{what}: {error:?}");
    }
    sql::run(client, "rollback").await;
}

#[tokio::test]
async fn hostile_names_are_refused() {
    let house = House::new().await;
    let client = house.connect().await;
    let (long, longest) = ("a".repeat(101), "a".repeat(100));
    let none: Option<&str> = None;
    for name in [
        "",
        "A",
        "a b",
        "a\n",
        "\na",
        "a\nb",
        "a'b",
        "a\"b",
        "a;b",
        "ä",
        "a\u{202e}",
        "a\\",
        "a%",
        &long,
    ] {
        refused(
            &client,
            "OL005",
            &format!("type {name:?}"),
            &[("type", &name)],
        )
        .await;
    }
    refused(&client, "OL005", "no type", &[("type", &none)]).await;
    for name in [longest.as_str(), "a.b_c/d-9"] {
        taken(&client, name, &[("type", &name)]).await;
    }
    let (long, longest) = ("ä".repeat(201), "ä".repeat(200));
    for tenant in ["a\nb", "\u{1b}[31m", "\u{7f}", &long] {
        refused(
            &client,
            "OL005",
            &format!("tenant {tenant:?}"),
            &[("tenant", &tenant)],
        )
        .await;
    }
    refused(&client, "OL005", "no tenant", &[("tenant", &none)]).await;
    for tenant in ["", "'; drop schema outlast cascade; --", &longest] {
        taken(&client, tenant, &[("tenant", &tenant)]).await;
    }
    let (long, longest) = ("ä".repeat(501), "ä".repeat(500));
    for text in [
        "key",
        "dedup",
        "source",
        "subject",
        "actor",
        "traceparent",
        "codec_key",
    ] {
        refused(&client, "OL005", &format!("long {text}"), &[(text, &long)]).await;
        for fine in ["", "a\nb", "'\"; --", "🙂", &longest] {
            taken(&client, text, &[(text, &fine)]).await;
        }
    }
    let headers = format!("{{\"a\":\"{}\"}}", "x".repeat(16 * 1024));
    refused(&client, "OL005", "large headers", &[("headers", &headers)]).await;
    taken(&client, "headers", &[("headers", &"{\"a\":\"b\"}")]).await;
    for version in [Some(0), Some(-1), Some(32768), None] {
        refused(
            &client,
            "OL005",
            &format!("version {version:?}"),
            &[("version", &version)],
        )
        .await;
    }
    taken(&client, "version", &[("version", &32767)]).await;
}

#[tokio::test]
async fn content_types_are_known_or_refused() {
    let house = House::new().await;
    let client = house.connect().await;
    let long = format!("text/{}", "x".repeat(81));
    for kind in [
        "",
        "json",
        "/",
        "text/",
        "/json",
        "Text/Plain",
        "text/plain\n",
        "text/plain; ä",
        "text/plain; a\nb",
        "a/b/c",
        &long,
    ] {
        refused(
            &client,
            "OL005",
            &format!("content type {kind:?}"),
            &[("content_type", &kind)],
        )
        .await;
    }
    let not_json: &[u8] = b"\x00\xff{";
    for kind in [
        "application/json",
        "application/json; charset=utf-8",
        "application/json ;a=b",
        "application/cloudevents+json",
    ] {
        refused(
            &client,
            "OL007",
            kind,
            &[("bytes", &not_json), ("content_type", &kind)],
        )
        .await;
    }
    // Not JSON, although the name begins like it.
    for kind in [
        "application/json-seq",
        "application/jsonl",
        "application/x-ndjson",
        "text/plain; a=application/json",
        "application/octet-stream",
    ] {
        taken(
            &client,
            kind,
            &[("bytes", &not_json), ("content_type", &kind)],
        )
        .await;
    }
}

#[tokio::test]
async fn an_own_id_is_a_v7_of_the_last_days() {
    let house = House::new().await;
    let client = house.connect().await;
    let minted = |hours: i64| {
        let ms = (std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .expect("after 1970")
            .as_millis() as i64)
            + hours * 3_600_000;
        Uuid::from_u128(u128::try_from(ms).expect("after 1970") << 80 | 7 << 76 | 2 << 62 | 1)
    };
    let wrong_variant = Uuid::from_u128(minted(0).as_u128() & !(3 << 62));
    for id in [
        Uuid::nil(),
        Uuid::max(),
        Uuid::new_v4(),
        wrong_variant,
        minted(-7 * 24 - 1),
        minted(13),
    ] {
        refused(&client, "OL008", &id.to_string(), &[("event_id", &id)]).await;
    }
    for id in [minted(0), minted(-7 * 24 + 1), minted(11)] {
        taken(&client, &id.to_string(), &[("event_id", &id)]).await;
    }
}

#[tokio::test]
async fn one_bad_among_many_writes_none() {
    let house = House::new().await;
    let client = house.connect().await;
    let bad = [
        (
            "OL007",
            "select outlast.emit_all('a', array['1', '{']::text[])",
        ),
        (
            "OL005",
            "select outlast.emit_all('a', array['1', null]::text[])",
        ),
        ("OL005", "select outlast.emit_all('a', null)"),
        ("OL005", "select outlast.emit_all('A', array['1'])"),
        (
            "OL005",
            "select outlast.emit_all('a', array['1', '2'], array['k'])",
        ),
        (
            "OL005",
            "select outlast.emit_all('a', array['1'], array[repeat('k', 501)])",
        ),
        (
            "OL005",
            "select outlast.emit_all('a', array['1'], version => 0)",
        ),
        (
            "OL005",
            "select outlast.emit_all('a', array['1'], actor => repeat('x', 501))",
        ),
        (
            "OL006",
            "select outlast.emit_all('a', array['1', '\"' || repeat('x', 262144) || '\"'])",
        ),
        (
            "OL007",
            "select outlast.emit_all('a', array['1', repeat('[', 10000)])",
        ),
    ];
    for (state, sql) in bad {
        assert_eq!(sql::state(client.execute(sql, &[]).await), state, "{sql}");
    }
    let events: i64 = sql::one(&client, "select count(*) from outlast._event", &[]).await;
    assert_eq!(events, 0);
    let rows = client
        .query("select * from outlast.emit_all('a', array[]::text[])", &[])
        .await
        .expect("nothing is nothing");
    assert!(rows.is_empty());
}

#[tokio::test]
async fn a_transaction_that_may_not_write_does_not_emit() {
    let house = House::new().await;
    let client = house.connect().await;
    sql::run(&client, "begin read only").await;
    assert_eq!(sql::state(emit(&client, &[]).await), "25006");
    sql::run(&client, "rollback").await;
    assert_eq!(
        sql::state(
            client
                .execute(
                    "select outlast.emit(type => 'a', payload => '1', nonsense => 'x')",
                    &[]
                )
                .await
        ),
        "42883"
    );
}
