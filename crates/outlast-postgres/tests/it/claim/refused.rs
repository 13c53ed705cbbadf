//! When a claim gives nothing, and when it says why.

use super::{Foreign, payloads};
use crate::house::House;

#[tokio::test]
async fn a_claim_in_the_wrong_transaction_is_refused() {
    let house = House::new().await;
    let worker = Foreign::new(&house).await;
    worker
        .rows("select outlast.register('c', array['a']); create table business (n int)")
        .await;
    let claim = "select * from outlast.claim('event', 'c', 10)";
    // Whatever is there to do: nothing, lapsed work, a retry, new events, and in the middle of a window.
    for situation in 0..5 {
        match situation {
            1 => {
                worker.emit(3).await;
                worker.claim(1, "").await;
                worker.lapse().await;
            }
            2 => {
                let row = worker.claim(1, "").await.remove(0);
                worker.fail(&row, "retry").await;
                worker
                    .rows("update outlast._parked set next_at = outlast.clock()")
                    .await;
            }
            3 => {
                worker.claim(1, "").await;
            }
            4 => {
                worker.emit(3).await;
                worker.claim(1, "").await;
            }
            _ => {}
        }
        for begin in [
            "begin; insert into business values (1)",
            "begin isolation level repeatable read",
            "begin isolation level serializable",
        ] {
            worker.rows(begin).await;
            assert_eq!(
                worker.state(claim).await,
                "OL010",
                "{begin}, situation {situation}"
            );
            worker.rows("rollback").await;
        }
    }
}

#[tokio::test]
async fn the_engines_own_statements_are_refused_above_read_committed_too() {
    let house = House::new().await;
    let worker = Foreign::new(&house).await;
    worker
        .rows("select outlast.register('c', array['a'])")
        .await;
    worker.emit(1).await;
    for sql in [
        "select outlast._claim(1, 1, 1000, 1000, 1000, 1)",
        "select outlast._reclaim(1, 1000, 1)",
        "select outlast._claim_parked(1, 1, 1000, null, null)",
        "select outlast._finish(array[]::uuid[])",
        "select outlast._hand_back('00000000-0000-0000-0000-000000000000', array[]::uuid[])",
        "select outlast._register('d', array['a'])",
    ] {
        worker.rows("begin isolation level repeatable read").await;
        assert_eq!(worker.state(sql).await, "OL010", "{sql}");
        worker.rows("rollback").await;
    }
}

#[tokio::test]
async fn a_paused_consumer_gets_nothing_until_it_is_resumed() {
    let house = House::new().await;
    let worker = Foreign::new(&house).await;
    worker
        .rows("select outlast.register('c', array['a'])")
        .await;
    worker.emit(3).await;
    // One lapsed, one parked and due, one new.
    worker.claim(1, "").await;
    let row = worker.claim(1, "").await.remove(0);
    worker.fail(&row, "retry").await;
    worker.lapse().await;
    worker.rows("update outlast._parked set next_at = outlast.clock(); select outlast.pause('c', 'the provider is down')").await;
    for _ in 0..3 {
        assert!(worker.claim(10, "").await.is_empty());
    }
    assert_eq!(
        worker
            .rows("select state, reason from outlast.consumer")
            .await,
        [["paused", "the provider is down"]]
    );
    // A deploy never un-pauses.
    worker
        .rows("select outlast.register('c', array['a', 'b'])")
        .await;
    assert!(worker.claim(10, "").await.is_empty());

    worker.rows("select outlast.resume('c')").await;
    for expected in ["0", "1", "2"] {
        assert_eq!(payloads(&worker.claim(1, "").await), [expected]);
    }
    assert_eq!(
        worker.state("select outlast.pause('nobody', 'x')").await,
        "OL012"
    );
    assert_eq!(
        worker.state("select outlast.resume('nobody')").await,
        "OL012"
    );
}

