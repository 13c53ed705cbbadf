//! Payloads are opaque: what came in goes out, byte for byte.

use crate::house::House;
use crate::sql::{self, Claim};

#[tokio::test]
async fn odd_but_honest_json_is_delivered_byte_for_byte() {
    let house = House::new().await;
    let client = house.connect().await;
    let consumer = sql::register(&client, "c", &["a"], "now", None).await;
    let large = format!("{{\"x\":\"{}\"}}", "ä🙂".repeat(30_000));
    let odd = [
        "1e400",
        "-0.0",
        "0.10",
        "9007199254740993",
        "3889108265204450030",
        "18446744073709551616",
        "123456789012345678901234567890.1234567890",
        r#"{"b":1,"a":2,"b":3}"#,
        " \t\r\n{ \"a\" : [ 1 , 2 ] } \n",
        r#""\ud83d\ude42 \ud800 \u00e4 ä \/ \\ \" \\u0000""#,
        r#"{"":null,"\n":true}"#,
        "\"\u{2028}\u{feff}\u{202e}\"",
        "\"' ; -- $1 $$ \\\\ %s\"",
        "null",
        &large,
    ];
    for json in odd {
        let sql =
            "select outlast.emit(type => 'a', payload => $1::text, dedup => $1::text, key => 'k')";
        // A dedup key has a limit, so the large one is told by another.
        let dedup = if json.len() > 500 {
            "select outlast.emit(type => 'a', payload => $1::text, key => 'k')"
        } else {
            sql
        };
        client
            .execute(dedup, &[&json])
            .await
            .unwrap_or_else(|error| panic!("{json:.60}: {error:?}"));
    }
    let bytes: Vec<u8> = (0..=255).collect();
    client
        .execute("select outlast.emit(type => 'a', bytes => $1, content_type => 'application/octet-stream')", &[&bytes])
        .await
        .expect("emits bytes");

    let got = Claim::of(consumer).next(&client).await.expect("claims");
    let expected: Vec<&[u8]> = odd
        .iter()
        .map(|json| json.as_bytes())
        .chain([&bytes[..]])
        .collect();
    assert_eq!(got.len(), expected.len());
    for (event, bytes) in got.iter().zip(&expected) {
        assert_eq!(event.payload, *bytes);
    }

    // The same on the other roads: parked and claimed again, and through the public view.
    for event in &got {
        sql::fail(&client, event.token, event.id, "retry")
            .await
            .expect("fails");
    }
    sql::run(
        &client,
        "update outlast._parked set next_at = outlast.clock()",
    )
    .await;
    let mut again = Vec::new();
    while again.len() < got.len() {
        let events = sql::claim_parked(&client, consumer, 100)
            .await
            .expect("claims");
        assert!(!events.is_empty(), "all of them are due");
        again.extend(events);
    }
    again.sort_by_key(|event| event.log_id);
    for (event, bytes) in again.iter().zip(&expected) {
        assert_eq!(event.payload, *bytes);
        let seen: Vec<u8> = sql::one(
            &client,
            "select payload from outlast.event where id = $1",
            &[&event.id],
        )
        .await;
        assert_eq!(seen, *bytes);
    }
}

