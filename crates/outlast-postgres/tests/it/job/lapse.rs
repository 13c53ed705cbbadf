//! Workers that are lost, work that is given back, tries that fail: what is charged, and when a person must look.

use uuid::Uuid;

use super::{Shop, ask, cancel, complete, finish, ids, start};
use crate::sql::{self, one, run};

#[tokio::test]
async fn what_was_not_marked_goes_back_uncharged_and_in_order() {
    let shop = Shop::new().await;
    let sent = shop.enqueue("mail", 3).await;
    for lapses in 0..5 {
        let jobs = shop.claim("mail", 9).await;
        assert_eq!(ids(&jobs), sent);
        assert!(
            jobs.iter()
                .all(|job| job.attempt == 1 && job.lapses == lapses)
        );
        assert_eq!(shop.lose().await, 3);
    }
    shop.must_be_sound().await;
}

#[tokio::test]
async fn what_was_running_when_its_worker_was_lost_runs_alone_and_the_third_death_is_a_persons() {
    let shop = Shop::new().await;
    let sent = shop.enqueue("mail", 4).await;
    let jobs = shop.claim("mail", 9).await;
    start(&shop.client, jobs[0].token, &sent[..2])
        .await
        .expect("marks");
    complete(&shop.client, jobs[0].token, &sent[..1])
        .await
        .expect("one is done all the same");
    assert_eq!(shop.lose().await, 3);
    let process = Uuid::new_v4();
    let suspect = sent[1];
    for crash in 2..=3 {
        let alone = ask("mail", 9)
            .process(process)
            .claim(&shop.client)
            .await
            .expect("claims");
        assert_eq!(ids(&alone), [suspect]);
        assert_eq!((alone[0].attempt, alone[0].lapses), (crash, crash - 1));
        let others = ask("mail", 9)
            .process(process)
            .claim(&shop.client)
            .await
            .expect("claims");
        assert_eq!(ids(&others), sent[2..], "the others go on");
        assert_ne!(
            others[0].token, alone[0].token,
            "under a lease of their own"
        );
        finish(&shop.client, others[0].token)
            .await
            .expect("gives back");
        assert_eq!(shop.lose().await, 1);
    }
    assert_eq!(shop.state(suspect).await, "waiting!");
    let incident = "select count(*) from outlast.incident where about = $1 and class = 'crashed' and kind = 'stopped job'";
    assert_eq!(one::<i64>(&shop.client, incident, &[&suspect]).await, 1);
    let rest = shop.claim("mail", 9).await;
    assert_eq!(ids(&rest), sent[2..]);
    assert!(
        rest.iter().all(|job| job.attempt == 1),
        "nobody innocent is charged"
    );
    shop.must_be_sound().await;
}

#[tokio::test]
async fn a_process_runs_one_suspect_at_a_time_and_another_process_the_next() {
    let shop = Shop::new().await;
    let sent = shop.enqueue("mail", 2).await;
    let token = shop.claim("mail", 9).await[0].token;
    start(&shop.client, token, &sent).await.expect("marks");
    shop.lose().await;
    let (here, there) = (Uuid::new_v4(), Uuid::new_v4());
    let claim = async |process: Uuid| {
        ask("mail", 9)
            .process(process)
            .claim(&shop.client)
            .await
            .expect("claims")
    };
    let first = claim(here).await;
    assert_eq!(
        (
            first.len(),
            claim(here).await.len(),
            claim(there).await.len()
        ),
        (1, 0, 1)
    );
    complete(&shop.client, first[0].token, &ids(&first))
        .await
        .expect("completes");
    shop.must_be_sound().await;
}

#[tokio::test]
async fn what_is_given_back_is_as_it_was() {
    let shop = Shop::new().await;
    let sent = shop.enqueue("mail", 3).await;
    let jobs = shop.claim("mail", 3).await;
    start(&shop.client, jobs[0].token, &sent[..1])
        .await
        .expect("marks");
    complete(&shop.client, jobs[0].token, &sent[1..2])
        .await
        .expect("completes");
    assert_eq!(
        finish(&shop.client, jobs[0].token)
            .await
            .expect("gives back"),
        2
    );
    assert_eq!(
        shop.count("select count(*) from outlast._job_state").await,
        0
    );
    let again = shop.claim("mail", 3).await;
    assert_eq!(ids(&again), [sent[0], sent[2]]);
    assert!(again.iter().all(|job| (job.attempt, job.lapses) == (1, 0)));
    shop.must_be_sound().await;
}

