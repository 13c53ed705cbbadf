//! A person or an application decides about a job while a worker does: held at the place where it hurts, and that without
//! the lock in question what was answered is not what comes true.

use tokio_postgres::{Client, Error};
use uuid::Uuid;

use super::{Shop, ask, cancel, complete, enqueue, finish, ids};
use crate::sql::{self, run};

/// `first` has begun and has not committed; the cancellation comes and waits for it.
async fn cancelled_behind(
    shop: &Shop,
    first: &Client,
    canceller: &Client,
    id: Uuid,
) -> Result<String, Error> {
    let pid = sql::pid(canceller).await;
    let (answer, ()) = tokio::join!(cancel(canceller, id), async {
        sql::until_blocked(&shop.client, pid).await;
        run(first, "commit").await;
    });
    answer
}

/// A try fails for good and is not committed yet.
async fn behind_a_failure(shop: &Shop, class: &str) -> (String, String) {
    let (worker, app) = (shop.house.connect().await, shop.house.connect().await);
    let sent = shop.enqueue("mail", 1).await;
    let token = shop.claim("mail", 1).await[0].token;
    run(&worker, "begin").await;
    sql::fail(&worker, token, sent[0], class)
        .await
        .expect("fails");
    let answer = cancelled_behind(shop, &worker, &app, sent[0])
        .await
        .expect("answers");
    (answer, shop.state(sent[0]).await)
}

fn told(answer: &str, state: &str) -> (String, String) {
    (answer.to_owned(), state.to_owned())
}

#[tokio::test]
async fn a_cancellation_waits_for_a_failure_and_without_the_lock_it_asks_nobody() {
    for class in ["retry", "permanent"] {
        let shop = Shop::new().await;
        assert_eq!(
            behind_a_failure(&shop, class).await,
            told("withdrawn", "cancelled"),
            "{class}"
        );
        shop.must_be_sound().await;
    }
    let shop = Shop::new().await;
    let lock = "perform pg_advisory_xact_lock(outlast._job_lock(cancel.id));";
    shop.house.plant("cancel", &[(lock, "")]).await;
    let (answer, state) = behind_a_failure(&shop, "permanent").await;
    assert_eq!(
        (answer, state),
        told("requested", "waiting!"),
        "nobody runs it and nobody ends it"
    );
}

#[tokio::test]
async fn a_failure_waits_for_a_cancellation_and_obeys_it() {
    for (end, wanted) in [
        ("commit", told("cancelled", "cancelled")),
        ("rollback", told("retry", "waiting")),
    ] {
        let shop = Shop::new().await;
        let (worker, app) = (shop.house.connect().await, shop.house.connect().await);
        let sent = shop.enqueue("mail", 1).await;
        let token = shop.claim("mail", 1).await[0].token;
        run(&app, "begin").await;
        assert_eq!(cancel(&app, sent[0]).await.expect("answers"), "requested");
        let pid = sql::pid(&worker).await;
        let (became, ()) = tokio::join!(sql::fail(&worker, token, sent[0], "retry"), async {
            sql::until_blocked(&shop.client, pid).await;
            run(&app, end).await;
        });
        assert_eq!((became.expect("fails"), shop.state(sent[0]).await), wanted);
        shop.must_be_sound().await;
    }
}

/// The claim has not committed: it is waited for, and then the job runs.
#[tokio::test]
async fn a_cancellation_waits_for_a_claim_and_is_then_a_request() {
    let shop = Shop::new().await;
    let (worker, app) = (shop.house.connect().await, shop.house.connect().await);
    let sent = shop.enqueue("mail", 1).await;
    run(&worker, "begin").await;
    let token = ask("mail", 1).claim(&worker).await.expect("claims")[0].token;
    let answer = cancelled_behind(&shop, &worker, &app, sent[0]).await;
    assert_eq!(answer.expect("answers"), "requested");
    finish(&worker, token).await.expect("gives back");
    assert_eq!(shop.state(sent[0]).await, "cancelled");
    shop.must_be_sound().await;
}

#[tokio::test]
async fn a_completion_waits_for_no_cancellation_and_none_waits_for_it() {
    let shop = Shop::new().await;
    let (worker, app) = (shop.house.connect().await, shop.house.connect().await);
    for first in ["completion", "cancellation"] {
        let sent = shop.enqueue("mail", 1).await;
        let token = shop.claim("mail", 1).await[0].token;
        run(&worker, "set lock_timeout = '300ms'; begin").await;
        run(&app, "set lock_timeout = '300ms'; begin").await;
        if first == "completion" {
            complete(&worker, token, &sent).await.expect("completes");
        }
        assert_eq!(cancel(&app, sent[0]).await.expect("answers"), "requested");
        if first != "completion" {
            complete(&worker, token, &sent).await.expect("completes");
        }
        run(&app, "commit").await;
        run(&worker, "commit").await;
        assert_eq!(shop.state(sent[0]).await, "done");
        finish(&shop.client, token).await.expect("finishes");
    }
    shop.must_be_sound().await;
}

