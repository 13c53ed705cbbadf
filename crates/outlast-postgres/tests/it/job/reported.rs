//! What users of similar systems reported, tried on jobs: the name of each test says what must hold instead.

use std::collections::HashSet;

use futures_util::future::join_all;
use uuid::Uuid;

use super::{Shop, ask, complete, enqueue, ids};
use crate::sql::{self, one, run};

/// Jobs by the door for other languages, for a holder of this name.
async fn claim_as(shop: &Shop, name: &str, holder: &str) -> Vec<(Uuid, Uuid)> {
    let sql = "select token, id from outlast.claim('job', $1, 10, 15000, $2)";
    let rows = shop.client.query(sql, &[&name, &holder]).await;
    let rows = rows.expect("claims");
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

// Procrastinate #1518b, Oban #862: a process that came back under its old name kept what had died with it.
#[tokio::test]
async fn who_comes_back_under_the_same_name_neither_owns_nor_keeps_what_died_with_it() {
    let shop = Shop::new().await;
    let sent = shop.enqueue("mail", 1).await;
    let before = claim_as(&shop, "mail", "web-1").await;
    assert!(claim_as(&shop, "mail", "web-1").await.is_empty());
    shop.lapse().await;
    let after = claim_as(&shop, "mail", "web-1").await;
    assert_eq!((after.len(), after[0].1), (1, sent[0]));
    assert_ne!(after[0].0, before[0].0, "a token of its own");
    let old = sql::complete(&shop.client, before[0].0, sent[0]).await;
    assert_eq!(sql::state(old), "OL001");
    sql::complete(&shop.client, after[0].0, sent[0])
        .await
        .expect("the new one completes");
    shop.must_be_sound().await;
}

// River #1105: who rescued what had lapsed discarded the kinds that he had no code for.
#[tokio::test]
async fn whoever_gives_back_what_has_lapsed_needs_to_know_nothing_of_it() {
    let shop = Shop::new().await;
    let sent = shop.enqueue("mail", 2).await;
    shop.claim("mail", 2).await;
    shop.lapse().await;
    assert!(claim_as(&shop, "other", "elsewhere").await.is_empty());
    for id in &sent {
        assert_eq!(shop.state(*id).await, "waiting");
    }
    let again = shop.claim("mail", 9).await;
    assert_eq!(ids(&again), sent);
    assert!(
        again.iter().all(|job| job.attempt == 1),
        "nobody is charged"
    );
    shop.must_be_sound().await;
}

// "LIMIT overshoot": a plan with a loop around the locking part took more than was asked for.
#[tokio::test]
async fn nobody_gets_more_jobs_than_he_asked_for_whatever_the_statistics_say() {
    let shop = Shop::new().await;
    // What the planner knows from now on: all is empty.
    run(&shop.client, "analyze").await;
    let many = "select count(*) from generate_series(1, 900) n cross join lateral
        outlast.enqueue('mail', n::text, tenant => 't' || n % 5, priority => n % 3) e where e.new";
    assert_eq!(one::<i64>(&shop.client, many, &[]).await, 900);
    let clients = join_all((0..3).map(|_| shop.house.connect())).await;
    let mut claimed = HashSet::new();
    loop {
        let claim = ask("mail", 7);
        let all = join_all(clients.iter().map(|client| claim.claim(client))).await;
        let all: Vec<_> = all.into_iter().map(|jobs| jobs.expect("claims")).collect();
        assert!(all.iter().all(|jobs| jobs.len() <= 7));
        if all.iter().all(Vec::is_empty) {
            break;
        }
        for job in all.into_iter().flatten() {
            assert!(claimed.insert(job.id), "nobody else has it");
        }
    }
    assert_eq!(claimed.len(), 900);
    shop.must_be_sound().await;
}

// pg-boss #535: what could not be taken was always taken first, and nothing else ever.
#[tokio::test]
async fn many_that_are_too_new_in_front_hide_nothing_behind_them() {
    let shop = Shop::new().await;
    for _ in 0..60 {
        enqueue(&shop.client, "'mail', '{}', version => 2").await;
    }
    let readable = shop.enqueue("mail", 1).await;
    let drawn = "select last_value from outlast._event_id";
    for look in 1.. {
        let before: i64 = one(&shop.client, drawn, &[]).await;
        let got = shop.claim("mail", 2).await;
        if !got.is_empty() {
            assert_eq!(ids(&got), readable);
            complete(&shop.client, got[0].token, &readable)
                .await
                .expect("completes");
            break;
        }
        let after: i64 = one(&shop.client, drawn, &[]).await;
        assert!(
            after > before && look < 60,
            "whoever finds nothing so far is told to look again"
        );
    }
    shop.must_be_sound().await;
}
