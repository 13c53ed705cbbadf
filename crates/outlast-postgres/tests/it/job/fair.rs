//! Fairness: every account and tenant with work gets as much as any other, and each its turn.

use std::collections::{BTreeMap, HashSet};

use fastrand::Rng;

use super::{Job, Shop, ask, ids};
use crate::seeds;
use crate::sql::run;

async fn fill(shop: &Shop, tenant: &str, priority: i32, n: i32) {
    let sql = format!(
        "select count(*) from generate_series(1, {n}) i, lateral outlast.enqueue('mail', i::text, tenant => '{tenant}', priority => {priority}) e"
    );
    run(&shop.client, &sql).await;
}

fn by_tenant(jobs: &[Job]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for job in jobs {
        *counts.entry(job.tenant.as_str()).or_default() += 1;
    }
    counts
}

#[tokio::test]
async fn what_one_tenant_leaves_goes_to_the_others() {
    let shop = Shop::new().await;
    fill(&shop, "big", 0, 100).await;
    fill(&shop, "small", 0, 2).await;
    fill(&shop, "middle", 0, 5).await;
    let jobs = shop.claim("mail", 12).await;
    assert_eq!(
        by_tenant(&jobs),
        BTreeMap::from([("big", 5), ("middle", 5), ("small", 2)])
    );
    let jobs = shop.claim("mail", 12).await;
    assert_eq!(by_tenant(&jobs), BTreeMap::from([("big", 12)]));
    shop.must_be_sound().await;
}

#[tokio::test]
async fn many_priorities_are_not_many_shares() {
    let shop = Shop::new().await;
    for priority in [-1, 0, 1, 2] {
        fill(&shop, "a", priority, 20).await;
    }
    fill(&shop, "b", 5, 20).await;
    let jobs = shop.claim("mail", 10).await;
    assert_eq!(by_tenant(&jobs), BTreeMap::from([("a", 5), ("b", 5)]));
    assert_eq!(shop.claim("mail", 1000).await.len(), 90);
    shop.must_be_sound().await;
}

/// The cursor that a process keeps: behind whom to begin.
fn behind(jobs: &[Job]) -> String {
    let last = jobs.last().expect("some");
    format!(r#"{{"mail": ["", "{}"]}}"#, last.tenant)
}

#[tokio::test]
async fn with_more_tenants_than_room_each_has_its_turn() {
    let shop = Shop::new().await;
    for tenant in 0..23 {
        fill(&shop, &format!("t{tenant:02}"), 0, 3).await;
    }
    for room in [1, 4] {
        let mut after = "{}".to_owned();
        let mut seen = HashSet::new();
        run(&shop.client, "begin").await;
        for _ in 0..24_i32.div_euclid(room) + 1 {
            let jobs = ask("mail", room)
                .after(&after)
                .claim(&shop.client)
                .await
                .expect("claims");
            assert_eq!(jobs.len(), room as usize);
            assert_eq!(by_tenant(&jobs).len(), room as usize, "one of each");
            seen.extend(jobs.iter().map(|job| job.tenant.clone()));
            after = behind(&jobs);
        }
        assert_eq!(seen.len(), 23, "room {room}: somebody had no turn");
        run(&shop.client, "rollback").await;
    }
}

#[tokio::test]
async fn a_backlog_of_one_tenant_keeps_nobody_waiting() {
    let shop = Shop::new().await;
    fill(&shop, "flood", 0, 2000).await;
    let first = shop.claim("mail", 10).await;
    fill(&shop, "late", 0, 1).await;
    let jobs = ask("mail", 1)
        .after(&behind(&first))
        .claim(&shop.client)
        .await
        .expect("claims");
    assert_eq!(by_tenant(&jobs), BTreeMap::from([("late", 1)]));
}

/// Random backlogs: all of the room is used, nobody who has more left got less than another, order within a tenant.
#[tokio::test]
async fn whatever_waits_the_shares_differ_by_one_at_most() {
    for seed in seeds::seeds(3) {
        let mut rng = Rng::with_seed(seed);
        let shop = Shop::new().await;
        let mut left: BTreeMap<String, i32> = BTreeMap::new();
        for tenant in 0..rng.i32(1..12) {
            for priority in 0..rng.i32(1..4) {
                let n = rng.i32(0..30);
                if n > 0 {
                    fill(&shop, &format!("t{tenant:02}"), priority, n).await;
                    *left.entry(format!("t{tenant:02}")).or_default() += n;
                }
            }
        }
        let mut after = "{}".to_owned();
        loop {
            let room = rng.i32(1..40);
            let jobs = ask("mail", room)
                .after(&after)
                .claim(&shop.client)
                .await
                .expect("claims");
            let total: i32 = left.values().sum();
            assert_eq!(
                jobs.len() as i32,
                room.min(total),
                "seed {seed}: room {room} of {total}"
            );
            if jobs.is_empty() {
                break;
            }
            let counts = by_tenant(&jobs);
            let most = counts.values().max().copied().unwrap_or(0) as i32;
            let mut in_sight = HashSet::new();
            for (tenant, n) in &mut left {
                let got = counts.get(tenant.as_str()).copied().unwrap_or(0) as i32;
                *n -= got;
                if got > 0 {
                    in_sight.insert(tenant.clone());
                }
                // A tenant with several priorities may fill the list of groups: then the others have their turn next.
                if got > 0 && *n > 0 && counts.len() as i32 * 4 <= room {
                    assert!(
                        got >= most - 1,
                        "seed {seed}: {tenant} got {got} of {room}, another {most}"
                    );
                }
            }
            after = behind(&jobs);
        }
        let twice = shop
            .count("select count(*) - count(distinct id) from outlast._job_claimed")
            .await;
        assert_eq!(twice, 0);
        shop.must_be_sound().await;
        let _ = ids(&[]);
    }
}
