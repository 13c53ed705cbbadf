//! Accepting a job: with the caller's transaction or not at all, and once for a key as long as that lives.

use tokio_postgres::{Client, Row};
use uuid::Uuid;

use super::{Shop, ask, cancel, complete, enqueue};
use crate::house::forward;
use crate::sql::{self, one, run};

async fn keyed(client: &Client, arguments: &str) -> Row {
    let sql = format!(
        "select id, new, conflict, expired, first_digest from outlast.enqueue('mail', {arguments})"
    );
    client.query_one(&sql, &[]).await.expect("enqueues")
}

fn told(row: &Row) -> (bool, bool, bool) {
    (row.get(1), row.get(2), row.get(3))
}

const NEW: (bool, bool, bool) = (true, false, false);
const SAME: (bool, bool, bool) = (false, false, false);
const CONFLICT: (bool, bool, bool) = (false, true, false);
const EXPIRED: (bool, bool, bool) = (false, false, true);

#[tokio::test]
async fn a_job_is_there_with_its_transaction_and_gone_without_it() {
    let shop = Shop::new().await;
    for (nth, isolation) in ["read committed", "repeatable read", "serializable"]
        .into_iter()
        .enumerate()
    {
        for (end, jobs) in [("rollback", nth as i64), ("commit", nth as i64 + 1)] {
            run(&shop.client, &format!("begin isolation level {isolation}")).await;
            let key = format!("k{nth}");
            let id = enqueue(&shop.client, &format!("'mail', '{{}}', key => '{key}'")).await;
            let other = shop.house.connect().await;
            assert_eq!(super::state(&other, id).await, "absent");
            assert_eq!(
                ask("mail", 10).claim(&other).await.expect("claims").len(),
                0
            );
            run(&shop.client, end).await;
            assert_eq!(
                shop.count("select count(*) from outlast._job").await,
                jobs,
                "{isolation} {end}"
            );
            assert_eq!(
                shop.count("select count(*) from outlast._job_key").await,
                jobs
            );
            if end == "commit" {
                // Whoever looked before takes it now.
                assert_eq!(
                    super::ids(&ask("mail", 10).claim(&other).await.expect("claims")),
                    [id]
                );
            }
            let ready = "select count(*) from outlast._job_ready";
            assert_eq!(shop.count(ready).await, 0);
        }
        shop.must_be_sound().await;
    }
}

#[tokio::test]
async fn a_savepoint_that_is_rolled_back_takes_its_job_with_it() {
    let shop = Shop::new().await;
    run(&shop.client, "begin; savepoint a").await;
    enqueue(&shop.client, "'mail', '{}', key => 'k'").await;
    run(&shop.client, "rollback to a").await;
    let id = enqueue(&shop.client, "'mail', '{\"other\":1}', key => 'k'").await;
    run(&shop.client, "commit").await;
    assert_eq!(super::ids(&shop.claim("mail", 10).await), [id]);
}

#[tokio::test]
async fn a_key_is_one_job_whatever_becomes_of_it() {
    let shop = Shop::new().await;
    let first = keyed(&shop.client, "'{\"a\":1}', key => 'k'").await;
    assert_eq!(told(&first), NEW);
    let id: Uuid = first.get(0);
    let again = async |arguments: &str, told_: (bool, bool, bool)| {
        let row = keyed(&shop.client, arguments).await;
        assert_eq!(
            (told(&row), row.get::<_, Uuid>(0)),
            (told_, id),
            "{arguments}"
        );
        assert_eq!(
            row.get::<_, Vec<u8>>(4),
            first.get::<_, Vec<u8>>(4),
            "the first digest"
        );
    };
    again(
        "'{ \"b\":null, \"a\":1.0 }', key => 'k', priority => 5, after_ms => 1000, version => 2",
        SAME,
    )
    .await;
    again("'{\"a\":2}', key => 'k'", CONFLICT).await;
    let job = shop.claim("mail", 1).await.remove(0);
    again("'{\"a\":1}', key => 'k'", SAME).await;
    complete(&shop.client, job.token, &[id])
        .await
        .expect("completes");
    again("'{\"a\":1}', key => 'k'", SAME).await;
    again("'{\"a\":2}', key => 'k'", CONFLICT).await;
    assert_eq!(shop.count("select count(*) from outlast._job").await, 1);

    // Another tenant, another name, no key: another job.
    assert_eq!(
        told(&keyed(&shop.client, "'{\"a\":2}', key => 'k', tenant => 't'").await),
        NEW
    );
    let sql = "select new from outlast.enqueue('other', '{\"a\":2}', key => 'k')";
    assert!(one::<bool>(&shop.client, sql, &[]).await);
    assert_eq!(told(&keyed(&shop.client, "'{\"a\":2}'").await), NEW);
    shop.must_be_sound().await;
}

#[tokio::test]
async fn a_callers_own_digest_is_what_counts() {
    let shop = Shop::new().await;
    let digest = |n: u8| format!("decode(repeat('0{n}', 32), 'hex')");
    let call = |bytes: &str, n: u8| {
        format!(
            "bytes => '{bytes}', codec_key => 'c', key => 'k', digest => {}",
            digest(n)
        )
    };
    assert_eq!(told(&keyed(&shop.client, &call("one", 1)).await), NEW);
    assert_eq!(told(&keyed(&shop.client, &call("two", 1)).await), SAME);
    assert_eq!(told(&keyed(&shop.client, &call("one", 2)).await), CONFLICT);
    assert_eq!(
        shop.count("select rule::bigint from outlast._job_key")
            .await,
        2
    );
}

