//! What a heavy tenant may cost the others. Truth is in the tables: how much of its backlog was done meanwhile.

use super::{Workers, completed, emit, side_rows};
use crate::house::House;
use crate::sql::{self, Claim};

const BACKLOG: i32 = 6_000;

/// The heavy ones emit first; then, when their work is under way, `light` emits ten events. Answers how many events of
/// the heavy ones were done from then until all ten were.
async fn done_before_ten(
    lanes: Option<i32>,
    workers: usize,
    heavy: &[&str],
    together: bool,
) -> i64 {
    let house = House::new().await;
    let client = house.connect().await;
    let consumer = sql::register(&client, "c", &["a"], "now", lanes).await;
    if together {
        sql::run(&client, "begin").await;
    }
    for tenant in heavy {
        emit(&client, tenant, BACKLOG / heavy.len() as i32, 50).await;
    }
    if together {
        emit(&client, "early", 10, 3).await;
        sql::run(&client, "commit").await;
    }
    let mut workers = Workers::new(&house, consumer, workers).await;
    for _ in 0..4 {
        workers.turn().await;
    }
    let light = if together { "early" } else { "light" };
    if !together {
        emit(&client, light, 10, 3).await;
    }
    let of_heavy = async || {
        let mut n = 0;
        for tenant in heavy {
            n += completed(&client, consumer, tenant).await;
        }
        n
    };
    let before = of_heavy().await;
    while completed(&client, consumer, light).await < 10 {
        assert!(workers.turn().await, "{light} is not done");
    }
    let meanwhile = of_heavy().await - before;

    workers.until_idle().await;
    for tenant in heavy {
        let all = i64::from(BACKLOG / heavy.len() as i32);
        assert_eq!(completed(&client, consumer, tenant).await, all, "{tenant}");
    }
    assert_eq!(side_rows(&client).await, 0, "side lanes have come back");
    assert_eq!(sql::broken(&client).await, Vec::<String>::new());
    meanwhile
}

#[tokio::test]
async fn ten_events_do_not_wait_behind_the_backlog_of_another_tenant() {
    for workers in [1, 2] {
        let meanwhile = done_before_ten(None, workers, &["heavy"], false).await;
        assert!(meanwhile <= 1000, "{workers} workers: {meanwhile}");
    }
}

#[tokio::test]
async fn ten_ordered_events_do_not_wait_behind_the_backlog_of_another_tenant() {
    for workers in [1, 2] {
        let meanwhile = done_before_ten(Some(4), workers, &["heavy"], false).await;
        assert!(meanwhile <= 2000, "{workers} workers: {meanwhile}");
    }
}

#[tokio::test]
async fn ten_events_do_not_wait_behind_the_backlogs_of_several_tenants() {
    for lanes in [None, Some(4)] {
        let meanwhile = done_before_ten(lanes, 2, &["one", "two", "three"], false).await;
        assert!(meanwhile <= 2000, "{lanes:?}: {meanwhile}");
    }
}

/// Behind all of it in one transaction, whose commit comes late: stragglers.
#[tokio::test]
async fn ten_events_at_the_end_of_a_backlog_are_found_there() {
    for lanes in [None, Some(4)] {
        let meanwhile = done_before_ten(lanes, 1, &["one", "two"], true).await;
        assert!(meanwhile <= 2000, "{lanes:?}: {meanwhile}");
    }
}

/// Nobody is heavy by himself, but few of them are all of the backlog.
#[tokio::test]
async fn ten_events_do_not_wait_behind_twenty_tenants_who_share_a_backlog() {
    let house = House::new().await;
    let client = house.connect().await;
    let consumer = sql::register(&client, "c", &["a"], "now", None).await;
    for round in 0..120 {
        for tenant in 0..20 {
            emit(&client, &format!("t{}", (tenant * 7 + round) % 20), 2, 2).await;
        }
    }
    let mut workers = Workers::new(&house, consumer, 1).await;
    for _ in 0..4 {
        workers.turn().await;
    }
    emit(&client, "light", 10, 3).await;
    let all = "select count(*) from outlast._processed_event";
    let before: i64 = sql::one(&client, all, &[]).await;
    while completed(&client, consumer, "light").await < 10 {
        assert!(workers.turn().await);
    }
    let meanwhile = sql::one::<i64>(&client, all, &[]).await - before;
    assert!(meanwhile <= 2000, "{meanwhile}");
    workers.until_idle().await;
    assert_eq!(side_rows(&client).await, 0);
    assert_eq!(sql::broken(&client).await, Vec::<String>::new());
}

