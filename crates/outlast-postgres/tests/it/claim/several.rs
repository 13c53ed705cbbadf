//! Several who claim at once, or one after the other's death: what users of similar systems reported.

use futures_util::future::join_all;
use tokio_postgres::Client;

use super::Foreign;
use crate::house::House;
use crate::sql::{self, Claim};

/// A lock at which reclaimers wait, with their lists in hand, until the test lets them go.
const GATE: i64 = 4404;
const LAPSE: &str = "update outlast._lease set expires_at = outlast.clock() - interval '1 second'";

async fn clients<const N: usize>(house: &House) -> [Client; N] {
    let clients = join_all((0..N).map(|_| house.connect())).await;
    clients.try_into().expect("so many were made")
}

// CL-04: the second one failed to take it, and ran what was on its list.
#[tokio::test]
async fn two_who_have_the_same_lapsed_batch_on_their_lists_start_it_once() {
    let house = House::new().await;
    let [boss, one, other] = clients(&house).await;
    let consumer = sql::register(&boss, "c", &["a"], "now", None).await;
    for _ in 0..5 {
        sql::emit(&boss, "a", None).await;
    }
    let lost = Claim::of(consumer).next(&boss).await.expect("claims");
    sql::run(&boss, LAPSE).await;
    let locks = "continue when not pg_try_advisory_xact_lock(outlast._lease_lock(t));";
    let gated = format!("perform pg_advisory_xact_lock_shared({GATE});\n    {locks}");
    house.plant("_reclaim", &[(locks, &gated)]).await;
    sql::run(&boss, &format!("select pg_advisory_lock({GATE})")).await;
    let pids = [sql::pid(&one).await, sql::pid(&other).await];
    let open = async {
        for pid in pids {
            sql::until_blocked(&boss, pid).await;
        }
        sql::run(&boss, &format!("select pg_advisory_unlock({GATE})")).await;
    };
    let (first, second, ()) = tokio::join!(
        sql::reclaim(&one, consumer, 10),
        sql::reclaim(&other, consumer, 10),
        open
    );
    let (first, second) = (first.expect("answers"), second.expect("answers"));
    let mut started = [first.len(), second.len()];
    started.sort_unstable();
    assert_eq!(
        started,
        [0, lost.len()],
        "each of them is started by one of the two"
    );
    let leases: i64 = sql::one(&boss, "select count(*) from outlast._lease", &[]).await;
    assert_eq!(leases, 1);
}

// Procrastinate #1518b, Oban #862, CL-01: a name that comes back is not the one who died.
#[tokio::test]
async fn who_comes_back_under_the_same_name_neither_owns_nor_keeps_what_died_with_it() {
    let house = House::new().await;
    let (before, after) = (Foreign::new(&house).await, Foreign::new(&house).await);
    before
        .rows("select outlast.register('c', array['a'])")
        .await;
    before
        .rows("select count(*) from outlast.emit_all('a', array['1', '2', '3'])")
        .await;
    let died = before.claim(3, ", holder => 'pod-1'").await;
    assert_eq!(died.len(), 3);
    let ends = "select expires_at from outlast._lease";
    let until = after.rows(ends).await;
    assert!(after.claim(3, ", holder => 'pod-1'").await.is_empty());
    assert_eq!(after.rows(ends).await, until, "its lease is left to lapse");
    after.rows(LAPSE).await;
    let again = after.claim(3, ", holder => 'pod-1'").await;
    let ids = |rows: &[super::Row]| rows.iter().map(|row| row.id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&again), ids(&died));
    assert!(again.iter().all(|row| row.attempt == "2"), "{again:?}");
}

// GoodJob, Solid Queue and others: a plan made from old statistics ran the limited part more than once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_gets_more_than_he_asked_for_whatever_the_statistics_say() {
    let house = House::new().await;
    let [boss, a, b, c] = clients(&house).await;
    let consumer = sql::register(&boss, "c", &["a"], "now", None).await;
    // What the planner knows from now on: all is empty.
    sql::run(&boss, "analyze").await;
    sql::run(&boss, "select count(*) from outlast.emit_all('a', array(select n::text from generate_series(1, 1500) n))").await;
    let mut claimed = Vec::new();
    loop {
        let claim = Claim::of(consumer).n(7);
        let all = join_all([&a, &b, &c].map(|client| claim.next(client))).await;
        let all: Vec<_> = all
            .into_iter()
            .map(|events| events.expect("claims"))
            .collect();
        assert!(all.iter().all(|events| events.len() <= 7));
        if all.iter().all(Vec::is_empty) {
            break;
        }
        claimed.extend(all.into_iter().flatten());
    }
    claimed.sort_by_key(|event| event.id);
    claimed.dedup_by_key(|event| event.id);
    assert_eq!(claimed.len(), 1500);

    // The same for what is tried again.
    for event in &claimed[..60] {
        sql::fail(&boss, event.token, event.id, "retry")
            .await
            .expect("fails");
    }
    sql::run(
        &boss,
        "update outlast._parked set next_at = outlast.clock()",
    )
    .await;
    let mut again = Vec::new();
    loop {
        let all = join_all([&a, &b, &c].map(|client| sql::claim_parked(client, consumer, 4))).await;
        let all: Vec<_> = all
            .into_iter()
            .map(|events| events.expect("claims"))
            .collect();
        assert!(all.iter().all(|events| events.len() <= 4));
        if all.iter().all(Vec::is_empty) {
            break;
        }
        again.extend(all.into_iter().flatten());
    }
    again.sort_by_key(|event| event.id);
    again.dedup_by_key(|event| event.id);
    assert_eq!(again.len(), 60);
}