#[tokio::test]
async fn after_its_lifetime_a_key_answers_expired_and_one_for_ever_never_does() {
    let shop = Shop::with_movable_clock().await;
    let day = 86_400;
    keyed(&shop.client, "'1', key => 'default'").await;
    keyed(&shop.client, "'1', key => 'day', lifetime_ms => 86400000").await;
    keyed(&shop.client, "'1', key => 'ever', lifetime_ms => 0").await;
    let ask = async |key: &str, payload: u8| {
        told(&keyed(&shop.client, &format!("'{payload}', key => '{key}'")).await)
    };
    forward(&shop.client, day - 10).await;
    assert_eq!(ask("day", 1).await, SAME);
    forward(&shop.client, 20).await;
    assert_eq!(
        (ask("day", 1).await, ask("day", 2).await),
        (EXPIRED, EXPIRED)
    );
    assert_eq!(ask("default", 1).await, SAME);
    forward(&shop.client, 30 * day).await;
    assert_eq!(ask("default", 1).await, EXPIRED);
    forward(&shop.client, 3650 * day).await;
    assert_eq!(
        (ask("ever", 1).await, ask("ever", 2).await),
        (SAME, CONFLICT)
    );
    assert_eq!(
        shop.count("select count(*) from outlast._job").await,
        3,
        "expired is never new"
    );
}

/// The first has the key and has not committed; the second waits for what becomes of it.
#[tokio::test]
async fn a_key_in_an_open_transaction_is_waited_for_and_belongs_to_whoever_commits() {
    let shop = Shop::new().await;
    let (one_, two) = (shop.house.connect().await, shop.house.connect().await);
    for (nth, end) in ["commit", "rollback"].into_iter().enumerate() {
        run(&one_, "begin").await;
        let first = keyed(&one_, &format!("'1', key => 'k{nth}'")).await;
        let pid = sql::pid(&two).await;
        let arguments = format!("'1', key => 'k{nth}'");
        let (second, ()) = tokio::join!(keyed(&two, &arguments), async {
            sql::until_blocked(&shop.client, pid).await;
            run(&one_, end).await;
        });
        let same = second.get::<_, Uuid>(0) == first.get::<_, Uuid>(0);
        assert_eq!(
            (told(&second), same),
            if end == "commit" {
                (SAME, true)
            } else {
                (NEW, false)
            }
        );
        let there = format!("select count(*) from outlast._job where key = 'k{nth}'");
        assert_eq!(
            shop.count(&there).await,
            1,
            "{end}: exactly one job has the key"
        );
    }
    // With an older snapshot the answer cannot be seen: the caller tries again.
    for isolation in ["repeatable read", "serializable"] {
        run(
            &two,
            &format!("begin isolation level {isolation}; select 1 from pg_class limit 1"),
        )
        .await;
        let key = isolation.split(' ').next().expect("a word");
        keyed(&one_, &format!("'1', key => '{key}'")).await;
        let sql = format!("select * from outlast.enqueue('mail', '1', key => '{key}')");
        assert_eq!(
            sql::state(two.batch_execute(&sql).await),
            "40001",
            "{isolation}"
        );
        run(&two, "rollback").await;
    }
    shop.must_be_sound().await;
}

#[tokio::test]
async fn a_job_for_later_waits_until_its_time_and_whoever_sleeps_sees_that_it_came() {
    let shop = Shop::with_movable_clock().await;
    let drawn = "select coalesce(pg_sequence_last_value('outlast._event_id'), 0)";
    let before = shop.count(drawn).await;
    let hour = enqueue(&shop.client, "'mail', '{}', after_ms => 3600000").await;
    let at = enqueue(
        &shop.client,
        "'mail', '{}', at => outlast.clock() + interval '30 minutes'",
    )
    .await;
    assert_eq!(shop.count(drawn).await, before);
    let soon = enqueue(&shop.client, "'mail', '{}', after_ms => 9000").await;
    assert!(
        shop.count(drawn).await > before,
        "it is due before everybody looks again"
    );
    cancel(&shop.client, soon).await.expect("is not wanted");
    let past = enqueue(&shop.client, "'mail', '{}', at => '2000-01-01'").await;
    let now = enqueue(&shop.client, "'mail', '{}', after_ms => 0").await;
    assert_eq!(super::ids(&shop.claim("mail", 10).await), [past, now]);

    let next = "select next_ms / 60000 from outlast._due_jobs('{mail}')";
    assert!((29..=30).contains(&shop.count(next).await));
    assert_eq!(
        shop.count("select moved::bigint from outlast._promote(100)")
            .await,
        0
    );
    forward(&shop.client, 3601).await;
    assert_eq!(
        shop.count("select moved::bigint from outlast._promote(100)")
            .await,
        2
    );
    assert_eq!(
        super::ids(&shop.claim("mail", 10).await),
        [at, hour],
        "in the order of their times"
    );
    shop.lose().await;
    shop.must_be_sound().await;
}