/// The time of a job comes between the two places where a cancellation looks.
async fn behind_a_promotion(shop: &Shop) -> (String, String) {
    let (mover, app) = (shop.house.connect().await, shop.house.connect().await);
    let id = enqueue(&shop.client, "'mail', '{}', after_ms => 3600000").await;
    run(
        &shop.client,
        "update outlast._job_later set due_at = outlast.clock()",
    )
    .await;
    run(&mover, "begin; select outlast._promote(10)").await;
    let answer = cancelled_behind(shop, &mover, &app, id)
        .await
        .expect("answers");
    (answer, shop.state(id).await)
}

#[tokio::test]
async fn a_job_whose_time_comes_while_it_is_cancelled_is_found_and_with_one_look_it_is_not() {
    let shop = Shop::new().await;
    assert_eq!(
        behind_a_promotion(&shop).await,
        told("withdrawn", "cancelled")
    );
    shop.must_be_sound().await;
    let shop = Shop::new().await;
    let looks = "continue when s.state = 'waiting' and s.incident_at is null;";
    shop.house.plant("cancel", &[(looks, "")]).await;
    assert_eq!(behind_a_promotion(&shop).await, told("waiting", "waiting"));
}

#[tokio::test]
async fn of_two_who_cancel_at_once_the_second_is_told() {
    let shop = Shop::new().await;
    let (first, second) = (shop.house.connect().await, shop.house.connect().await);
    let sent = shop.enqueue("mail", 1).await;
    run(&first, "begin").await;
    assert_eq!(cancel(&first, sent[0]).await.expect("answers"), "withdrawn");
    let answer = cancelled_behind(&shop, &first, &second, sent[0]).await;
    assert_eq!(answer.expect("answers"), "cancelled");
    shop.must_be_sound().await;
}

/// A caller above READ COMMITTED asks a job to go that was given back after its snapshot.
async fn asked_by_an_old_snapshot(shop: &Shop) -> usize {
    let app = shop.house.connect().await;
    let sent = shop.enqueue("mail", 1).await;
    let token = shop.claim("mail", 1).await[0].token;
    run(
        &app,
        "begin isolation level repeatable read; select 1 from outlast._job",
    )
    .await;
    finish(&shop.client, token).await.expect("gives back");
    assert_eq!(cancel(&app, sent[0]).await.expect("answers"), "requested");
    run(&app, "commit").await;
    let claimed = shop.claim("mail", 1).await;
    shop.must_be_sound().await;
    claimed.len()
}

#[tokio::test]
async fn a_request_that_everybody_missed_is_met_by_the_next_claim() {
    let shop = Shop::new().await;
    assert_eq!(asked_by_an_old_snapshot(&shop).await, 0);
    assert_eq!(
        shop.count("select count(*) from outlast._job_end where state = 'x'")
            .await,
        1
    );
    let shop = Shop::new().await;
    shop.house
        .plant(
            "_weigh",
            &[("s.cancel is not null and j.kind = 'j' or ", "")],
        )
        .await;
    assert_eq!(
        asked_by_an_old_snapshot(&shop).await,
        1,
        "it runs although it was asked to go"
    );
}

#[tokio::test]
async fn above_read_committed_a_cancellation_of_what_has_moved_is_tried_again() {
    let shop = Shop::new().await;
    for isolation in ["repeatable read", "serializable"] {
        let app = shop.house.connect().await;
        let sent = shop.enqueue("mail", 1).await;
        run(
            &app,
            &format!("begin isolation level {isolation}; select 1 from outlast._job"),
        )
        .await;
        let job = shop.claim("mail", 1).await.remove(0);
        assert_eq!(
            sql::state(cancel(&app, sent[0]).await),
            "40001",
            "{isolation}"
        );
        run(&app, "rollback").await;
        complete(&shop.client, job.token, &[job.id])
            .await
            .expect("completes");
    }
}

/// A person lets a job run again while somebody cancels it.
#[tokio::test]
async fn a_retry_and_a_cancellation_at_once_leave_one_of_them_true() {
    let shop = Shop::new().await;
    let (person, app) = (shop.house.connect().await, shop.house.connect().await);
    let sent = shop.enqueue("mail", 1).await;
    let token = shop.claim("mail", 1).await[0].token;
    sql::fail(&shop.client, token, sent[0], "permanent")
        .await
        .expect("fails");
    run(&person, "begin").await;
    let sql_ = "select outlast.retry_job($1, 'jo')";
    assert_eq!(
        sql::one::<String>(&person, sql_, &[&sent[0]]).await,
        "ready"
    );
    let answer = cancelled_behind(&shop, &person, &app, sent[0]).await;
    assert_eq!(answer.expect("answers"), "withdrawn");
    assert_eq!(ids(&shop.claim("mail", 1).await), Vec::<Uuid>::new());
    assert_eq!(
        sql::one::<String>(&person, sql_, &[&sent[0]]).await,
        "cancelled"
    );
    shop.must_be_sound().await;
}
