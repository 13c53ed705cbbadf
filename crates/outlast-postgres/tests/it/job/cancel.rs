//! Cancellation by those who asked for a job: what it answers, and that it is what comes true.

use super::{Shop, ask, cancel, complete, enqueue, finish, ids, start};
use crate::sql::{self, one, run};

#[tokio::test]
async fn what_does_not_run_is_withdrawn_wherever_it_waits() {
    let shop = Shop::new().await;
    let ready = shop.enqueue("mail", 1).await[0];
    let later = enqueue(&shop.client, "'mail', '{}', after_ms => 60000").await;
    let [stopped, alone] = [
        shop.enqueue("stopped", 1).await[0],
        shop.enqueue("alone", 1).await[0],
    ];
    let token = shop.claim("stopped", 1).await[0].token;
    sql::fail(&shop.client, token, stopped, "permanent")
        .await
        .expect("fails");
    let token = shop.claim("alone", 1).await[0].token;
    start(&shop.client, token, &[alone]).await.expect("marks");
    shop.lose().await;
    for id in [ready, later, stopped, alone] {
        assert_eq!(
            cancel(&shop.client, id).await.expect("answers"),
            "withdrawn"
        );
        assert_eq!(shop.state(id).await, "cancelled");
        assert_eq!(
            cancel(&shop.client, id).await.expect("answers"),
            "cancelled",
            "and then it is"
        );
    }
    shop.due().await;
    let all = ask("mail", 9).and("stopped", 9).and("alone", 9);
    assert_eq!(all.claim(&shop.client).await.expect("claims"), []);
    assert_eq!(shop.count("select count(*) from outlast.incident").await, 0);
    shop.must_be_sound().await;
}

#[tokio::test]
async fn a_cancellation_that_is_rolled_back_was_none() {
    let shop = Shop::new().await;
    let sent = shop.enqueue("mail", 1).await;
    run(&shop.client, "begin").await;
    assert_eq!(
        cancel(&shop.client, sent[0]).await.expect("answers"),
        "withdrawn"
    );
    // Whoever claims meanwhile goes past it.
    let worker = shop.house.connect().await;
    assert_eq!(ask("mail", 9).claim(&worker).await.expect("claims"), []);
    run(&shop.client, "rollback").await;
    assert_eq!(
        ids(&ask("mail", 9).claim(&worker).await.expect("claims")),
        sent
    );
}

#[tokio::test]
async fn what_ends_before_stays_as_it_ended_and_what_is_anothers_is_not_there() {
    let shop = Shop::new().await;
    let sent = shop.enqueue("mail", 1).await;
    let theirs = enqueue(&shop.client, "'mail', '{}', tenant => 'theirs', key => 'k'").await;
    let jobs = ask("mail", 9).claim(&shop.client).await.expect("claims");
    complete(&shop.client, jobs[0].token, &ids(&jobs))
        .await
        .expect("completes");
    assert_eq!(
        cancel(&shop.client, sent[0]).await.expect("answers"),
        "done"
    );
    assert_eq!(
        cancel(&shop.client, theirs).await.expect("answers"),
        "absent"
    );
    assert_eq!(
        cancel(&shop.client, uuid::Uuid::new_v4())
            .await
            .expect("answers"),
        "absent"
    );
    for (key, tenant, answer) in [
        ("k", "theirs", "done"),
        ("k", "", "absent"),
        ("l", "theirs", "absent"),
    ] {
        let sql = "select outlast.cancel_key('mail', $1, 'why', $2)";
        assert_eq!(
            one::<String>(&shop.client, sql, &[&key, &tenant]).await,
            answer
        );
    }
    let seen = "select count(*) from outlast.status($1, $2)";
    assert_eq!(
        one::<i64>(&shop.client, seen, &[&theirs, &"theirs"]).await,
        1
    );
    assert_eq!(one::<i64>(&shop.client, seen, &[&theirs, &""]).await, 0);
}

/// Asked to go while it runs: whatever ends this try, there is no other.
#[tokio::test]
async fn a_running_job_that_was_asked_to_go_has_no_other_try() {
    for (how, wanted) in [
        ("complete", "done"),
        ("retry", "cancelled"),
        ("permanent", "cancelled"),
        ("throttled", "cancelled"),
        ("give back", "cancelled"),
        ("lost", "cancelled"),
        ("lost while it ran", "cancelled"),
        ("hand back", "cancelled"),
    ] {
        let shop = Shop::new().await;
        let sent = shop.enqueue("mail", 2).await;
        let token = shop.claim("mail", 2).await[0].token;
        assert_eq!(
            cancel(&shop.client, sent[0]).await.expect("answers"),
            "requested"
        );
        assert_eq!(
            cancel(&shop.client, sent[0]).await.expect("answers"),
            "requested"
        );
        assert_eq!(shop.state(sent[0]).await, "running");
        match how {
            "complete" => complete(&shop.client, token, &sent[..1])
                .await
                .expect("completes"),
            "give back" => assert_eq!(finish(&shop.client, token).await.expect("finishes"), 2),
            "lost" => assert_eq!(shop.lose().await, 2),
            "lost while it ran" => {
                start(&shop.client, token, &sent).await.expect("marks");
                assert_eq!(shop.lose().await, 2);
            }
            "hand back" => sql::hand_back(&shop.client, token, &[])
                .await
                .expect("hands back"),
            class => assert_eq!(
                sql::fail(&shop.client, token, sent[0], class)
                    .await
                    .expect("fails"),
                "cancelled"
            ),
        }
        assert_eq!(shop.state(sent[0]).await, wanted, "{how}");
        let why: Option<String> = one(
            &shop.client,
            "select reason from outlast._job_status($1)",
            &[&sent[0]],
        )
        .await;
        assert_eq!(
            why.as_deref(),
            (wanted == "cancelled").then_some("not wanted"),
            "{how}"
        );
        assert_ne!(shop.state(sent[1]).await, "cancelled", "{how}");
        shop.must_be_sound().await;
    }
}
