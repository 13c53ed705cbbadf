//! A worker in another language, from the first claim to the last.

use super::{Foreign, payloads};
use crate::house::House;
use crate::sql;

#[tokio::test]
async fn a_worker_claims_completes_fails_and_finds_everything_done() {
    let house = House::new().await;
    let worker = Foreign::new(&house).await;
    worker
        .rows("select outlast.register('c', array['a'])")
        .await;
    assert!(worker.claim(10, "").await.is_empty());
    worker.emit(5).await;

    let batch = worker.claim(3, "").await;
    assert_eq!(payloads(&batch), ["0", "1", "2"]);
    assert!(
        batch.iter().all(|row| row.token == batch[0].token),
        "one token a call"
    );
    assert!(batch.iter().all(|row| row.attempt == "1"));

    // Effect and seal in one transaction.
    worker.rows("create table effect (id uuid)").await;
    let both = format!(
        "begin; insert into effect values ('{1}'); select outlast.complete('{0}', '{1}'); commit",
        batch[0].token, batch[0].id
    );
    worker.rows(&both).await;
    assert_eq!(worker.state(&both).await, "OL002");
    worker.rows("rollback").await;
    assert_eq!(worker.rows("select count(*) from effect").await, [["1"]]);

    worker
        .rows(&format!(
            "select outlast.complete('{}', '{}', 'skipped', 'not ours')",
            batch[1].token, batch[1].id
        ))
        .await;
    assert_eq!(worker.fail(&batch[2], "retry").await, "retry");
    let until = worker
        .rows(&format!(
            "select outlast.renew('{}', 30000) > outlast.clock() + interval '29 seconds'",
            batch[0].token
        ))
        .await;
    assert_eq!(until, [["t"]]);
    worker
        .rows(&format!(
            "begin; select outlast.fence('{}'); commit",
            batch[0].token
        ))
        .await;

    let rest = worker.claim(10, "").await;
    assert_eq!(payloads(&rest), ["3", "4"]);
    for row in &rest {
        worker.complete(row).await;
    }
    worker
        .rows("update outlast._parked set next_at = outlast.clock()")
        .await;
    let again = worker.claim(10, "").await;
    assert_eq!(
        (payloads(&again), again[0].attempt.as_str()),
        (vec!["2"], "2")
    );
    worker.complete(&again[0]).await;

    assert_eq!(
        worker
            .rows("select outcome, count(*) from outlast.processed group by 1 order by 1")
            .await,
        [["done", "4"], ["skipped", "1"]]
    );
    worker.lapse().await;
    assert!(worker.claim(10, "").await.is_empty());
    assert_eq!(
        (worker.count("_lease").await, worker.count("_parked").await),
        (0, 0),
        "nothing stays behind"
    );
    assert_eq!(sql::broken(&worker.client).await, Vec::<String>::new());
}

/// Empty means that nothing is due: a claim that has something else to do does it besides.
#[tokio::test]
async fn a_claim_never_answers_nothing_while_something_is_due() {
    let house = House::new().await;
    let worker = Foreign::new(&house).await;
    worker
        .rows("select outlast.register('c', array['a'])")
        .await;
    worker.emit(30).await;
    for n in 0..30 {
        // Nobody says who he is, so each finished batch waits for its lease to lapse.
        let row = worker.claim(1, "").await;
        assert_eq!(payloads(&row), [n.to_string()]);
        if n % 7 == 0 {
            worker.fail(&row[0], "permanent").await;
        } else {
            worker.complete(&row[0]).await;
        }
        worker.lapse().await;
    }
    assert_eq!(worker.count("_lease").await, 1);
}

/// A seal that stays open keeps one batch, not the consumer.
#[tokio::test]
async fn a_claim_goes_on_beside_a_seal_that_is_stuck() {
    let house = House::new().await;
    let (worker, stuck) = (Foreign::new(&house).await, Foreign::new(&house).await);
    worker
        .rows("select outlast.register('c', array['a'])")
        .await;
    for isolation in ["read committed", "repeatable read"] {
        for parked in [false, true] {
            worker.emit(1).await;
            let mut row = worker.claim(1, "").await.remove(0);
            if parked {
                worker.fail(&row, "retry").await;
                worker
                    .rows("update outlast._parked set next_at = outlast.clock()")
                    .await;
                row = worker.claim(1, "").await.remove(0);
            }
            worker.lapse().await;
            stuck
                .rows(&format!(
                    "begin isolation level {isolation}; select outlast.complete('{}', '{}')",
                    row.token, row.id
                ))
                .await;
            worker.emit(1).await;
            let next = worker.claim(1, "").await;
            assert_eq!(next.len(), 1, "{isolation}, parked {parked}");
            assert_ne!(next[0].id, row.id);
            worker.complete(&next[0]).await;
            stuck.rows("commit").await;
        }
    }
    worker.lapse().await;
    assert!(worker.claim(1, "").await.is_empty());
    assert_eq!(worker.count("_lease").await, 0);
}