#[tokio::test]
async fn a_stopped_house_hands_out_nothing_and_takes_what_is_under_way() {
    let house = House::new().await;
    let worker = Foreign::new(&house).await;
    worker
        .rows("select outlast.register('c', array['a'])")
        .await;
    worker.emit(2).await;
    let row = worker.claim(1, "").await.remove(0);
    worker
        .rows("update outlast._house set stopped = 'restored from a backup'")
        .await;
    assert_eq!(
        worker.state("select outlast.claim('event', 'c')").await,
        "OL004"
    );
    worker.lapse().await;
    assert_eq!(
        worker.state("select outlast.claim('event', 'c')").await,
        "OL004"
    );
    worker.emit(1).await;
    worker.complete(&row).await;
    worker
        .rows("update outlast._house set stopped = null")
        .await;
    for expected in ["1", "0"] {
        assert_eq!(payloads(&worker.claim(1, "").await), [expected]);
    }
}

#[tokio::test]
async fn bad_arguments_have_a_typed_answer() {
    let house = House::new().await;
    let worker = Foreign::new(&house).await;
    worker
        .rows("select outlast.register('c', array['a'])")
        .await;
    worker.emit(1).await;
    let row = worker.claim(1, "").await.remove(0);
    let (token, id) = (&row.token, &row.id);
    let nobody = "00000000-0000-0000-0000-000000000000";
    for (state, sql) in [
        ("OL005", "select outlast.claim('jobs', 'c')".to_owned()),
        ("OL005", "select outlast.claim(null, 'c')".to_owned()),
        (
            "OL012",
            "select outlast.claim('event', 'nobody')".to_owned(),
        ),
        ("OL012", "select outlast.claim('event', null)".to_owned()),
        ("OL005", "select outlast.claim('event', 'c', 0)".to_owned()),
        (
            "OL005",
            "select outlast.claim('event', 'c', 1001)".to_owned(),
        ),
        (
            "OL005",
            "select outlast.claim('event', 'c', null)".to_owned(),
        ),
        (
            "OL005",
            "select outlast.claim('event', 'c', 1, 99)".to_owned(),
        ),
        (
            "OL005",
            "select outlast.claim('event', 'c', 1, 300001)".to_owned(),
        ),
        (
            "OL005",
            "select outlast.claim('event', 'c', 1, null)".to_owned(),
        ),
        (
            "OL005",
            format!("select outlast.complete('{token}', '{id}', 'happy')"),
        ),
        (
            "OL005",
            format!("select outlast.complete('{token}', '{id}', null)"),
        ),
        ("OL003", format!("select outlast.complete('{token}', null)")),
        ("OL001", format!("select outlast.complete(null, '{id}')")),
        (
            "OL001",
            format!("select outlast.complete('{nobody}', '{id}')"),
        ),
        (
            "OL003",
            format!("select outlast.complete('{token}', '{nobody}')"),
        ),
        (
            "OL005",
            format!("select outlast.fail('{token}', '{id}', 'sad', 'x')"),
        ),
        (
            "OL005",
            format!("select outlast.fail('{token}', '{id}', null, 'x')"),
        ),
        (
            "OL003",
            format!("select outlast.fail('{token}', '{nobody}', 'retry', 'x')"),
        ),
        (
            "OL001",
            format!("select outlast.fail('{nobody}', '{id}', 'retry', 'x')"),
        ),
        ("OL005", format!("select outlast.renew('{token}', 99)")),
        ("OL001", format!("select outlast.renew('{nobody}', 1000)")),
        ("OL001", "select outlast.renew(null, 1000)".to_owned()),
        ("OL001", format!("select outlast.fence('{nobody}')")),
        ("OL001", "select outlast.fence(null)".to_owned()),
        ("22P02", "select outlast.fence('not a token')".to_owned()),
        (
            "OL005",
            "select outlast.register('C', array['a'])".to_owned(),
        ),
        (
            "OL005",
            "select outlast.register('d', array['A'])".to_owned(),
        ),
        (
            "OL005",
            "select outlast.register('d', array[]::text[])".to_owned(),
        ),
        ("OL005", "select outlast.register('d', null)".to_owned()),
        (
            "OL005",
            "select outlast.register(null, array['a'])".to_owned(),
        ),
        (
            "OL005",
            "select outlast.register('d', array['a', null])".to_owned(),
        ),
        (
            "OL005",
            "select outlast.register('d', array['a'], 'tomorrow')".to_owned(),
        ),
    ] {
        assert_eq!(worker.state(&sql).await, state, "{sql}");
    }
    worker.complete(&row).await;
}
