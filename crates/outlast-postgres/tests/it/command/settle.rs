//! Told by key: from every state, before we knew, twice, and against what is known.

use super::{Desk, KEYED, LOOKS};
use crate::house::DEADLINE;
use crate::sql;
use outlast_testkit::wait_for;

#[tokio::test]
async fn a_settlement_ends_it_wherever_it_stands_and_the_owner_of_a_try_comes_too_late() {
    for stands in [
        "waiting", "claimed", "running", "unknown", "looking", "pending",
    ] {
        let desk = Desk::new().await;
        let id = desk.accept("k").await;
        let mut in_hand = None;
        if stands != "waiting" {
            let one = desk.take().await;
            if stands != "claimed" {
                assert!(desk.sent(&one, LOOKS).await);
            }
            match stands {
                "unknown" | "looking" => drop(desk.fail(&one, "unknown").await),
                "pending" => drop(desk.record(&one, "pending").await),
                _ => in_hand = Some(one),
            }
            if stands == "looking" {
                in_hand = Some(desk.take_later().await);
            }
        }
        assert_eq!(desk.settle("k", "settled").await, "settled", "{stands}");
        assert_eq!(desk.state(id).await, "settled", "{stands}");
        if let Some(one) = in_hand {
            if stands == "claimed" {
                assert!(
                    !desk.sent(&one, LOOKS).await,
                    "it is done: nothing may leave"
                );
            } else {
                assert_eq!(desk.record(&one, "settled").await, "late");
            }
        }
        assert_eq!(desk.settle("k", "settled").await, "same");
        assert_eq!(desk.told().await.len(), 1, "{stands}");
        assert!(desk.incidents().await.is_empty(), "{stands}");
        desk.must_be_sound().await;
    }
}

#[tokio::test]
async fn an_answer_that_contradicts_the_settlement_is_kept_and_put_before_a_person() {
    let desk = Desk::new().await;
    let id = desk.accept("k").await;
    let one = desk.take().await;
    assert!(desk.sent(&one, KEYED).await);
    assert_eq!(desk.settle("k", "rejected").await, "rejected");
    assert_eq!(desk.record(&one, "settled").await, "late");
    assert_eq!(desk.state(id).await, "rejected", "an end does not change");
    assert_eq!(desk.settle("k", "settled").await, "contradicts");
    assert_eq!(desk.incidents().await, ["contradicted command"]);
    let noted: String = sql::one(
        &desk.client,
        "select outlast.resolve($1, 'noted', 'refunded by hand')",
        &[&id],
    )
    .await;
    assert_eq!(noted, "rejected");
    assert!(desk.incidents().await.is_empty());
    assert_eq!(desk.told().await.len(), 1);
    desk.must_be_sound().await;
}

#[tokio::test]
async fn what_is_told_before_the_command_is_there_is_not_lost() {
    let desk = Desk::new().await;
    assert_eq!(desk.settle("k", "settled").await, "early");
    assert_eq!(desk.settle("k", "settled").await, "early");
    let id = desk.accept("k").await;
    assert_eq!(desk.state(id).await, "settled");
    assert!(desk.claim(10).await.is_empty());
    assert_eq!(desk.told().await.len(), 1);

    desk.settle("two", "settled").await;
    desk.settle("two", "rejected").await;
    let id = desk.accept("two").await;
    assert_eq!(desk.state(id).await, "waiting");
    assert!(
        desk.claim(10).await.is_empty(),
        "nobody sends what may be done"
    );
    assert_eq!(desk.incidents().await, ["stopped command"]);
    desk.must_be_sound().await;
}

#[tokio::test]
async fn a_settlement_and_the_acceptance_of_its_command_take_turns() {
    let desk = Desk::new().await;
    let other = desk.house.connect().await;
    let pid = sql::pid(&other).await;
    sql::run(&desk.client, "begin").await;
    let id = desk.accept("k").await;
    let settling = tokio::spawn(async move {
        let sql = "select outlast.settle('pay', 'k', 'settled', '{\"id\": 1}')";
        sql::one::<String>(&other, sql, &[]).await
    });
    let observer = desk.house.connect().await;
    sql::until_blocked(&observer, pid).await;
    sql::run(&desk.client, "commit").await;
    assert_eq!(
        settling.await.expect("settles"),
        "settled",
        "not early: it would have been found by nobody"
    );
    wait_for("its end", DEADLINE, async || {
        (desk.state(id).await == "settled").then_some(())
    })
    .await;
    desk.must_be_sound().await;
}