#[tokio::test]
async fn every_word_of_the_envelope_is_delivered_as_it_was_said() {
    let house = House::new().await;
    let client = house.connect().await;
    let consumer = sql::register(&client, "c", &["a"], "now", None).await;
    let said = "select outlast.emit(type => 'a', payload => '{}'::text, key => E'k\\n\"''', tenant => 'tä', version => 7,
        source => '/s', subject => 'sub', aggregate_version => 9223372036854775807, actor => 'me',
        correlation_id => '00000000-0000-0000-0000-000000000001', causation_id => '00000000-0000-0000-0000-000000000002',
        traceparent => '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01', headers => '{\"h\":\"v\"}', codec_key => 'key1', strict_key => true)";
    client.execute(said, &[]).await.expect("emits");
    let claimed: String = sql::one(
        &client,
        "select (to_jsonb(c) - 'token' - 'event_id' - 'log_id' - 'emitted_at' - 'lane')::text from outlast._claim($1, 1, 1000, 1000, 1000, 1) c",
        &[&consumer],
    )
    .await;
    let expected: bool = sql::one(
        &client,
        "select $1::text::jsonb = '{\"type\": \"a\", \"key\": \"k\\n\\\"''\", \"tenant\": \"tä\", \"schema_version\": 7, \"source\": \"/s\",
          \"subject\": \"sub\", \"aggregate_version\": 9223372036854775807, \"actor\": \"me\",
          \"correlation_id\": \"00000000-0000-0000-0000-000000000001\", \"causation_id\": \"00000000-0000-0000-0000-000000000002\",
           \"traceparent\": \"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\", \"headers\": {\"h\": \"v\"}, \"codec_key\": \"key1\", \"content_type\": \"application/json\",
           \"payload\": \"\\\\x7b7d\", \"attempt\": 1, \"reclaims\": 0, \"key_seq\": 1}'::jsonb",
        &[&claimed],
    )
    .await;
    assert!(expected, "{claimed}");
}

#[tokio::test]
async fn ciphertext_is_not_looked_at_and_its_digest_says_what_is_the_same() {
    let house = House::new().await;
    let client = house.connect().await;
    let emit = async |bytes: &str, digest: &str| {
        let sql = format!(
            "select new::text || ' ' || conflict::text from outlast.emit('a', bytes => '{bytes}', codec_key => 'k', dedup => 'd', digest => '{digest}')"
        );
        client
            .query_one(&sql, &[])
            .await
            .map(|row| row.get::<_, String>(0))
    };
    let (one, other) = (
        "\\x00112233445566778899aabbccddeeff",
        "\\xff112233445566778899aabbccddeeff",
    );
    assert_eq!(emit("\\xfe00", one).await.unwrap(), "true false");
    assert_eq!(emit("\\xfd01", one).await.unwrap(), "false false");
    assert_eq!(emit("\\xfe00", other).await.unwrap(), "false true");
    let refused = emit("\\xfe00", "\\x00").await.unwrap_err();
    assert_eq!(refused.code().map(|code| code.code()), Some("OL005"));
}

#[tokio::test]
async fn what_is_no_traceparent_is_dropped_and_the_database_judges_as_the_program_does() {
    let house = House::new().await;
    let client = house.connect().await;
    let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let mut samples = vec![
        String::new(),
        good.to_uppercase(),
        good.replacen("00", "ff", 1),
        good.replacen("00", "cc", 1),
        good.replacen("00", "cc", 1) + "-later",
        good.replacen("00", "cc", 1) + "-",
        good.replacen("00", "cc", 1) + "later",
        good.to_owned() + "-more",
        good.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
        good.replace("00f067aa0ba902b7", &"0".repeat(16)),
        good.replace('4', "é"),
    ];
    // One character less, more, or another one, at each place.
    for at in 0..good.len() {
        let (before, after) = good.split_at(at);
        samples.extend([
            format!("{before}{}", &after[1..]),
            format!("{before}a{after}"),
            format!("{before}-{}", &after[1..]),
        ]);
    }
    for sample in &samples {
        let kept: Option<String> =
            sql::one(&client, "select outlast._traceparent($1)", &[sample]).await;
        let valid = outlast_core::trace::is_traceparent(sample);
        assert_eq!(
            kept.as_deref(),
            valid.then_some(sample.as_str()),
            "{sample}"
        );
    }
    let emit = "select outlast.emit('a', '{}'::text, traceparent => 'none')";
    client.execute(emit, &[]).await.expect("emits all the same");
    let dropped: bool = sql::one(
        &client,
        "select traceparent is null from outlast.event",
        &[],
    )
    .await;
    assert!(dropped);
}
