//! Claims: what is handed out, to whom, in which order and how much of it.

use std::collections::HashSet;

use tokio::task::JoinSet;
use uuid::Uuid;

use super::{Shop, ask, complete, enqueue, finish, ids, state};
use crate::sql::{self, one, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_claimers_get_each_job_once() {
    let shop = Shop::new().await;
    for n in 0..10 {
        let sql = format!(
            "select count(*) from generate_series(1, 60) i, lateral outlast.enqueue('mail', i::text, tenant => 't' || i % {}) e",
            n + 1
        );
        run(&shop.client, &sql).await;
    }
    let mut claimers = JoinSet::new();
    for _ in 0..4 {
        let client = shop.house.connect().await;
        claimers.spawn(async move {
            let mut mine = Vec::new();
            loop {
                let jobs = ask("mail", 7).claim(&client).await.expect("claims");
                if jobs.is_empty() {
                    return mine;
                }
                complete(&client, jobs[0].token, &ids(&jobs[..1]))
                    .await
                    .expect("completes");
                mine.extend(ids(&jobs));
            }
        });
    }
    let all: Vec<Uuid> = claimers.join_all().await.into_iter().flatten().collect();
    assert_eq!(
        all.iter().collect::<HashSet<_>>().len(),
        all.len(),
        "one was handed out twice"
    );
    // Whoever saw nothing may have met locks: the rest is there.
    let rest = shop.claim("mail", 1000).await;
    assert_eq!(all.len() + rest.len(), 600);
    shop.must_be_sound().await;
}

/// One claim has not committed; another goes past it.
async fn past_an_open_claim(shop: &Shop, several: bool) -> Result<usize, tokio_postgres::Error> {
    let (first, second) = (shop.house.connect().await, shop.house.connect().await);
    for n in 0..10 {
        let tenant = if several { n % 2 } else { 0 };
        enqueue(
            &shop.client,
            &format!("'mail', '{{}}', tenant => 't{tenant}'"),
        )
        .await;
    }
    run(&first, "begin").await;
    let jobs = ask("mail", 4).claim(&first).await?;
    assert_eq!(jobs.len(), 4);
    run(&second, "set lock_timeout = '300ms'").await;
    let other = ask("mail", 20).claim(&second).await;
    run(&first, "commit").await;
    let other = other?;
    assert!(other.iter().all(|job| !ids(&jobs).contains(&job.id)));
    Ok(other.len())
}

#[tokio::test]
async fn a_claim_waits_for_no_other_and_without_skip_locked_it_does() {
    for several in [false, true] {
        let shop = Shop::new().await;
        assert_eq!(past_an_open_claim(&shop, several).await.expect("claims"), 6);
        let shop = Shop::new().await;
        let (function, old) = if several {
            (
                "_take_fairly",
                "order by x.seq limit share for update skip locked",
            )
        } else {
            ("_take_of", "order by x.seq limit n for update skip locked")
        };
        let new = old.strip_suffix(" skip locked").expect("it ends so");
        shop.house.plant(function, &[(old, new)]).await;
        assert_eq!(
            sql::state(past_an_open_claim(&shop, several).await),
            "55P03"
        );
    }
}

#[tokio::test]
async fn names_that_nobody_asks_for_stay_as_they_are() {
    let shop = Shop::new().await;
    let unknown = shop.enqueue("unknown", 2).await;
    let mail = shop.enqueue("mail", 1).await;
    let jobs = ask("mail", 5)
        .and("sms", 5)
        .claim(&shop.client)
        .await
        .expect("claims");
    assert_eq!(ids(&jobs), mail);
    shop.lose().await;
    assert_eq!(shop.state(unknown[0]).await, "waiting");
    assert_eq!(
        shop.count("select count(*) from outlast._job_state where lapses = 0")
            .await,
        0
    );
    let none = ask("mail", 0)
        .and("unknown", 0)
        .claim(&shop.client)
        .await
        .expect("claims");
    assert_eq!(none, []);
    let jobs = shop.claim("unknown", 5).await;
    assert_eq!(
        (ids(&jobs), jobs[0].attempt, jobs[0].lapses),
        (unknown, 1, 0)
    );
}

#[tokio::test]
async fn a_lower_priority_runs_sooner_and_of_one_priority_the_first_that_came() {
    let shop = Shop::new().await;
    let mut by_priority = Vec::new();
    for priority in [0, 10, -10, 0, 10, -10] {
        let id = enqueue(
            &shop.client,
            &format!("'mail', '{{}}', priority => {priority}"),
        )
        .await;
        by_priority.push((priority, id));
    }
    by_priority.sort_by_key(|(priority, _)| *priority);
    let wanted: Vec<_> = by_priority.iter().map(|(_, id)| *id).collect();
    let mut got = ids(&shop.claim("mail", 3).await);
    got.extend(ids(&shop.claim("mail", 1).await));
    got.extend(ids(&shop.claim("mail", 9).await));
    assert_eq!(got, wanted);
}

#[tokio::test]
async fn not_more_is_handed_out_than_may_be_in_memory_but_one_in_any_case() {
    let shop = Shop::new().await;
    let mut sent = Vec::new();
    for name in ["mail", "mail", "mail", "sms", "sms"] {
        sent.push(
            enqueue(
                &shop.client,
                &format!("'{name}', '\"' || repeat('a', 100000) || '\"'"),
            )
            .await,
        );
    }
    // All names count together.
    let both = ask("mail", 10).and("sms", 10).max_bytes(400_000);
    let jobs = both.claim(&shop.client).await.expect("claims");
    assert_eq!(ids(&jobs), sent[..3]);
    shop.must_be_sound().await;
    finish(&shop.client, jobs[0].token)
        .await
        .expect("gives back");
    let jobs = ask("sms", 10)
        .max_bytes(150_000)
        .claim(&shop.client)
        .await
        .expect("claims");
    assert_eq!(
        ids(&jobs),
        sent[3..4],
        "what was put back stands where it stood"
    );
    let jobs = ask("sms", 10)
        .max_bytes(10)
        .claim(&shop.client)
        .await
        .expect("claims");
    assert_eq!((ids(&jobs), jobs[0].bytes), (sent[4..].to_vec(), 100_002));
    shop.must_be_sound().await;
}

#[tokio::test]
async fn a_paused_name_waits_until_it_is_resumed_and_what_runs_goes_on() {
    let shop = Shop::new().await;
    let mail = shop.enqueue("mail", 3).await;
    let sms = shop.enqueue("sms", 1).await;
    let running = shop.claim("mail", 1).await.remove(0);
    for (sql, first, again) in [
        (
            "select outlast.pause_job('mail', 'the provider is down', 'jo')",
            true,
            false,
        ),
        ("select outlast.resume_job('mail', 'jo')", true, false),
        ("select outlast.pause_job('mail', 'again')", true, false),
    ] {
        assert_eq!(
            (
                one::<bool>(&shop.client, sql, &[]).await,
                one::<bool>(&shop.client, sql, &[]).await
            ),
            (first, again),
            "{sql}"
        );
    }
    let due = async || {
        one::<bool>(
            &shop.client,
            "select ready from outlast._due_jobs('{mail}')",
            &[],
        )
        .await
    };
    assert!(!due().await, "whoever asks whether to claim is told no");
    let both = ask("mail", 5).and("sms", 5);
    assert_eq!(ids(&both.claim(&shop.client).await.expect("claims")), sms);
    complete(&shop.client, running.token, &[running.id])
        .await
        .expect("completes");
    // What goes back waits, too; also what is to run alone.
    let sql = "select outlast.resume_job('mail')";
    run(&shop.client, sql).await;
    assert!(due().await);
    let two = shop.claim("mail", 5).await;
    assert_eq!(ids(&two), mail[1..]);
    super::start(&shop.client, two[0].token, &ids(&two))
        .await
        .expect("marks");
    run(&shop.client, "select outlast.pause_job('mail', 'again')").await;
    assert_eq!(shop.lose().await, 3, "with the other name's");
    assert!(!due().await);
    assert_eq!(ids(&both.claim(&shop.client).await.expect("claims")), sms);
    shop.must_be_sound().await;
}

#[tokio::test]
async fn a_newer_version_is_put_off_uncharged_and_what_is_behind_it_runs() {
    let shop = Shop::new().await;
    let mut newer = Vec::new();
    for _ in 0..6 {
        newer.push(enqueue(&shop.client, "'mail', '{}', version => 2").await);
    }
    let old = shop.enqueue("mail", 1).await;
    assert_eq!(
        ids(&shop.claim("mail", 2).await),
        old,
        "it is found behind three times the room"
    );
    assert_eq!(shop.state(newer[0]).await, "waiting");
    let why: String = one(
        &shop.client,
        "select reason from outlast._job_status($1)",
        &[&newer[0]],
    )
    .await;
    assert_eq!(why, "no worker with a handler for this version");
    shop.must_be_sound().await;
    shop.due().await;
    let jobs = ask("mail", 10)
        .version(2)
        .claim(&shop.client)
        .await
        .expect("claims");
    assert_eq!((jobs.len(), jobs[0].attempt, jobs[0].lapses), (6, 1, 0));
}

#[tokio::test]
async fn a_newer_version_that_is_to_run_alone_is_put_off_too() {
    let shop = Shop::new().await;
    enqueue(&shop.client, "'mail', '{}', version => 2").await;
    let jobs = ask("mail", 1)
        .version(2)
        .claim(&shop.client)
        .await
        .expect("claims");
    super::start(&shop.client, jobs[0].token, &ids(&jobs))
        .await
        .expect("marks");
    assert_eq!(shop.lose().await, 1);
    let ordinary = shop.enqueue("mail", 1).await;
    assert_eq!(ids(&shop.claim("mail", 1).await), ordinary);
    shop.must_be_sound().await;
    run(
        &shop.client,
        "update outlast._job_later set due_at = outlast.clock()",
    )
    .await;
    let again = ask("mail", 1)
        .version(2)
        .claim(&shop.client)
        .await
        .expect("claims");
    assert_eq!(ids(&again), ids(&jobs));
}

#[tokio::test]
async fn a_claim_of_nothing_takes_no_transaction_id_and_one_of_something_remembers_its_process() {
    let shop = Shop::new().await;
    let process = Uuid::new_v4();
    run(&shop.client, "begin").await;
    assert_eq!(
        ask("mail", 5)
            .process(process)
            .claim(&shop.client)
            .await
            .expect("claims"),
        []
    );
    let none: bool = one(
        &shop.client,
        "select pg_current_xact_id_if_assigned() is null",
        &[],
    )
    .await;
    assert!(none);
    run(&shop.client, "commit").await;
    let remembered = "select count(*) from outlast._process";
    assert_eq!(shop.count(remembered).await, 0);
    shop.enqueue("mail", 1).await;
    run(&shop.client, "begin; set local synchronous_commit = off").await;
    assert_eq!(
        ask("mail", 5)
            .process(process)
            .claim(&shop.client)
            .await
            .expect("claims")
            .len(),
        1
    );
    let durable: String = one(
        &shop.client,
        "select current_setting('synchronous_commit')",
        &[],
    )
    .await;
    assert_eq!(durable, "on", "what leaves is durable before");
    run(&shop.client, "commit").await;
    assert_eq!(shop.count(remembered).await, 1);
}

#[tokio::test]
async fn a_floor_hides_what_is_below_it_in_its_group_and_nothing_else() {
    let shop = Shop::new().await;
    let mut sent = Vec::new();
    for (tenant, priority) in [("a", 0), ("b", 0), ("b", 1), ("b", 0), ("c", 0), ("b", 2)] {
        sent.push(
            enqueue(
                &shop.client,
                &format!("'mail', '{{}}', tenant => '{tenant}', priority => {priority}"),
            )
            .await,
        );
    }
    let seq: i64 = one(
        &shop.client,
        "select seq from outlast._job_ready where id = $1",
        &[&sent[1]],
    )
    .await;
    let floors = |above: i64| {
        format!(
            r#"{{"mail": [{{"account": "", "tenant": "b", "priority": 0, "above": {above}}}, {{"account": "", "tenant": "bb", "priority": 0, "above": 9}}]}}"#
        )
    };
    for (above, hidden) in [
        (seq - 1, vec![]),
        (seq, vec![1]),
        (seq + 2, vec![1, 3]),
        (1000, vec![1, 3]),
    ] {
        run(&shop.client, "begin").await;
        let jobs = ask("mail", 50)
            .floors(&floors(above))
            .claim(&shop.client)
            .await
            .expect("claims");
        let mut got = ids(&jobs);
        got.sort();
        let mut wanted: Vec<_> = (0..6)
            .filter(|n| !hidden.contains(n))
            .map(|n| sent[n])
            .collect();
        wanted.sort();
        assert_eq!(got, wanted, "above {above}");
        run(&shop.client, "rollback").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_promotions_move_each_job_once() {
    let shop = Shop::new().await;
    let fill = "select count(*) from generate_series(1, 500) i, lateral outlast.enqueue('mail', i::text, after_ms => 3600000) e";
    run(&shop.client, fill).await;
    run(
        &shop.client,
        "update outlast._job_later set due_at = outlast.clock()",
    )
    .await;
    let mut movers = JoinSet::new();
    for _ in 0..4 {
        let client = shop.house.connect().await;
        movers.spawn(async move {
            let mut moved = 0_i64;
            for _ in 0..30 {
                moved +=
                    one::<i32>(&client, "select moved from outlast._promote(20)", &[]).await as i64;
            }
            moved
        });
    }
    let moved: i64 = movers.join_all().await.into_iter().sum();
    assert_eq!(moved, 500);
    assert_eq!(shop.claim("mail", 1000).await.len(), 500);
    shop.must_be_sound().await;
}

/// A runner in another language: the public functions only.
#[tokio::test]
async fn a_runner_in_another_language_claims_completes_and_fails_jobs() {
    let shop = Shop::new().await;
    let sent = shop.enqueue("mail", 4).await;
    let claim = "select token, id, attempt from outlast.claim('job', 'mail', 3, 1000, 'cron-7')";
    let rows = shop.client.query(claim, &[]).await.expect("claims");
    let got: Vec<Uuid> = rows.iter().map(|row| row.get(1)).collect();
    assert_eq!(got, sent[..3]);
    let token: Uuid = rows[0].get(0);
    let skip = "select outlast.complete($1, $2, 'skipped', 'no such person')";
    shop.client
        .execute(skip, &[&token, &sent[0]])
        .await
        .expect("skips");
    assert_eq!(shop.state(sent[0]).await, "skipped");
    // Not so soon that it comes with the next claim.
    let fail = "select outlast.fail($1, $2, 'retry', 'why', 60000)";
    assert_eq!(
        one::<String>(&shop.client, fail, &[&token, &sent[1]]).await,
        "retry"
    );
    // It is gone for good with one of them: found by the next claim of anybody, and, as it marks nothing, without a charge.
    shop.lapse().await;
    let rows = shop.client.query(claim, &[]).await.expect("claims");
    let got: Vec<(Uuid, i32)> = rows.iter().map(|row| (row.get(1), row.get(2))).collect();
    assert_eq!(got, [(sent[3], 1), (sent[2], 1)]);
    // From now on it counts as started: who dies with it again is charged.
    assert_eq!(shop.lose().await, 2);
    assert_eq!(
        shop.count("select count(*) from outlast._job_later where alone")
            .await,
        1
    );
    assert_eq!(state(&shop.client, sent[2]).await, "waiting");
    shop.must_be_sound().await;
}