#[tokio::test]
async fn a_holder_ends_what_it_has_sealed_with_its_next_claim() {
    let house = House::new().await;
    let (one, two) = (Foreign::new(&house).await, Foreign::new(&house).await);
    one.rows("select outlast.register('c', array['a'])").await;
    one.emit(6).await;
    let mine = one.claim(2, ", holder => 'one'").await;
    let yours = two.claim(2, ", holder => 'two'").await;
    assert_eq!(
        (payloads(&mine), payloads(&yours)),
        (vec!["0", "1"], vec!["2", "3"]),
        "two holders share"
    );
    for row in mine.iter().chain(&yours) {
        one.complete(row).await;
    }
    let next = one.claim(1, ", holder => 'one'").await;
    assert_eq!(payloads(&next), ["4"]);
    let held = one
        .rows("select holder, count(*) from outlast.lease group by 1 order by 1")
        .await;
    assert_eq!(
        held,
        [["one", "1"], ["two", "1"]],
        "the first of one has ended, that of two has not"
    );
    // What is only half done stays.
    let half = one.claim(1, ", holder => 'one'").await;
    assert_eq!(payloads(&half), ["5"]);
    assert!(one.claim(1, ", holder => 'one'").await.is_empty());
    assert_eq!(one.count("_lease").await, 3);
    for row in next.iter().chain(&half) {
        one.complete(row).await;
    }
    one.claim(1, ", holder => 'one'").await;
    two.claim(1, ", holder => 'two'").await;
    assert_eq!(one.count("_lease").await, 0);
}

/// Holders that claim at once: each event goes to one of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_holders_at_once_share_and_do_everything_once() {
    let house = House::new().await;
    let boss = Foreign::new(&house).await;
    boss.rows("select outlast.register('c', array['a']); create table effect (id uuid)")
        .await;
    boss.rows("select count(*) from outlast.emit_all('a', array(select n::text from generate_series(1, 400) n))").await;
    let mut holders = Vec::new();
    for n in 0..4 {
        let worker = Foreign::new(&house).await;
        holders.push(tokio::spawn(async move {
            let holder = format!(", holder => 'holder {n}'");
            loop {
                let rows = worker.claim(7, &holder).await;
                if rows.is_empty() {
                    return;
                }
                for row in rows {
                    worker.rows(&format!("begin; insert into effect values ('{1}'); select outlast.complete('{0}', '{1}'); commit", row.token, row.id)).await;
                }
            }
        }));
    }
    for holder in holders {
        holder.await.expect("a holder ends");
    }
    assert_eq!(
        boss.rows("select count(*), count(distinct id) from effect")
            .await,
        [["400", "400"]]
    );
    assert_eq!(
        (
            boss.count("_processed_event").await,
            boss.count("_lease").await
        ),
        (400, 0)
    );
    assert_eq!(sql::broken(&boss.client).await, Vec::<String>::new());
}

#[tokio::test]
async fn lapsed_work_comes_first_then_retries_then_what_is_new() {
    let house = House::new().await;
    let worker = Foreign::new(&house).await;
    worker
        .rows("select outlast.register('c', array['a'])")
        .await;
    worker.emit(4).await;
    let first = worker.claim(1, "").await.remove(0);
    let second = worker.claim(1, "").await.remove(0);
    worker.fail(&second, "retry").await;
    worker.lapse().await;
    worker
        .rows("update outlast._parked set next_at = outlast.clock()")
        .await;
    let order = [
        worker.claim(5, "").await,
        worker.claim(5, "").await,
        worker.claim(5, "").await,
    ];
    assert_eq!(
        order.each_ref().map(|rows| payloads(rows)),
        [vec!["0"], vec!["1"], vec!["2", "3"]]
    );
    assert_ne!(order[0][0].token, first.token);
    assert_eq!(
        worker
            .state(&format!(
                "select outlast.complete('{}', '{}')",
                first.token, first.id
            ))
            .await,
        "OL001"
    );
}

/// A runner that has to go gives back what it has not done; nobody waits for its lease.
#[tokio::test]
async fn what_is_released_is_due_at_once_and_no_try_is_charged() {
    let house = House::new().await;
    let worker = Foreign::new(&house).await;
    worker
        .rows("select outlast.register('c', array['a'])")
        .await;
    worker.emit(3).await;
    let batch = worker.claim(3, "").await;
    worker.complete(&batch[0]).await;
    assert!(worker.claim(3, "").await.is_empty(), "it is in work");
    let release = format!("select outlast.release('{}')", batch[0].token);
    worker.rows(&release).await;
    let rest = worker.claim(3, "").await;
    assert_eq!(payloads(&rest), ["1", "2"]);
    let late = format!(
        "select outlast.complete('{}', '{}')",
        batch[1].token, batch[1].id
    );
    assert_eq!(worker.state(&late).await, "OL001");
    // It is somebody else's now: that changes nothing for him.
    worker.rows(&release).await;
    assert_eq!(worker.fail(&rest[0], "retry").await, "retry");
    let failures = "select failures from outlast.parked";
    assert_eq!(worker.rows(failures).await, [["1"]]);
    worker.complete(&rest[1]).await;
    // The same of a retry.
    worker
        .rows("update outlast._parked set next_at = outlast.clock()")
        .await;
    let again = worker.claim(1, "").await;
    worker
        .rows(&format!("select outlast.release('{}')", again[0].token))
        .await;
    assert_eq!(worker.rows(failures).await, [["1"]]);
    let again = worker.claim(1, "").await;
    assert_eq!(payloads(&again), ["1"]);
    worker.complete(&again[0]).await;
    assert_eq!(worker.count("processed").await, 3);
    assert_eq!(sql::broken(&worker.client).await, Vec::<String>::new());
}