#[tokio::test]
async fn a_process_that_does_not_wait_for_what_runs_gives_back_the_rest() {
    let shop = Shop::new().await;
    let sent = shop.enqueue("mail", 3).await;
    let jobs = shop.claim("mail", 3).await;
    sql::hand_back(&shop.client, jobs[0].token, &sent[..1])
        .await
        .expect("hands back");
    assert_eq!(ids(&shop.claim("mail", 9).await), sent[1..]);
    // What ran may still be running there: it is looked at as if its worker had been lost.
    let late = complete(&shop.client, jobs[0].token, &sent[..1]).await;
    assert_eq!(sql::state(late), "OL001");
    assert_eq!(shop.reclaim().await, 1);
    assert_eq!(ids(&shop.claim("mail", 9).await), sent[..1]);
    assert_eq!(
        shop.count("select crashes::bigint from outlast._job_state")
            .await,
        1
    );
    shop.must_be_sound().await;
}

/// An application cancels a running job in a long transaction, and its worker is lost meanwhile.
#[tokio::test]
async fn an_undecided_cancellation_holds_up_nobody_and_is_not_lost() {
    for (decided, wanted) in [("commit", "cancelled"), ("rollback", "waiting")] {
        for lost in [true, false] {
            let shop = Shop::new().await;
            let app = shop.house.connect().await;
            let sent = shop.enqueue("mail", 3).await;
            let token = shop.claim("mail", 3).await[0].token;
            run(&app, "begin").await;
            assert_eq!(cancel(&app, sent[1]).await.expect("answers"), "requested");
            run(&shop.client, "set lock_timeout = '300ms'").await;
            let back = if lost {
                shop.lose().await
            } else {
                finish(&shop.client, token).await.expect("gives back")
            };
            assert_eq!(back, 2, "the others are not held up");
            let stale = complete(&shop.client, token, &sent[1..2]).await;
            assert_eq!(
                sql::state(stale),
                "OL001",
                "its old lease is over for this one, too"
            );
            shop.must_be_sound().await;
            run(&app, decided).await;
            assert_eq!(shop.reclaim().await, 1);
            assert_eq!(shop.state(sent[1]).await, wanted, "{decided}");
            let crashes = "select coalesce(max(crashes), 0)::bigint from outlast._job_state";
            assert_eq!(shop.count(crashes).await, 0);
            shop.must_be_sound().await;
        }
    }
}

#[tokio::test]
async fn without_the_try_a_reclaim_waits_for_an_applications_transaction() {
    let shop = Shop::new().await;
    let lock = "if not pg_try_advisory_xact_lock(outlast._job_lock(c.id)) then";
    shop.house
        .plant("_give_back", &[(lock, "if false then")])
        .await;
    let app = shop.house.connect().await;
    let sent = shop.enqueue("mail", 1).await;
    shop.claim("mail", 1).await;
    run(&app, "begin").await;
    cancel(&app, sent[0]).await.expect("answers");
    run(&shop.client, "set lock_timeout = '300ms'").await;
    shop.lapse().await;
    let reclaimed = shop
        .client
        .execute("select outlast._reclaim_jobs(1)", &[])
        .await;
    assert_eq!(sql::state(reclaimed), "55P03");
}

/// Takes the lease away under whoever is giving back: without taking it first, two would.
async fn completes_while_given_back(shop: &Shop) -> (bool, i64) {
    let runner = shop.house.connect().await;
    let sent = shop.enqueue("mail", 1).await;
    let token = shop.claim("mail", 1).await[0].token;
    run(&runner, "begin").await;
    complete(&runner, token, &sent).await.expect("completes");
    run(&shop.client, "set lock_timeout = '300ms'").await;
    let given = finish(&shop.client, token).await;
    run(&runner, "commit").await;
    let leases = shop.count("select count(*) from outlast._lease").await;
    (given.is_err(), leases)
}

