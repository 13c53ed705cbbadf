//! The lease: nothing of a runner commits once its jobs were taken from it, in any isolation level.

use tokio_postgres::Client;
use uuid::Uuid;

use super::{Job, Shop, complete, finish, ids};
use crate::sql::{self, one, run};

const ISOLATIONS: [&str; 3] = ["read committed", "repeatable read", "serializable"];

const EFFECT: &str = "create table if not exists effect (job uuid not null)";

/// The runner begins, takes its snapshot and does its work.
async fn work(runner: &Client, isolation: &str, job: &Job) {
    run(runner, &format!("begin isolation level {isolation}")).await;
    let sql = "insert into effect values ($1)";
    runner
        .execute(sql, &[&job.id])
        .await
        .expect("has an effect");
}

async fn effects(shop: &Shop, id: Uuid) -> i64 {
    one(
        &shop.client,
        "select count(*) from effect where job = $1",
        &[&id],
    )
    .await
}

#[tokio::test]
async fn after_a_reclaim_the_old_runner_completes_fails_and_starts_nothing() {
    let shop = Shop::new().await;
    run(&shop.client, EFFECT).await;
    let runner = shop.house.connect().await;
    for isolation in ISOLATIONS {
        for verb in [
            "complete",
            "_complete_jobs",
            "fail",
            "_start_jobs",
            "fence",
            "renew",
        ] {
            shop.enqueue("mail", 1).await;
            let job = shop.claim("mail", 1).await.remove(0);
            work(&runner, isolation, &job).await;
            assert_eq!(shop.lose().await, 1);
            let (token, id) = (job.token, job.id);
            let refused = match verb {
                "complete" => sql::complete(&runner, token, id).await,
                "_complete_jobs" => complete(&runner, token, &[id]).await,
                "fail" => sql::fail(&runner, token, id, "retry").await.map(|_| ()),
                "_start_jobs" => super::start(&runner, token, &[id]).await,
                "fence" => runner
                    .execute("select outlast.fence($1)", &[&token])
                    .await
                    .map(|_| ()),
                _ => runner
                    .execute("select outlast.renew($1)", &[&token])
                    .await
                    .map(|_| ()),
            };
            let wanted = if isolation == "read committed" {
                "OL001"
            } else {
                "40001"
            };
            assert_eq!(sql::state(refused), wanted, "{verb} in {isolation}");
            run(&runner, "rollback").await;
            assert_eq!(
                (effects(&shop, id).await, shop.state(id).await),
                (0, "waiting".to_owned())
            );
            let again = shop.claim("mail", 1).await.remove(0);
            assert_eq!((again.id, again.attempt, again.lapses), (id, 1, 1));
            complete(&shop.client, again.token, &[id])
                .await
                .expect("the new owner completes");
            finish(&shop.client, again.token).await.expect("finishes");
        }
    }
    shop.must_be_sound().await;
}

/// A completion is open when the lease lapses: nobody takes it, nobody waits, and what commits is done once.
#[tokio::test]
async fn an_open_completion_keeps_its_claim_and_ends_it() {
    let shop = Shop::new().await;
    run(&shop.client, EFFECT).await;
    let runner = shop.house.connect().await;
    for isolation in ISOLATIONS {
        for (end, left) in [("commit", 1), ("rollback", 2)] {
            let sent = shop.enqueue("mail", 2).await;
            let jobs = shop.claim("mail", 2).await;
            work(&runner, isolation, &jobs[0]).await;
            sql::complete(&runner, jobs[0].token, sent[0])
                .await
                .expect("completes");
            assert_eq!(shop.lose().await, 0, "{isolation}: a reclaim does not wait");
            run(&runner, end).await;
            assert_eq!(shop.lose().await, left, "{isolation} {end}");
            let state = shop.state(sent[0]).await;
            let wanted = if end == "commit" {
                ("done", 1)
            } else {
                ("waiting", 0)
            };
            assert_eq!(
                (state.as_str(), effects(&shop, sent[0]).await),
                wanted,
                "{isolation} {end}"
            );
            for job in shop.claim("mail", 9).await {
                complete(&shop.client, job.token, &[job.id])
                    .await
                    .expect("completes");
            }
        }
    }
    shop.must_be_sound().await;
}

#[tokio::test]
async fn the_end_of_a_claim_waits_for_its_open_completions() {
    let shop = Shop::new().await;
    let (runner, engine) = (shop.house.connect().await, shop.house.connect().await);
    for isolation in ISOLATIONS {
        let sent = shop.enqueue("mail", 2).await;
        let token = shop.claim("mail", 2).await[0].token;
        run(
            &runner,
            &format!("begin isolation level {isolation}; select 1"),
        )
        .await;
        sql::complete(&runner, token, sent[0])
            .await
            .expect("completes");
        let pid = sql::pid(&engine).await;
        let (given_back, ()) = tokio::join!(finish(&engine, token), async {
            sql::until_blocked(&shop.client, pid).await;
            run(&runner, "commit").await;
        });
        assert_eq!(given_back.expect("finishes"), 1);
        assert_eq!(
            (
                shop.state(sent[0]).await.as_str(),
                shop.state(sent[1]).await.as_str()
            ),
            ("done", "waiting")
        );
        let job = shop.claim("mail", 9).await.remove(0);
        complete(&shop.client, job.token, &[job.id])
            .await
            .expect("completes");
    }
    shop.must_be_sound().await;
}

