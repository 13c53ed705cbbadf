//! One identity for life.

use super::Desk;
use crate::sql::{self, state};

#[tokio::test]
async fn the_same_key_is_the_same_command_and_other_content_is_a_conflict_whatever_became_of_it() {
    let desk = Desk::new().await;
    let first = desk.accept("k").await;
    let again = "select id = $1 and not new and not conflict from outlast.command('pay', '{\"more\": null, \"amount\":\"1.00\"}', 'k')";
    let other = "select id = $1 and not new and conflict and first_digest is not null from outlast.command('pay', '{\"amount\": \"2.00\"}', 'k')";
    assert!(sql::one::<bool>(&desk.client, again, &[&first]).await);
    let one = desk.take().await;
    assert!(desk.sent(&one, super::KEYLESS).await);
    desk.record(&one, "settled").await;
    assert!(
        sql::one::<bool>(&desk.client, again, &[&first]).await,
        "after its end, too"
    );
    assert!(sql::one::<bool>(&desk.client, other, &[&first]).await);

    // Also when its history is gone: the identity is for ever.
    sql::run(&desk.client, "update outlast._job_end set at = at - interval '40 days'; select outlast._forget_jobs(100)").await;
    assert_eq!(
        sql::one::<i64>(&desk.client, "select count(*) from outlast._job", &[]).await,
        0
    );
    assert!(sql::one::<bool>(&desk.client, again, &[&first]).await);
    assert_eq!(desk.settle("k", "settled").await, "gone");
    desk.must_be_sound().await;
}

#[tokio::test]
async fn another_tenant_or_name_is_another_command_and_the_providers_key_follows_from_the_identity()
{
    let desk = Desk::new().await;
    let ids = [
        desk.accept("k").await,
        desk.accept_as("pay", "k", ", tenant => 'b'").await,
        desk.accept_as("refund", "k", "").await,
    ];
    let sql = "select provider_key from outlast.command where id = $1";
    let mut keys = Vec::new();
    for id in ids {
        keys.push(sql::one::<String>(&desk.client, sql, &[&id]).await);
    }
    assert_eq!(
        keys.iter().collect::<std::collections::HashSet<_>>().len(),
        3
    );

    // Submitted again after a restore, it is the same.
    let other = Desk::new().await;
    let id = other.accept("k").await;
    assert_eq!(
        sql::one::<String>(&other.client, sql, &[&id]).await,
        keys[0]
    );
}

#[tokio::test]
async fn a_finite_lifetime_ends_with_expired_and_never_with_another_command() {
    let desk = Desk::new().await;
    desk.accept_as("pay", "k", ", lifetime_ms => 60000").await;
    sql::run(
        &desk.client,
        "update outlast._job_key set lives_until = outlast.clock() - interval '1 second'",
    )
    .await;
    let sql = "select not new and expired and not conflict from outlast.command('pay', '{\"amount\": \"9\"}', 'k')";
    assert!(sql::one::<bool>(&desk.client, sql, &[]).await);
}

#[tokio::test]
async fn what_supersedes_cancels_what_has_not_left() {
    let desk = Desk::new().await;
    let wrong = desk.accept("k").await;
    let right = desk
        .accept_as("pay", "k/2", &format!(", supersedes => '{wrong}'"))
        .await;
    assert_eq!(desk.state(wrong).await, "cancelled");
    assert_eq!(desk.take().await.id, right);
    let sql = format!("select outlast.command('refund', '{{}}', 'k', supersedes => '{wrong}')");
    assert_eq!(state(desk.client.query(&sql, &[]).await), "OL005");
    desk.must_be_sound().await;
}

#[tokio::test]
async fn bad_input_has_its_code_and_writes_nothing() {
    let desk = Desk::new().await;
    let long = "x".repeat(131_072);
    let bad = [
        ("'Pay', '{}', 'k'", "OL005"),
        ("'pay', '{}', null", "OL005"),
        ("'pay', '{}', ''", "OL005"),
        ("'pay', null, 'k'", "OL005"),
        ("'pay', '{', 'k'", "OL007"),
        (&format!("'pay', '\"{long}\"', 'k'"), "OL006"),
        (&format!("'{}', '{{}}', 'k'", "p".repeat(91)), "OL005"),
        ("'pay', '{}', 'k', account => e'a\\nb'", "OL005"),
        ("'pay', '{}', 'k', exclusive => ''", "OL005"),
        ("'pay', '{}', 'k', priority => 101", "OL005"),
        ("'pay', '{}', 'k', attempts => 0", "OL005"),
        ("'pay', '{}', 'k', after_ms => -1", "OL005"),
        ("'pay', '{}', 'k', after_ms => 1, at => now()", "OL005"),
        ("'pay', '{}', 'k', lifetime_ms => -1", "OL005"),
        ("'pay', '{}', 'k', supersedes => gen_random_uuid()", "OL005"),
    ];
    for (args, code) in bad {
        let shown: String = args.chars().take(60).collect();
        let refused = desk
            .client
            .query(&format!("select outlast.command({args})"), &[])
            .await;
        assert_eq!(state(refused), code, "{shown}");
    }
    assert_eq!(
        sql::one::<i64>(&desk.client, "select count(*) from outlast._job_key", &[]).await,
        0
    );
    assert_eq!(
        sql::one::<i64>(&desk.client, "select count(*) from outlast._job", &[]).await,
        0
    );
}
