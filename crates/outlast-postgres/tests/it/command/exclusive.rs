//! One at a time of a key of exclusion, in the order of acceptance, whatever it is called.

use uuid::Uuid;

use super::{Desk, KEYLESS, claim, sent};
use crate::sql;

#[tokio::test]
async fn whoever_has_the_key_keeps_it_while_it_is_unknown_and_the_next_is_woken_at_its_end() {
    let desk = Desk::new().await;
    let first = desk
        .accept_as("close", "a", ", exclusive => 'conversation/1'")
        .await;
    let second = desk
        .accept_as("archive", "b", ", exclusive => 'conversation/1'")
        .await;
    let third = desk
        .accept_as("pay", "c", ", exclusive => 'conversation/1'")
        .await;
    let free = desk
        .accept_as("pay", "d", ", exclusive => 'conversation/2'")
        .await;
    assert!(
        claim(&desk.client, "archive", 5)
            .await
            .expect("claims")
            .is_empty(),
        "the first accepted goes first"
    );
    assert_eq!(desk.take().await.id, free, "of another conversation");
    let close = claim(&desk.client, "close", 5)
        .await
        .expect("claims")
        .remove(0);
    assert_eq!(close.id, first);
    assert!(sent(&desk.client, &close, KEYLESS).await.expect("sends"));
    desk.fail(&close, "unknown").await;
    assert!(
        claim(&desk.client, "archive", 5)
            .await
            .expect("claims")
            .is_empty()
    );
    sql::run(
        &desk.client,
        &format!("select outlast.resolve('{first}', 'abandoned', 'x')"),
    )
    .await;
    assert!(
        desk.claim(5).await.is_empty(),
        "the third waits for the second"
    );
    let archive = claim(&desk.client, "archive", 5)
        .await
        .expect("claims")
        .remove(0);
    assert_eq!(archive.id, second);
    desk.lose().await;
    assert!(
        desk.claim(5).await.len() <= 1,
        "only the one of the other conversation"
    );
    sql::run(
        &desk.client,
        &format!("select outlast.cancel('{second}', 'x')"),
    )
    .await;
    let ids: Vec<_> = desk.claim(5).await.iter().map(|one| one.id).collect();
    assert!(
        ids.contains(&third),
        "a key that was let go unsent wakes the next, too: {ids:?}"
    );
    desk.must_be_sound().await;
}

#[tokio::test]
async fn claimers_and_enders_of_one_key_never_leave_anybody_asleep_or_two_awake() {
    let desk = Desk::new().await;
    for n in 0..60 {
        desk.accept_as(
            ["pay", "close"][n % 2],
            &n.to_string(),
            &format!(", exclusive => '{}'", n % 3),
        )
        .await;
    }
    let workers = (0..4).map(|n| {
        let name = ["pay", "close"][n % 2];
        let house = &desk.house;
        async move {
            let client = house.connect().await;
            let mut done = 0;
            loop {
                let tries = claim(&client, name, 5).await.expect("claims");
                for one in &tries {
                    assert!(sent(&client, one, KEYLESS).await.expect("sends"));
                    let held = "select count(*) from outlast._exclusive e join outlast._exclusive o using (tenant, key) \
                        where o.id = $1 and e.held";
                    assert_eq!(sql::one::<i64>(&client, held, &[&one.id]).await, 1);
                    super::record(&client, one, "settled").await.expect("records");
                    done += 1;
                }
                let left = "select count(*) from outlast.command where state = 'waiting' and name = $1";
                if tries.is_empty() && sql::one::<i64>(&client, left, &[&name]).await == 0 {
                    return done;
                }
            }
        }
    });
    let done = tokio::time::timeout(
        crate::house::DEADLINE,
        futures_util::future::join_all(workers),
    )
    .await
    .expect("nobody is asleep");
    assert_eq!(done.into_iter().sum::<i32>(), 60);
    desk.must_be_sound().await;
}

/// Goal: an old runner and the commands that replace it never work on one thing at once. Method: it takes the key first, later, and
/// dies with it.
#[tokio::test]
async fn an_old_runner_shares_the_key_and_whoever_waits_is_woken_when_it_lets_go_or_dies() {
    let desk = Desk::new().await;
    let runner = desk.house.connect().await;
    let exclude = async || {
        let sql = "select outlast.exclude('conversation/1', holder => 'cron')";
        sql::one::<Option<Uuid>>(&runner, sql, &[]).await
    };
    let token = exclude().await.expect("it is free");
    assert_eq!(exclude().await, None, "one at a time");
    let other = "select outlast.exclude('conversation/1', tenant => 'north') is not null";
    assert!(
        sql::one::<bool>(&runner, other, &[]).await,
        "of another tenant"
    );
    let first = desk
        .accept_as("pay", "a", ", exclusive => 'conversation/1'")
        .await;
    assert!(desk.claim(5).await.is_empty(), "the runner has it");
    let lease = "select outlast.renew($1, 20000) > outlast.clock()";
    assert!(sql::one::<bool>(&runner, lease, &[&token]).await);
    desk.must_be_sound().await;
    sql::run(&runner, &format!("select outlast.release('{token}')")).await;
    assert_eq!(exclude().await, None, "who was accepted before goes first");
    let one = desk.take().await;
    assert_eq!(one.id, first);
    assert!(desk.sent(&one, KEYLESS).await);
    assert_eq!(exclude().await, None, "the command has it");
    desk.record(&one, "settled").await;

    // It dies with the key: a worker notices, and the next command goes; or the next runner does.
    for worker_first in [true, false] {
        let token = exclude().await.expect("it is free again");
        let next = match worker_first {
            true => Some(
                desk.accept_as("pay", "b", ", exclusive => 'conversation/1'")
                    .await,
            ),
            false => None,
        };
        assert!(desk.claim(5).await.is_empty());
        let dies = "update outlast._lease set expires_at = outlast.clock() - interval '1 second' where token = $1";
        runner.execute(dies, &[&token]).await.expect("it is old");
        if let Some(next) = next {
            let lapsed = "select lapsed from outlast._due_jobs(array['command:pay'])";
            assert!(sql::one::<bool>(&desk.client, lapsed, &[]).await);
            sql::run(&desk.client, "select outlast._reclaim_jobs(10)").await;
            let one = desk.take().await;
            assert_eq!(one.id, next);
            assert!(desk.sent(&one, KEYLESS).await);
            desk.record(&one, "settled").await;
        } else {
            assert!(exclude().await.is_some_and(|newer| newer != token));
        }
        let stale = runner.query("select outlast.fence($1)", &[&token]).await;
        assert_eq!(sql::state(stale), "OL001");
    }
    desk.must_be_sound().await;
    for (sql, code) in [
        ("select outlast.exclude('')", "OL005"),
        ("select outlast.exclude(null)", "OL005"),
        ("select outlast.exclude('k', tenant => null)", "OL005"),
        ("select outlast.exclude('k', 0)", "OL005"),
    ] {
        assert_eq!(sql::state(runner.query(sql, &[]).await), code, "{sql}");
    }
}
