//! Accounts of providers: throttled, limited and failing together, and nobody else with them.

use super::{Desk, KEYLESS, claim};
use crate::sql;

#[tokio::test]
async fn a_throttled_try_pauses_its_account_uncharged_and_leaves_the_others_alone() {
    let desk = Desk::new().await;
    for n in 0..3 {
        desk.accept_as("pay", &format!("a{n}"), ", account => 'acme'")
            .await;
    }
    desk.accept_as("pay", "b", ", account => 'bolt'").await;
    let one = desk.claim(1).await.remove(0);
    assert!(desk.sent(&one, KEYLESS).await);
    let fail = "select outlast.fail($1, $2, 'throttled', 'slow down', 999999999999)";
    assert_eq!(
        sql::one::<String>(&desk.client, fail, &[&one.token, &one.id]).await,
        "retry"
    );
    let keys: Vec<_> = desk
        .claim(10)
        .await
        .into_iter()
        .map(|one| one.key)
        .collect();
    assert_eq!(keys, ["b"]);
    let sql = "select paused_until between now() + interval '59 minutes' and now() + interval '61 minutes' from outlast.account where name = 'acme'";
    assert!(
        sql::one::<bool>(&desk.client, sql, &[]).await,
        "an absurd time is an hour"
    );
    let charged = "select coalesce(max(failures), 0)::bigint from outlast._job_state";
    assert_eq!(sql::one::<i64>(&desk.client, charged, &[]).await, 0);
    sql::run(&desk.client, "select outlast.resume_account('acme')").await;
    assert_eq!(desk.claim(10).await.len(), 2);
    desk.must_be_sound().await;
}

#[tokio::test]
async fn no_more_of_an_account_than_its_limit_are_in_work_with_many_claimers() {
    for planted in [false, true] {
        let desk = Desk::new().await;
        if planted {
            desk.house
                .plant(
                    "_take_counted",
                    &[(
                        "if pg_try_advisory_xact_lock(outlast._account_lock(g.account)) then",
                        "if true then",
                    )],
                )
                .await;
        }
        for n in 0..200 {
            desk.accept_as("pay", &n.to_string(), ", account => 'acme'")
                .await;
        }
        sql::run(
            &desk.client,
            "select outlast.limit_account('acme', concurrency => 3)",
        )
        .await;
        let mut most = 0;
        for _ in 0..if planted { 40 } else { 10 } {
            let claimers = (0..6).map(|_| async {
                let client = desk.house.connect().await;
                claim(&client, "pay", 3).await.expect("claims")
            });
            futures_util::future::join_all(claimers).await;
            most = most.max(
                sql::one::<i64>(
                    &desk.client,
                    "select count(*) from outlast._job_claimed",
                    &[],
                )
                .await,
            );
            if planted && most > 3 {
                break;
            }
            desk.lose().await;
        }
        if planted {
            assert!(most > 3, "counting without a lock must be found out");
        } else {
            assert_eq!(most, 3);
        }
    }
}

#[tokio::test]
async fn one_that_runs_alone_counts_against_its_account_too() {
    let desk = Desk::new().await;
    for key in ["first", "suspect"] {
        desk.accept_as("pay", key, ", account => 'acme'").await;
    }
    let limit = "select outlast.limit_account('acme', concurrency => 1)";
    sql::run(&desk.client, limit).await;
    let first = desk.claim(1).await.remove(0);
    let alone = "with r as (delete from outlast._job_ready returning id) select outlast._put_off(id, interval '0', true) from r";
    sql::run(&desk.client, alone).await;
    assert!(desk.claim(5).await.is_empty(), "its account has no room");
    assert!(desk.sent(&first, KEYLESS).await);
    desk.record(&first, "settled").await;
    let keys: Vec<_> = desk.claim(5).await.into_iter().map(|x| x.key).collect();
    assert_eq!(keys, ["suspect"]);
    desk.lose().await;
    desk.must_be_sound().await;
}

#[tokio::test]
async fn a_rate_lets_a_burst_through_and_then_so_many_a_second() {
    let desk = Desk::new().await;
    for n in 0..20 {
        desk.accept_as("pay", &n.to_string(), ", account => 'acme'")
            .await;
    }
    sql::run(
        &desk.client,
        "select outlast.limit_account('acme', rate => 2, burst => 5)",
    )
    .await;
    assert_eq!(desk.claim(20).await.len(), 5);
    assert!(desk.claim(20).await.len() <= 1);
    sql::run(&desk.client, "update outlast._account_limit set filled_at = filled_at - interval '2 seconds', tokens = 0").await;
    assert_eq!(desk.claim(20).await.len(), 4);
    desk.must_be_sound().await;
}

#[tokio::test]
async fn an_account_where_nobody_answers_is_found_out_about_by_one_try_at_a_time() {
    let desk = Desk::new().await;
    for n in 0..20 {
        desk.accept_as("pay", &n.to_string(), ", account => 'acme'")
            .await;
    }
    for one in desk.claim(5).await {
        assert!(desk.sent(&one, KEYLESS).await);
        desk.fail(&one, "retry").await;
    }
    assert!(desk.claim(10).await.is_empty(), "it is left alone");
    sql::run(
        &desk.client,
        "update outlast._account set paused_until = outlast.clock()",
    )
    .await;
    let probe = desk.claim(10).await;
    assert_eq!(probe.len(), 1);
    assert!(desk.claim(10).await.is_empty(), "while that one tries");
    assert!(desk.sent(&probe[0], KEYLESS).await);
    desk.record(&probe[0], "settled").await;
    assert_eq!(desk.claim(10).await.len(), 10);
    desk.must_be_sound().await;
}

