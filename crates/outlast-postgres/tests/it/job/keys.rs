//! What a key stands for: which contents are the same, however they are written.

use super::Shop;
use crate::sql::one;

/// Written differently, said the same.
const SAME: [(&str, &str); 12] = [
    (r#"{"a":1,"b":"x"}"#, r#"{ "b" : "x", "a" : 1 }"#),
    (r#"{"a":1}"#, r#"{"a":1,"b":null}"#),
    (r#"{"a":{"b":null}}"#, r#"{"a":{}}"#),
    (r#"{"a":1}"#, r#"{"a":1.0}"#),
    (r#"{"a":[1.50,-0.0,100]}"#, r#"{"a":[1.5,0,1e2]}"#),
    (r#"{"a":12.340}"#, r#"{"a":1234e-2}"#),
    (r#"{"a":"\u0041"}"#, r#"{"a":"A"}"#),
    (r#"{"a":"x/y"}"#, r#"{"a":"x\/y"}"#),
    (r#"[1.10]"#, r#"[1.1]"#),
    (r#"7.00"#, r#"7"#),
    (r#"{"a\"":1.0}"#, r#"{"a\"":1}"#),
    (r#"9007199254740993"#, r#"9007199254740993.0"#),
];

/// Alike, and not the same.
const OTHER: [(&str, &str); 13] = [
    (r#"{"a":1}"#, r#"{"a":2}"#),
    (r#"{"a":"1.0"}"#, r#"{"a":"1"}"#),
    (r#"{"a":"x 1.0"}"#, r#"{"a":"x 1"}"#),
    (r#"{"a":"\" 1.0"}"#, r#"{"a":"\" 1"}"#),
    (r#"{"a 1.0":1}"#, r#"{"a 1":1}"#),
    (r#"{"a":[null]}"#, r#"{"a":[]}"#),
    (r#"{"a":100}"#, r#"{"a":10}"#),
    (r#"{"a":10.0}"#, r#"{"a":1}"#),
    (r#"{"a":1.01}"#, r#"{"a":1.1}"#),
    (r#"{"a":0.1}"#, r#"{"a":"0.1"}"#),
    (r#"[1,2]"#, r#"[2,1]"#),
    (r#"9007199254740993"#, r#"9007199254740992"#),
    (r#"{"a":true}"#, r#"{"a":"true"}"#),
];

#[tokio::test]
async fn the_same_content_in_another_spelling_has_the_same_digest_and_no_other_has() {
    let shop = Shop::new().await;
    let same = async |a: &str, b: &str| -> bool {
        let sql = "select outlast._job_digest('mail', 'application/json', convert_to($1, 'UTF8'))
                        = outlast._job_digest('mail', 'application/json', convert_to($2, 'UTF8'))";
        one(&shop.client, sql, &[&a, &b]).await
    };
    for (a, b) in SAME {
        assert!(same(a, b).await, "{a} and {b}");
    }
    for (a, b) in OTHER {
        assert!(!same(a, b).await, "{a} and {b}");
    }
    // Of everything but JSON it is the bytes; the name and the kind of content belong to it.
    for (a, b) in [
        ("'mail', 'text/plain', 'x'", "'mail', 'text/plain', 'x '"),
        ("'mail', 'text/plain', 'x'", "'mail', 'text/html', 'x'"),
        ("'mail', 'text/plain', 'x'", "'mai', 'text/plain', 'x'"),
        (
            "'mail', 'application/json', '1'",
            "'mai', 'application/json', '1'",
        ),
        (
            "'mail', 'application/x+json', '{\"a\":1}'",
            "'mail', 'application/x+json', '{ \"a\":1}'",
        ),
    ] {
        let sql = format!("select outlast._job_digest({a}) = outlast._job_digest({b})");
        assert!(!one::<bool>(&shop.client, &sql, &[]).await, "{a} and {b}");
    }
}

/// JSON by its grammar, which the server's own types cannot hold, or only at a price.
#[tokio::test]
async fn json_that_the_server_cannot_read_is_known_by_its_bytes() {
    let shop = Shop::new().await;
    for payload in [
        r#"{"a":"\ud800"}"#.to_owned(),
        "1e400000".to_owned(),
        format!("{{\"a\":1{}}}", "0".repeat(200_000)),
        // Each would be written out in 131,072 digits.
        format!("[{}1]", "1e131071,".repeat(20_000)),
    ] {
        for (nth, first) in [(1, true), (2, false)] {
            let sql = "select new and not conflict from outlast.enqueue('mail', $1, key => left(trim($1), 20))";
            let new: bool = one(&shop.client, sql, &[&payload]).await;
            assert_eq!(new, first, "{nth} of {:.20}", payload);
        }
        let other = format!("{payload} ");
        let sql = "select conflict from outlast.enqueue('mail', $1, key => left(trim($1), 20))";
        assert!(
            one::<bool>(&shop.client, sql, &[&other]).await,
            "{:.20}",
            payload
        );
    }
}
