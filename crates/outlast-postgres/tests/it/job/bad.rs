//! What `enqueue` refuses: each with its code, and nothing is written.

use super::Shop;
use crate::sql::{run, state};

const GOOD: &str = "name => 'mail', payload => '{}'";

/// Nothing of a job, and no key, and no number drawn.
const WRITTEN: &str =
    "select (select count(*) from outlast._job) + (select count(*) from outlast._job_key)
    + (select count(*) from outlast._job_ready) + (select count(*) from outlast._job_later)
    + coalesce(pg_sequence_last_value('outlast._event_id'), 0)";

const REFUSED: [(&str, &str); 38] = [
    ("name => null, payload => '{}'", "OL005"),
    ("name => '', payload => '{}'", "OL005"),
    ("name => 'Mail', payload => '{}'", "OL005"),
    ("name => 'ma il', payload => '{}'", "OL005"),
    ("name => repeat('a', 101), payload => '{}'", "OL005"),
    ("name => 'mail'", "OL005"),
    ("name => 'mail', payload => '{}', bytes => '{}'", "OL005"),
    ("name => 'mail', payload => ''", "OL007"),
    ("name => 'mail', payload => '{'", "OL007"),
    ("name => 'mail', payload => '{\"a\":\"\\u0000\"}'", "OL007"),
    (
        "name => 'mail', payload => repeat('[', 101) || repeat(']', 101)",
        "OL007",
    ),
    ("name => 'mail', bytes => '\\xff'", "OL007"),
    (
        "name => 'mail', payload => '\"' || repeat('a', 262143) || '\"'",
        "OL006",
    ),
    ("tenant => null", "OL005"),
    ("tenant => repeat('a', 201)", "OL005"),
    ("tenant => e'a\\tb'", "OL005"),
    ("key => ''", "OL005"),
    ("key => repeat('a', 501)", "OL005"),
    ("priority => 101", "OL005"),
    ("priority => -101", "OL005"),
    ("priority => null", "OL005"),
    ("version => 0", "OL005"),
    ("version => 32768", "OL005"),
    ("version => null", "OL005"),
    ("attempts => 0", "OL005"),
    ("attempts => 1001", "OL005"),
    ("after_ms => -1", "OL005"),
    ("after_ms => 9223372036854775807", "OL005"),
    ("after_ms => 5, at => '2026-01-01'", "OL005"),
    ("at => 'infinity'", "OL005"),
    ("at => '-infinity'", "OL005"),
    ("at => '9999-01-01'", "OL005"),
    ("lifetime_ms => -1", "OL005"),
    ("lifetime_ms => 9223372036854775807", "OL005"),
    ("content_type => 'json'", "OL005"),
    ("actor => repeat('a', 501)", "OL005"),
    ("key => 'k', digest => '\\x00'", "OL005"),
    (
        "key => 'k', digest => decode(repeat('00', 65), 'hex')",
        "OL005",
    ),
];

#[tokio::test]
async fn bad_input_is_refused_with_its_code_and_nothing_is_written() {
    let shop = Shop::new().await;
    for (arguments, code) in REFUSED {
        let all = if arguments.contains("payload") || arguments.starts_with("name") {
            arguments.to_owned()
        } else {
            format!("{GOOD}, {arguments}")
        };
        for more in ["", ", source => 's'"] {
            let sql = format!("select * from outlast.enqueue({all}{more})");
            assert_eq!(state(shop.client.batch_execute(&sql).await), code, "{sql}");
        }
        assert_eq!(shop.count(WRITTEN).await, 0, "{all}");
    }
    // What is just inside is taken, and the questions above can be answered with a number.
    for arguments in [
        "name => repeat('a', 100), payload => '\"' || repeat('a', 262142) || '\"'",
        "name => 'mail', payload => repeat('[', 100) || repeat(']', 100), key => repeat('k', 500), tenant => repeat('t', 200)",
        "name => 'mail', payload => '{}', priority => 100, version => 32767, attempts => 1000, after_ms => 315360000000",
        "name => 'mail', payload => '{}', priority => -100, lifetime_ms => 315360000000, key => 'k', at => '1900-01-01'",
        "name => 'mail', bytes => '\\xff', content_type => 'application/octet-stream'",
        "name => 'mail', bytes => '\\xff', codec_key => 'k1'",
        "name => 'mail', payload => '{}', key => 'd', digest => decode(repeat('00', 64), 'hex')",
        "name => 'mail', payload => '{}', traceparent => 'nonsense'",
    ] {
        run(
            &shop.client,
            &format!("select * from outlast.enqueue({arguments})"),
        )
        .await;
    }
    assert!(shop.count(WRITTEN).await > 8);
    shop.must_be_sound().await;
}

#[tokio::test]
async fn a_claim_refuses_what_could_never_be_right() {
    let shop = Shop::new().await;
    for (sql, code) in [
        (
            "select * from outlast._claim_jobs('{mail}', '{1}', '{1}', 1000, 99)",
            "OL005",
        ),
        (
            "select * from outlast._claim_jobs('{mail}', '{1}', '{1}', 1000, 300001)",
            "OL005",
        ),
        ("select * from outlast.claim('task', 'mail')", "OL005"),
        ("select * from outlast.claim(null, 'mail')", "OL005"),
        ("select * from outlast.claim('job', 'mail', 0)", "OL005"),
        ("select * from outlast.claim('job', 'mail', 1001)", "OL005"),
        (
            "select outlast.complete(gen_random_uuid(), gen_random_uuid())",
            "OL001",
        ),
        (
            "select outlast.fail(gen_random_uuid(), gen_random_uuid(), 'retry', 'why')",
            "OL001",
        ),
        (
            "select outlast._start_jobs(gen_random_uuid(), '{}')",
            "OL001",
        ),
        ("select outlast.cancel(gen_random_uuid(), '')", "OL005"),
        ("select outlast.cancel(gen_random_uuid(), null)", "OL005"),
        ("select outlast.abandon_job(gen_random_uuid(), '')", "OL005"),
        ("select outlast.pause_job('mail', '')", "OL005"),
    ] {
        assert_eq!(state(shop.client.batch_execute(sql).await), code, "{sql}");
    }
    for isolation in ["repeatable read", "serializable"] {
        run(&shop.client, &format!("begin isolation level {isolation}")).await;
        let claimed = super::ask("mail", 1).claim(&shop.client).await;
        assert_eq!(state(claimed), "OL010", "{isolation}");
        run(&shop.client, "rollback").await;
    }
}