#[tokio::test]
async fn a_job_is_completed_once_and_only_with_what_was_claimed() {
    let shop = Shop::new().await;
    let sent = shop.enqueue("mail", 4).await;
    let jobs = shop.claim("mail", 3).await;
    let token = jobs[0].token;
    assert!(
        jobs.iter().all(|job| job.token == token),
        "one lease for all"
    );
    complete(&shop.client, token, &sent[..1])
        .await
        .expect("completes");
    for (ids, code) in [
        (&sent[..1], "OL002"),
        (&sent[..2], "OL002"),
        (&sent[3..], "OL003"),
        (&sent[1..], "OL003"),
        (&[sent[1], sent[1]][..], "OL003"),
    ] {
        assert_eq!(sql::state(complete(&shop.client, token, ids).await), code);
    }
    assert_eq!(
        sql::state(sql::fail(&shop.client, token, sent[0], "retry").await),
        "OL003"
    );
    assert_eq!(
        sql::state(sql::fail(&shop.client, token, sent[3], "retry").await),
        "OL003"
    );
    assert_eq!(
        sql::state(super::start(&shop.client, token, &sent[2..]).await),
        "OL003"
    );
    // What has failed is not in the claim any more, although the lease lives.
    assert_eq!(
        sql::fail(&shop.client, token, sent[1], "retry")
            .await
            .expect("fails"),
        "retry"
    );
    assert_eq!(
        sql::state(complete(&shop.client, token, &sent[1..2]).await),
        "OL003"
    );
    complete(&shop.client, token, &sent[2..3])
        .await
        .expect("completes");
    assert_eq!(finish(&shop.client, token).await.expect("finishes"), 0);
    assert_eq!(finish(&shop.client, token).await.expect("is gone"), 0);
    assert_eq!(shop.count("select count(*) from outlast._lease").await, 0);
    shop.must_be_sound().await;
}

#[tokio::test]
async fn two_completions_of_one_job_at_once_are_one() {
    let shop = Shop::new().await;
    let (one_, two) = (shop.house.connect().await, shop.house.connect().await);
    let sent = shop.enqueue("mail", 1).await;
    let token = shop.claim("mail", 1).await[0].token;
    run(&one_, "begin").await;
    complete(&one_, token, &sent).await.expect("completes");
    let pid = sql::pid(&two).await;
    let (second, ()) = tokio::join!(complete(&two, token, &sent), async {
        sql::until_blocked(&shop.client, pid).await;
        run(&one_, "commit").await;
    });
    assert_eq!(sql::state(second), "OL002");
    shop.must_be_sound().await;
}

/// With a token that lives, another's job.
async fn complete_anothers(shop: &Shop) -> Result<(), tokio_postgres::Error> {
    shop.enqueue("mail", 2).await;
    let (mine, theirs) = (shop.claim("mail", 1).await, shop.claim("mail", 1).await);
    complete(&shop.client, mine[0].token, &ids(&theirs)).await
}

#[tokio::test]
async fn a_completion_that_does_not_look_at_its_token_ends_what_another_runs() {
    let shop = Shop::new().await;
    assert_eq!(sql::state(complete_anothers(&shop).await), "OL003");
    shop.must_be_sound().await;
    let token = "where c.id = any (ids) and (c.token = (l).token) is true;";
    shop.house
        .plant("_end_jobs", &[(token, "where c.id = any (ids);")])
        .await;
    complete_anothers(&shop).await.expect("nobody sees it");
}

/// The last statement before COMMIT, with the guards of every seal.
#[tokio::test]
async fn a_completion_in_the_callers_transaction_is_durable_and_may_not_stay_open() {
    let shop = Shop::new().await;
    let sent = shop.enqueue("mail", 1).await;
    let token = shop.claim("mail", 1).await[0].token;
    run(&shop.client, "begin; set local synchronous_commit = off").await;
    sql::complete(&shop.client, token, sent[0])
        .await
        .expect("completes");
    let durable: String = one(
        &shop.client,
        "select current_setting('synchronous_commit')",
        &[],
    )
    .await;
    let bounded: bool = one(
        &shop.client,
        "select current_setting('idle_in_transaction_session_timeout') <> '0'",
        &[],
    )
    .await;
    assert_eq!((durable.as_str(), bounded), ("on", true));
    run(&shop.client, "commit").await;
    assert_eq!(shop.state(sent[0]).await, "done");
}
