//! What the broker of a route could never take is refused where it is emitted; everything else is not looked at.

use std::time::UNIX_EPOCH;

use outlast_core::broker::Envelope;
use serde_json::json;
use tokio_postgres::Client;
use uuid::Uuid;

use super::bad::{refused, taken};
use crate::{house::House, sql};

/// A route for `a.*` and one for `z`, whose broker takes this.
async fn limited(client: &Client, ordered: bool, limits: serde_json::Value) {
    let route = |types: &str| json!({"broker": "main", "topic": "t", "types": [types], "ordered": ordered, "attributes": {"team": "payments"}});
    let routes = json!({"some": route("a.*"), "other": route("z")});
    let apply = "select count(*) from outlast._apply_routes($1)";
    sql::one::<i64>(client, apply, &[&routes]).await;
    let known = "select outlast._route_limits('some', 'main', $1)";
    assert!(
        sql::one::<bool>(client, known, &[&limits]).await,
        "it is news"
    );
    assert!(
        !sql::one::<bool>(client, known, &[&limits]).await,
        "it is none"
    );
    let another = "select outlast._route_limits('some', 'another', '{}')";
    assert!(
        !sql::one::<bool>(client, another, &[]).await,
        "of a broker that the route does not have"
    );
}

#[tokio::test]
async fn an_event_that_its_route_could_never_send_is_refused_and_writes_nothing() {
    let house = House::new().await;
    let client = house.connect().await;
    // As Pub/Sub has them, but for the size.
    let limits = json!({"message_bytes": 100_000, "attributes": 100, "name_bytes": 256, "value_bytes": 1024, "key_bytes": 1024});
    limited(&client, true, limits).await;
    let large = format!("\"{}\"", "x".repeat(100_000));
    let fits = format!("\"{}\"", "x".repeat(98_000));
    let long = "ü".repeat(200);
    let tenant = "\u{10000}".repeat(200);
    let key = "k".repeat(400);
    let wide = json!({"a": "ü".repeat(200)}).to_string();
    let named = json!({"ü".repeat(50): ""}).to_string();
    let many: serde_json::Map<_, _> = (0..95).map(|n| (format!("h{n}"), json!(""))).collect();
    let many = json!(many).to_string();
    let few = json!({"region": "Zürich"}).to_string();
    for (what, name, value) in [
        ("a large payload", "payload", &large),
        ("a long key", "key", &long),
        ("a long subject", "subject", &long),
        ("a header with a long value", "headers", &wide),
        ("a header with a long name", "headers", &named),
        ("many headers", "headers", &many),
    ] {
        refused(&client, "OL021", what, &[("type", &"a.b"), (name, value)]).await;
    }
    let both: [super::bad::Argument<'_>; 3] =
        [("type", &"a.b"), ("tenant", &tenant), ("key", &key)];
    refused(&client, "OL021", "a long tenant before a long key", &both).await;
    for (what, kind, name, value) in [
        ("a payload that fits", "a.b", "payload", &fits),
        ("a long key of ASCII", "a.b", "key", &key),
        ("a short header", "a.b", "headers", &few),
        ("a type of no route", "b", "payload", &large),
        (
            "a type of a route that nobody has looked at",
            "z",
            "payload",
            &large,
        ),
    ] {
        taken(&client, what, &[("type", &kind), (name, value)]).await;
    }
}

#[tokio::test]
async fn all_of_one_statement_are_looked_at_and_a_route_with_another_broker_is_asked_anew() {
    let house = House::new().await;
    let client = house.connect().await;
    limited(&client, false, json!({"message_bytes": 50_000})).await;
    let payloads = vec!["{}".to_owned(), format!("\"{}\"", "x".repeat(50_000))];
    let all = "select count(*) from outlast.emit_all('a.b', $1)";
    assert_eq!(sql::state(client.query(all, &[&payloads]).await), "OL021");
    assert_eq!(
        sql::one::<i64>(&client, "select count(*) from outlast.event", &[]).await,
        0
    );
    let keys = vec!["k".repeat(400), "k".into()];
    let keyed = "select count(*) from outlast.emit_all('a.b', array['1', '2'], $1)";
    assert_eq!(sql::one::<i64>(&client, keyed, &[&keys]).await, 2);
    let moved = json!({"some": {"broker": "next", "topic": "t", "types": ["a.*"], "ordered": false, "attributes": {}}});
    sql::one::<i64>(
        &client,
        "select count(*) from outlast._apply_routes($1)",
        &[&moved],
    )
    .await;
    assert_eq!(sql::one::<i64>(&client, all, &[&payloads]).await, 2);
}

#[tokio::test]
async fn a_text_counts_as_long_as_the_envelope_writes_it() {
    let house = House::new().await;
    let client = house.connect().await;
    for text in [
        "",
        "plain",
        "a b",
        "\"%\"",
        "Zürich\t\n",
        "\u{feff}😀~!\u{7f}\\|^][",
    ] {
        let mut envelope = Envelope::new(Uuid::nil(), "a", UNIX_EPOCH);
        envelope.key = Some(text.into());
        let attributes = envelope.to_attributes();
        let key = attributes.iter().find(|(name, _)| name == "outlast-key");
        let sent = key.map(|(_, value)| value.len()).expect("it has a key");
        let counted: i32 = sql::one(&client, "select outlast._attribute_bytes($1)", &[&text]).await;
        assert_eq!(usize::try_from(counted), Ok(sent), "{text:?}");
    }
}
