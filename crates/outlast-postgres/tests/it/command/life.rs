//! The straight line, and who may walk it.

use super::{Desk, KEYED, KEYLESS, record};
use crate::sql::{self, state};

#[tokio::test]
async fn what_is_settled_ends_once_and_its_end_is_an_event_of_the_same_commit() {
    let desk = Desk::new().await;
    let id = desk.accept("k").await;
    let one = desk.take().await;
    assert_eq!((one.id, one.next), (id, 's'));
    assert!(desk.sent(&one, KEYLESS).await);
    assert_eq!(desk.state(id).await, "running");

    let tx = "begin; select outlast.record('TOKEN', 'ID', 'settled', '{\"id\": 1}'); rollback";
    sql::run(
        &desk.client,
        &tx.replace("TOKEN", &one.token.to_string())
            .replace("ID", &id.to_string()),
    )
    .await;
    assert_eq!(
        (desk.state(id).await.as_str(), desk.told().await.len()),
        ("running", 0)
    );

    assert_eq!(desk.record(&one, "settled").await, "settled");
    assert_eq!(desk.told().await, [r#"{"settled":{"id": 1}}"#]);
    assert_eq!(
        desk.record(&one, "settled").await,
        "late",
        "a second time it is only evidence"
    );
    assert_eq!(desk.told().await.len(), 1);
    assert!(desk.incidents().await.is_empty());
    desk.must_be_sound().await;
}

#[tokio::test]
async fn nobody_answers_what_was_not_sent() {
    let desk = Desk::new().await;
    desk.accept("k").await;
    let one = desk.take().await;
    assert_eq!(state(record(&desk.client, &one, "settled").await), "OL005");
    let complete = desk
        .client
        .query("select outlast.complete($1, $2)", &[&one.token, &one.id])
        .await;
    assert_eq!(state(complete), "OL005", "a command is not completed");
    assert!(desk.sent(&one, KEYLESS).await);
    assert!(!desk.sent(&one, KEYLESS).await, "it has left already");
    assert_eq!(
        state(record(&desk.client, &one, "not_applied").await),
        "OL005",
        "nobody has asked"
    );
    desk.must_be_sound().await;
}

#[tokio::test]
async fn a_worker_that_dies_with_fifty_claimed_of_which_two_had_left_leaves_two_unknown() {
    let desk = Desk::new().await;
    for n in 0..50 {
        desk.accept(&n.to_string()).await;
    }
    let tries = desk.claim(50).await;
    assert_eq!(tries.len(), 50);
    for one in &tries[..2] {
        assert!(desk.sent(one, KEYLESS).await);
    }
    desk.lose().await;
    let sql = "select count(*) filter (where state = 'unknown'), count(*) filter (where state = 'waiting' and not sent) from outlast.command";
    let row = desk.client.query_one(sql, &[]).await.expect("counts");
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (2, 48));
    assert_eq!(
        desk.incidents().await,
        ["unknown command"; 2],
        "a keyless one is a person's"
    );
    assert_eq!(desk.claim(100).await.len(), 48);
    desk.must_be_sound().await;
}

#[tokio::test]
async fn a_late_answer_moves_no_state_as_owner_and_is_never_dropped() {
    let desk = Desk::new().await;
    let id = desk.accept("k").await;
    let one = desk.take().await;
    assert!(desk.sent(&one, KEYED).await);
    desk.lose().await;
    assert_eq!(desk.state(id).await, "unknown");
    assert_eq!(desk.record(&one, "settled").await, "late");
    assert_eq!(
        desk.state(id).await,
        "settled",
        "what the provider said counts, whoever heard it"
    );
    desk.come().await;
    assert!(desk.claim(10).await.is_empty());
    let sql = "select string_agg(what || ' ' || coalesce(result, ''), ', ' order by id) from outlast.evidence where command = $1";
    assert_eq!(
        sql::one::<String>(&desk.client, sql, &[&id]).await,
        "sent , lost , late settled"
    );
    desk.must_be_sound().await;
}

#[tokio::test]
async fn certainly_no_effect_is_tried_again_and_a_spent_budget_is_a_persons() {
    let desk = Desk::new().await;
    let id = desk.accept_as("pay", "k", ", attempts => 2").await;
    let one = desk.take().await;
    assert!(desk.sent(&one, KEYLESS).await);
    assert_eq!(desk.fail(&one, "retry").await, "retry");
    assert_eq!(desk.state(id).await, "waiting");
    let two = desk.take_later().await;
    assert_eq!(two.provider_key, one.provider_key, "the same for every try");
    assert!(desk.sent(&two, KEYLESS).await);
    assert_eq!(desk.fail(&two, "retry").await, "quarantined");
    desk.come().await;
    assert!(desk.claim(10).await.is_empty());
    assert_eq!(desk.incidents().await, ["stopped command"]);
    let retried: String = sql::one(&desk.client, "select outlast.retry_job($1)", &[&id]).await;
    assert_eq!(retried, "ready");
    let three = desk.take().await;
    assert!(desk.sent(&three, KEYLESS).await);
    assert_eq!(
        desk.record(&three, "rejected").await,
        "rejected",
        "no send before it may have had an effect"
    );
    assert_eq!(desk.told().await, [r#"{"rejected" : "said so"}"#]);
    desk.must_be_sound().await;
}

#[tokio::test]
async fn what_was_sent_cannot_be_withdrawn_and_goes_when_it_had_no_effect() {
    let desk = Desk::new().await;
    let cancel = "select outlast.cancel($1, 'changed my mind')";
    let early = desk.accept("early").await;
    let taken = desk.take().await;
    assert_eq!(
        sql::one::<String>(&desk.client, cancel, &[&early]).await,
        "withdrawn",
        "claimed, not sent"
    );
    assert!(!desk.sent(&taken, KEYED).await);

    let id = desk.accept("late").await;
    let one = desk.take().await;
    assert!(desk.sent(&one, KEYED).await);
    assert_eq!(
        sql::one::<String>(&desk.client, cancel, &[&id]).await,
        "requested"
    );
    assert_eq!(desk.fail(&one, "retry").await, "cancelled");
    assert_eq!(desk.state(id).await, "cancelled");

    let id = desk.accept("done").await;
    let one = desk.take().await;
    assert!(desk.sent(&one, KEYED).await);
    assert_eq!(
        sql::one::<String>(&desk.client, cancel, &[&id]).await,
        "requested"
    );
    assert_eq!(desk.record(&one, "settled").await, "settled");
    assert_eq!(
        sql::one::<String>(&desk.client, cancel, &[&id]).await,
        "settled"
    );
    desk.must_be_sound().await;
}

#[tokio::test]
async fn what_is_pending_is_asked_and_after_a_week_a_person_is() {
    let desk = Desk::new().await;
    let id = desk.accept("k").await;
    let one = desk.take().await;
    assert!(desk.sent(&one, KEYLESS).await);
    let pending = "select outlast._record($1, $2, 'pending', null, 'ref', null, 60000)";
    assert_eq!(
        sql::one::<String>(&desk.client, pending, &[&one.token, &one.id]).await,
        "pending"
    );
    assert!(desk.claim(10).await.is_empty(), "not before its time");
    let ask = desk.take_later().await;
    assert_eq!(ask.next, 'p');
    assert_eq!(desk.record(&ask, "unsure").await, "pending");
    sql::run(
        &desk.client,
        "update outlast._command set pending_until = outlast.clock()",
    )
    .await;
    let ask = desk.take_later().await;
    assert_eq!(desk.record(&ask, "unsure").await, "pending");
    assert_eq!(desk.incidents().await, ["stopped command"]);
    let resolved: String = sql::one(
        &desk.client,
        "select outlast.resolve($1, 'settled', 'their invoice', reference => 'ch_1')",
        &[&id],
    )
    .await;
    assert_eq!(resolved, "settled");
    assert!(desk.incidents().await.is_empty());
    desk.must_be_sound().await;
}

#[tokio::test]
async fn that_it_leaves_is_durable_before_it_leaves() {
    let desk = Desk::new().await;
    desk.accept("k").await;
    let one = desk.take().await;
    sql::run(&desk.client, "begin; set local synchronous_commit = off").await;
    assert!(desk.sent(&one, KEYLESS).await);
    let commits: String = sql::one(
        &desk.client,
        "select current_setting('synchronous_commit')",
        &[],
    )
    .await;
    assert_eq!(commits, "on", "a crash of the server must not forget it");
    sql::run(&desk.client, "commit").await;
    desk.must_be_sound().await;
}