#[tokio::test]
async fn a_circuit_of_its_own_leaves_an_account_alone_sooner_or_later_and_no_longer_than_it_says() {
    let desk = Desk::new().await;
    for account in ['a', 'b'] {
        for n in 0..8 {
            let more = format!(", account => '{account}'");
            desk.accept_as("pay", &format!("{account}{n}"), &more).await;
        }
    }
    sql::run(
        &desk.client,
        "select outlast.limit_account('a', circuit => 1, circuit_pause_s => 1), outlast.limit_account('b', circuit => 7)",
    )
    .await;
    let one = desk.claim(100).await;
    assert_eq!(one.len(), 16, "a circuit alone bounds nothing");
    let left_alone = async |account: &str| {
        let sql = "select coalesce(paused_until > outlast.clock(), false) from outlast.account where name = $1";
        sql::one::<bool>(&desk.client, sql, &[&account]).await
    };
    let (a, b): (Vec<_>, Vec<_>) = one.into_iter().partition(|one| one.key.starts_with('a'));
    assert!(desk.sent(&a[0], KEYLESS).await);
    desk.fail(&a[0], "retry").await;
    assert!(left_alone("a").await, "at the first failure");
    let longest = "select paused_until <= outlast.clock() + interval '1 second' from outlast.account where name = 'a'";
    for one in &a[1..] {
        assert!(desk.sent(one, KEYLESS).await);
        desk.fail(one, "retry").await;
        assert!(sql::one::<bool>(&desk.client, longest, &[]).await);
    }
    for (n, one) in b.iter().take(7).enumerate() {
        assert!(!left_alone("b").await, "after {n}");
        assert!(desk.sent(one, KEYLESS).await);
        desk.fail(one, "retry").await;
    }
    assert!(left_alone("b").await);
    assert!(desk.sent(&b[7], KEYLESS).await);
    desk.record(&b[7], "settled").await;
    assert!(!left_alone("b").await, "it answers");
    // With nothing but the defaults there is no limit any more.
    sql::run(
        &desk.client,
        "select outlast.limit_account('a'), outlast.limit_account('b')",
    )
    .await;
    let rows = "select count(*) from outlast._account_limit";
    assert_eq!(sql::one::<i64>(&desk.client, rows, &[]).await, 0);
    let was = "select detail -> 'was' ->> 'circuit' from outlast._audit where about = 'b' order by id desc limit 1";
    assert_eq!(sql::one::<String>(&desk.client, was, &[]).await, "7");
    for wrong in [
        "circuit => 0",
        "circuit => null",
        "circuit_pause_s => 3601",
        "concurrency => 0",
        "rate => 'NaN'",
        "burst => null",
    ] {
        let refused = desk
            .client
            .query(&format!("select outlast.limit_account('a', {wrong})"), &[])
            .await;
        assert_eq!(sql::state(refused), "OL005", "{wrong}");
    }
    desk.must_be_sound().await;
}

#[tokio::test]
async fn a_limit_for_each_account_that_begins_alike_bounds_each_by_itself_and_a_limit_of_its_own_comes_first()
 {
    let desk = Desk::new().await;
    for account in [
        "acme/7",
        "acme/8",
        "acme/vip",
        "acme/eu/9",
        "acme",
        "bolt/7",
    ] {
        for n in 0..5 {
            desk.accept_as(
                "pay",
                &format!("{account} {n}"),
                &format!(", account => '{account}'"),
            )
            .await;
        }
    }
    for limit in [
        "'acme/*', concurrency => 2",
        "'acme/vip', concurrency => 4",
        "'acme/eu/*', concurrency => 1",
    ] {
        sql::run(
            &desk.client,
            &format!("select outlast.limit_account({limit})"),
        )
        .await;
    }
    let in_work = "select string_agg(x, ', ' order by x) from (
        select account || ' ' || count(*) as x from outlast._job_claimed group by account) y";
    let most = "acme 5, acme/7 2, acme/8 2, acme/eu/9 1, acme/vip 4, bolt/7 5";
    // Many at once, who count under the lock of each account.
    let claimers = (0..4).map(|_| async {
        let client = desk.house.connect().await;
        for _ in 0..4 {
            claim(&client, "pay", 10).await.expect("claims");
        }
    });
    futures_util::future::join_all(claimers).await;
    desk.claim(50).await;
    assert_eq!(sql::one::<String>(&desk.client, in_work, &[]).await, most);
    // A rate would need tokens of each.
    let rate = "select outlast.limit_account('acme/*', rate => 5)";
    assert!(desk.client.query_one(rate, &[]).await.is_err());
    // Without a limit for each, all of them go.
    sql::run(&desk.client, "select outlast.limit_account('acme/*')").await;
    assert_eq!(desk.claim(50).await.len(), 6);
    desk.must_be_sound().await;
}