/// Above READ COMMITTED whoever waited for the other has a snapshot from before: he would not see him, and nobody would find what
/// was told.
#[tokio::test]
async fn above_read_committed_a_settlement_and_an_acceptance_that_miss_each_other_are_tried_again()
{
    for isolation in ["repeatable read", "serializable"] {
        for (first, second) in [("accept", "settle"), ("settle", "accept")] {
            let desk = Desk::new().await;
            let other = desk.house.connect().await;
            let sql = |verb: &str| match verb {
                "accept" => "select id::text from outlast.command('pay', '{}', 'k')",
                _ => "select outlast.settle('pay', 'k', 'settled', '{\"id\": 1}')",
            };
            sql::run(
                &other,
                &format!("begin isolation level {isolation}; select 1"),
            )
            .await;
            sql::run(&desk.client, sql(first)).await;
            let missed = other.query(sql(second), &[]).await;
            assert_eq!(sql::state(missed), "40001", "{second} in {isolation}");
            sql::run(&other, "rollback").await;
            sql::run(&other, &format!("begin isolation level {isolation}")).await;
            sql::run(&other, sql(second)).await;
            sql::run(&other, "commit").await;
            assert_eq!(
                desk.told().await,
                [r#"{"settled":{"id": 1}}"#],
                "{second} in {isolation}"
            );
            desk.must_be_sound().await;

            // Where nothing is missed, nothing is in the way.
            sql::run(&desk.client, &format!("begin isolation level {isolation}")).await;
            for n in 0..2 {
                let early = format!(
                    "select outlast.settle('pay', 'new', 'settled', '{{\"id\": {}}}')",
                    n / 2
                );
                sql::run(&desk.client, &early).await;
            }
            let id = desk.accept("new").await;
            sql::run(&desk.client, "commit").await;
            assert_eq!(desk.state(id).await, "settled");
            desk.must_be_sound().await;
        }
    }
}

#[tokio::test]
async fn a_settlement_beside_a_promote_leaves_nothing_due_behind_an_end() {
    let desk = Desk::new().await;
    let id = desk.accept("k").await;
    let one = desk.take().await;
    assert!(desk.sent(&one, super::KEYLESS).await);
    assert_eq!(desk.record(&one, "pending").await, "pending");
    desk.come().await;
    // Its next question becomes ready, and that is not committed yet.
    let promotes = desk.house.connect().await;
    sql::run(&promotes, "begin; select outlast._promote(1000)").await;
    let (waits, told) = (desk.house.connect().await, desk.house.connect().await);
    let webhook = tokio::spawn(async move {
        let settle = "select outlast.settle('pay', 'k', 'settled', '{\"id\": 1}')";
        sql::one::<String>(&told, settle, &[]).await
    });
    let waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    wait_for("the settlement to wait", DEADLINE, async || {
        (sql::one::<i64>(&waits, waiting, &[]).await > 0).then_some(())
    })
    .await;
    sql::run(&promotes, "commit").await;
    assert_eq!(webhook.await.unwrap(), "settled");
    let due = "select count(*) from outlast._job_ready where id = $1";
    assert_eq!(sql::one::<i64>(&desk.client, due, &[&id]).await, 0);
    desk.must_be_sound().await;
}

#[tokio::test]
async fn what_was_told_of_a_command_that_never_came_is_put_before_a_person_and_counts_when_it_comes()
 {
    let desk = Desk::new().await;
    desk.house.movable_clock().await;
    for key in ["comes", "never", "other"] {
        assert_eq!(desk.settle(key, "settled").await, "early");
    }
    let week = 7 * 86_400;
    crate::house::forward(&desk.client, week - 60).await;
    sql::run(&desk.client, "select outlast._forget_jobs(100)").await;
    assert!(desk.incidents().await.is_empty(), "it may still come");
    crate::house::forward(&desk.client, 120).await;
    sql::run(&desk.client, "select outlast._forget_jobs(100)").await;
    let kind = "settlement without a command";
    assert_eq!(desk.incidents().await, [kind; 3]);
    let about = "select consumer || ' ' || key || ' ' || (about::text = outlast._provider_key(tenant, consumer, key)) from outlast.incident order by key limit 1";
    assert_eq!(
        sql::one::<String>(&desk.client, about, &[]).await,
        "pay comes true"
    );

    // It is known how it ended, however late it comes.
    let id = desk.accept("comes").await;
    assert_eq!(desk.state(id).await, "settled");
    assert_eq!(desk.incidents().await, [kind; 2]);

    let discard = "select outlast.discard_settlement('pay', $1, 'another shop of theirs')";
    assert_eq!(sql::one::<i32>(&desk.client, discard, &[&"never"]).await, 1);
    assert_eq!(sql::one::<i32>(&desk.client, discard, &[&"never"]).await, 0);
    // All of the name at once: what may still come is not among them.
    assert_eq!(desk.settle("young", "settled").await, "early");
    assert_eq!(
        sql::one::<i32>(&desk.client, discard, &[&None::<&str>]).await,
        1
    );
    assert!(desk.incidents().await.is_empty());
    assert_eq!(
        sql::one::<i64>(
            &desk.client,
            "select count(*) from outlast._settlement",
            &[]
        )
        .await,
        1
    );
    let audited = "select count(*) from outlast._audit where action = 'settlement.discarded'";
    assert_eq!(sql::one::<i64>(&desk.client, audited, &[]).await, 2);
    let why = "select outlast.discard_settlement('pay', null, '')";
    assert!(
        desk.client.query_one(why, &[]).await.is_err(),
        "it must say why"
    );
    desk.must_be_sound().await;
}