/// The same without side lanes: the test can see.
#[tokio::test]
async fn without_side_lanes_ten_events_wait_behind_all_of_it() {
    let house = House::new().await;
    let client = house.connect().await;
    house
        .plant("_heavy", &[("if n = 0 or", "if true or")])
        .await;
    let consumer = sql::register(&client, "c", &["a"], "now", None).await;
    emit(&client, "heavy", 2000, 50).await;
    emit(&client, "light", 10, 3).await;
    let mut workers = Workers::new(&house, consumer, 1).await;
    while completed(&client, consumer, "light").await == 0 {
        assert!(workers.turn().await);
    }
    assert!(completed(&client, consumer, "heavy").await >= 1900);
}

/// A tenant whose events come in all the time beside a straggler of another one: taken apart, none is lost.
#[tokio::test]
async fn a_straggler_of_a_light_tenant_is_found_while_the_heavy_one_is_read() {
    let house = House::new().await;
    let (client, slow) = (house.connect().await, house.connect().await);
    let consumer = sql::register(&client, "c", &["a"], "now", None).await;
    sql::run(&slow, "begin").await;
    emit(&slow, "slow", 5, 5).await;
    emit(&client, "heavy", 4_000, 50).await;
    let mut workers = Workers::new(&house, consumer, 1).await;
    for _ in 0..6 {
        workers.turn().await;
    }
    sql::run(&slow, "commit").await;
    let before = completed(&client, consumer, "heavy").await;
    while completed(&client, consumer, "slow").await < 5 {
        assert!(workers.turn().await);
    }
    let meanwhile = completed(&client, consumer, "heavy").await - before;
    assert!(meanwhile <= 1000, "{meanwhile}");
    workers.until_idle().await;
    assert_eq!(side_rows(&client).await, 0);
    assert_eq!(sql::broken(&client).await, Vec::<String>::new());
}

/// Quick handlers get batches of a thousand, and a dense backlog fills each page exactly: it is full all the same.
#[tokio::test]
async fn ten_events_do_not_wait_behind_full_pages_of_another_tenant() {
    for planted in [false, true] {
        let house = House::new().await;
        if planted {
            let exact = ("greatest(n + 1, 1000)", "greatest(n, 1000)");
            house.plant("_page", &[exact]).await;
        }
        let client = house.connect().await;
        let consumer = sql::register(&client, "c", &["a"], "now", None).await;
        emit(&client, "heavy", BACKLOG, 50).await;
        emit(&client, "light", 10, 3).await;
        let mut behind = 0;
        loop {
            let batch = Claim::of(consumer).n(1000).next(&client).await;
            let batch = batch.expect("claims");
            let light: i64 = sql::one(
                &client,
                "select count(*) from outlast._event where tenant = 'light' and event_id = any ($1)",
                &[&batch.iter().map(|event| event.id).collect::<Vec<_>>()],
            )
            .await;
            if light > 0 {
                break;
            }
            behind += batch.len();
        }
        assert_eq!(behind == BACKLOG as usize, planted, "{behind} came before");
        assert!(planted || behind <= 2000, "{behind} came before");
    }
}

/// Whoever claims second does not believe that there is nothing: he waits his turn and takes what the first one left.
#[tokio::test]
async fn who_claims_second_takes_what_the_first_one_had_no_room_for() {
    for planted in [false, true] {
        let house = House::new().await;
        if planted {
            let wait = "perform pg_advisory_xact_lock(outlast._lane_lock((c).id, 0));";
            let look = "if not pg_try_advisory_xact_lock(outlast._lane_lock((c).id, 0)) then return null; end if;";
            house.plant("_lock_parts", &[(wait, look)]).await;
        }
        let client = house.connect().await;
        let (first, second) = (house.connect().await, house.connect().await);
        let consumer = sql::register(&client, "c", &["a"], "now", Some(4)).await;
        emit(&client, "t", 20, 10).await;
        let claim = Claim {
            lanes: 1,
            sides: 1,
            ..Claim::of(consumer)
        };
        sql::run(&first, "begin").await;
        let taken = claim.run(&first).await.expect("claims").events;
        assert!(!taken.is_empty() && taken.len() < 20);
        let pid = sql::pid(&second).await;
        let claiming =
            tokio::spawn(async move { claim.run(&second).await.expect("claims").events });
        if !planted {
            sql::until_blocked(&client, pid).await;
            sql::run(&first, "commit").await;
        }
        let rest = claiming.await.expect("claims");
        assert_eq!(rest.is_empty(), planted, "{rest:?}");
        assert!(
            rest.iter()
                .all(|one| taken.iter().all(|other| one.id != other.id))
        );
    }
}