#[tokio::test]
async fn a_claim_is_given_back_under_its_lease() {
    let shop = Shop::new().await;
    let waits = shop.house.connect().await;
    drop(waits);
    shop.house
        .plant(
            "_finish_jobs",
            &[("set lock_timeout = '8s'", "set lock_timeout = '300ms'")],
        )
        .await;
    assert_eq!(
        completes_while_given_back(&shop).await,
        (true, 1),
        "it waits for the completion"
    );
    // Without the lock it goes on beside it; only the row of the job is between them.
    let lock = "perform pg_advisory_xact_lock(outlast._lease_lock(_take.token));";
    let shop = Shop::new().await;
    shop.house.plant("_take", &[(lock, "null;")]).await;
    let row = "select * from outlast._job_claimed x where x.token = (l).token order by x.id loop";
    shop.house.plant("_give_back", &[
        (row, "select * from outlast._job_claimed x where x.token = (l).token order by x.id for update skip locked loop"),
    ]).await;
    assert_eq!(
        completes_while_given_back(&shop).await,
        (false, 0),
        "the lease ends under an open completion"
    );
}

#[tokio::test]
async fn a_failed_try_waits_and_a_spent_budget_is_a_persons() {
    let shop = Shop::new().await;
    let job = super::enqueue(&shop.client, "'mail', '{}', attempts => 3").await;
    let wait = "select (extract(epoch from due_at - outlast.clock()) * 1000)::bigint from outlast._job_later";
    for (attempt, class, after, became, least, most) in [
        (1, "retry", None, "retry", 0, 1_000),
        (2, "throttled", Some(5_000_i64), "retry", 4_000, 5_000),
        (
            2,
            "throttled",
            Some(i64::MAX),
            "retry",
            3_500_000,
            3_600_000,
        ),
        (2, "throttled", Some(-5), "retry", 500, 1_000),
        (2, "unclassified", Some(60_000), "retry", 59_000, 60_000),
        (3, "unknown", None, "quarantined", 0, 0),
    ] {
        let claimed = shop.claim("mail", 1).await.remove(0);
        assert_eq!((claimed.id, claimed.attempt), (job, attempt), "{class}");
        let sql = "select outlast.fail($1, $2, $3, 'the provider said no', $4)";
        let answer: String = one(&shop.client, sql, &[&claimed.token, &job, &class, &after]).await;
        assert_eq!(answer, became, "{class}");
        if became == "retry" {
            let ms = shop.count(wait).await;
            assert!(
                (least..=most).contains(&ms),
                "{class} after {after:?}: {ms} ms"
            );
        }
        finish(&shop.client, claimed.token).await.expect("finishes");
        shop.must_be_sound().await;
        shop.due().await;
    }
    assert_eq!(shop.state(job).await, "waiting!");
    assert_eq!(shop.claim("mail", 1).await, []);
}

#[tokio::test]
async fn a_permanent_failure_is_a_persons_at_once_whatever_its_text() {
    let shop = Shop::new().await;
    let sent = shop.enqueue("mail", 1).await;
    let token = shop.claim("mail", 1).await[0].token;
    let sql =
        "select outlast.fail($1, $2, 'permanent', repeat(e'no such\\x01 person 17 ', 300000))";
    let answer: String = one(&shop.client, sql, &[&token, &sent[0]]).await;
    assert_eq!(
        (answer.as_str(), shop.state(sent[0]).await.as_str()),
        ("quarantined", "waiting!")
    );
    let (kept, bad) = (
        shop.count("select length(reason)::bigint from outlast._job_state")
            .await,
        shop.count("select count(*) from outlast._job_state where reason ~ '[[:cntrl:]]'")
            .await,
    );
    assert_eq!((kept, bad), (4096, 0));
    let bad_class = "select outlast.fail($1, $2, 'sad', 'why')";
    assert_eq!(
        sql::state(shop.client.execute(bad_class, &[&token, &sent[0]]).await),
        "OL005"
    );
}

#[tokio::test]
async fn a_renewed_lease_is_not_taken_and_one_from_the_future_is() {
    let shop = Shop::new().await;
    shop.enqueue("mail", 1).await;
    let token = ask("mail", 1)
        .lease_ms(100)
        .claim(&shop.client)
        .await
        .expect("claims")[0]
        .token;
    shop.lapse().await;
    run(
        &shop.client,
        &format!("select outlast.renew('{token}', 60000)"),
    )
    .await;
    assert_eq!(shop.reclaim().await, 0);
    let kept: i64 = one(
        &shop.client,
        "select count(*) from outlast._renew_all($1, 60000)",
        &[&&[token][..]],
    )
    .await;
    assert_eq!(kept, 1);
    run(
        &shop.client,
        "update outlast._lease set expires_at = outlast.clock() + interval '1 day'",
    )
    .await;
    assert_eq!(shop.reclaim().await, 1);
}
