//! Payloads that are refused: too large, no JSON, too deep.

use super::bad::{refused, taken};
use crate::house::House;
use crate::sql;

#[tokio::test]
async fn a_payload_over_the_limit_is_refused_by_its_bytes() {
    let house = House::new().await;
    let client = house.connect().await;
    let text = |bytes: usize| format!("\"{}\"", "ä".repeat(bytes / 2 - 1));
    assert_eq!(text(262_144).len(), 262_144);
    taken(&client, "the limit", &[("payload", &text(262_144))]).await;
    refused(
        &client,
        "OL006",
        "over the limit",
        &[("payload", &text(262_146))],
    )
    .await;
    let bytes = vec![0u8; 262_145];
    refused(
        &client,
        "OL006",
        "bytes over the limit",
        &[
            ("bytes", &bytes),
            ("content_type", &"application/octet-stream"),
        ],
    )
    .await;
    refused(
        &client,
        "OL005",
        "no payload",
        &[("payload", &None::<&str>)],
    )
    .await;
    refused(
        &client,
        "OL005",
        "two payloads",
        &[("payload", &"1"), ("bytes", &&b"1"[..])],
    )
    .await;
}

#[tokio::test]
async fn what_is_no_json_is_refused() {
    let house = House::new().await;
    let client = house.connect().await;
    for json in [
        "",
        " ",
        "{",
        "}",
        "[1,]",
        "{\"a\":}",
        "{'a':1}",
        "nul",
        "NaN",
        "Infinity",
        "1 2",
        "01",
        "+1",
        "\"a",
        "\"\\x\"",
        "\u{feff}1",
        "/**/1",
    ] {
        refused(
            &client,
            "OL007",
            &format!("{json:?}"),
            &[("payload", &json)],
        )
        .await;
    }
    for json in [
        r#""\u0000""#,
        r#"{"a\u0000":1}"#,
        r#""\\\u0000""#,
        r#"["\n\u0000"]"#,
    ] {
        refused(&client, "OL007", json, &[("payload", &json)]).await;
    }
    for json in [r#""\\u0000""#, r#""\\\\u0000""#, r#""u0000""#] {
        taken(&client, json, &[("payload", &json)]).await;
    }
    let raw: [&[u8]; 7] = [
        b"\"\xff\"",
        b"\"\x00\"",
        b"\x00",
        b"\"\xed\xa0\x80\"",
        b"\"\xc0\x80\"",
        b"\"\xf4\x90\x80\x80\"",
        b"\"\xe2\x82",
    ];
    for bytes in raw {
        refused(
            &client,
            "OL007",
            &format!("{bytes:02x?}"),
            &[("bytes", &bytes)],
        )
        .await;
    }
}

#[tokio::test]
async fn json_that_is_too_deep_is_refused_soon() {
    let house = House::new().await;
    let client = house.connect().await;
    // A refusal must not cost more than its bytes: nobody may make the server busy with one payload.
    sql::run(&client, "set statement_timeout = '5s'").await;
    let nested = |open: &str, core: &str, close: &str, depth: usize| {
        format!("{}{core}{}", open.repeat(depth), close.repeat(depth))
    };
    let deep = [
        nested("[", "", "]", 101),
        nested("[", "", "]", 10_000),
        nested("[", "", "]", 131_072),
        nested("{\"a\":", "1", "}", 101),
        nested("{\"a\":", "1", "}", 10_000),
        nested("[{\"a\":", "1", "}]", 10_000),
        "[".repeat(262_144),
        "{\"a\":".repeat(50_000),
        format!("{}\"", "[\"\\\"".repeat(50_000)),
    ];
    for json in &deep {
        refused(
            &client,
            "OL007",
            &format!("{:.20}… of {}", json, json.len()),
            &[("payload", json)],
        )
        .await;
    }
    let fine = [
        nested("[", "", "]", 100),
        nested("{\"a\":", "1", "}", 100),
        format!("[{}]", vec!["[]"; 50_000].join(",")),
        format!("\"{}\"", "[{".repeat(100_000)),
        format!("\"{}\"", "\\\\".repeat(120_000)),
        format!("[\"{}\"]", "\\\"[".repeat(80_000)),
    ];
    for json in &fine {
        taken(
            &client,
            &format!("{:.20}… of {}", json, json.len()),
            &[("payload", json)],
        )
        .await;
    }
}