// CAP #1797: each of N replicas tried a poison message again, so it was tried N times an interval.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_processes_one_tries_again_and_only_when_it_is_due() {
    let house = House::new().await;
    let [boss, a, b, c] = clients(&house).await;
    let consumer = sql::register(&boss, "c", &["a"], "now", None).await;
    let poison = sql::emit(&boss, "a", None).await;
    let mut token = Claim::of(consumer).next(&boss).await.expect("claims")[0].token;
    for number in 2..6 {
        let fail = "select outlast.fail($1, $2, 'retry', 'why', 60000)";
        boss.execute(fail, &[&token, &poison]).await.expect("fails");
        let early =
            join_all([&a, &b, &c].map(|client| sql::claim_parked(client, consumer, 5))).await;
        assert!(
            early
                .into_iter()
                .all(|events| events.expect("answers").is_empty())
        );
        sql::run(
            &boss,
            "update outlast._parked set next_at = outlast.clock()",
        )
        .await;
        let due = join_all([&a, &b, &c].map(|client| sql::claim_parked(client, consumer, 5))).await;
        let due: Vec<_> = due
            .into_iter()
            .flat_map(|events| events.expect("answers"))
            .collect();
        assert_eq!((due.len(), due[0].attempt), (1, number));
        token = due[0].token;
    }
}

// River #1105: a process that had not registered a kind discarded it.
#[tokio::test]
async fn what_a_process_does_not_know_waits_uncharged_for_one_that_does() {
    let house = House::new().await;
    let client = house.connect().await;
    let consumer = sql::register(&client, "c", &["a"], "now", None).await;
    let id = sql::emit(&client, "a", None).await;
    let token = Claim::of(consumer).next(&client).await.expect("claims")[0].token;
    sql::fail(&client, token, id, "retry").await.expect("fails");
    sql::finish(&client, &[token]).await.expect("finishes");
    sql::run(
        &client,
        "update outlast._parked set next_at = outlast.clock()",
    )
    .await;
    let row = "select format('%s %s %s', failures, crashes, token) from outlast._parked";
    let before: String = sql::one(&client, row, &[]).await;
    let stranger = "select * from outlast._claim_parked($1, 10, 60000, array['b'], array[1])";
    let got = client.query(stranger, &[&consumer]).await.expect("answers");
    assert!(got.is_empty());
    assert_eq!(sql::one::<String>(&client, row, &[]).await, before);
    let knows = "select * from outlast._claim_parked($1, 10, 60000, array['a'], array[1])";
    let got = client.query(knows, &[&consumer]).await.expect("answers");
    assert_eq!(got.len(), 1, "and he gets it at once");
}

// graphile #254, #204, #222, #198: a named queue stayed locked for hours after its worker's crash.
#[tokio::test]
async fn a_lane_whose_worker_died_goes_on_when_its_lease_has_lapsed() {
    let house = House::new().await;
    let [dead, heir] = clients(&house).await;
    let consumer = sql::register(&heir, "c", &["a"], "now", Some(1)).await;
    let first = sql::emit(&heir, "a", Some("k")).await;
    let second = sql::emit(&heir, "a", Some("k")).await;
    let claim = Claim::of(consumer).n(1);
    assert_eq!(claim.next(&dead).await.expect("claims")[0].id, first);
    drop(dead);
    assert!(
        claim.next(&heir).await.expect("answers").is_empty(),
        "one batch a lane"
    );
    sql::run(&heir, LAPSE).await;
    let again = sql::reclaim(&heir, consumer, 10).await.expect("reclaims");
    assert_eq!((again[0].id, again.len()), (first, 1));
    sql::complete(&heir, again[0].token, first)
        .await
        .expect("completes");
    sql::finish(&heir, &[again[0].token])
        .await
        .expect("finishes");
    assert_eq!(claim.next(&heir).await.expect("claims")[0].id, second);
}

// Eventuous #588 (a rolled-back id stalled readers for an hour), CL-13 and its like (a slow transaction's id was lost).
#[tokio::test]
async fn neither_an_id_that_was_rolled_back_nor_one_that_is_still_open_delays_anybody() {
    let house = House::new().await;
    let [reader, slow, gone] = clients(&house).await;
    let consumer = sql::register(&reader, "c", &["a"], "now", None).await;
    let claim = Claim::of(consumer);
    let ids = async || -> Vec<_> {
        let events = claim.next(&reader).await.expect("claims");
        events.iter().map(|event| event.id).collect()
    };
    sql::run(&slow, "begin").await;
    let late = sql::emit(&slow, "a", None).await;
    sql::run(&gone, "begin; select outlast.emit('a', '{}'); rollback").await;
    let quick = sql::emit(&reader, "a", None).await;
    assert_eq!(ids().await, [quick]);
    sql::run(&slow, "commit").await;
    assert_eq!(ids().await, [late]);
    assert!(ids().await.is_empty());
}
