//! Events whose completions have no place in the ring of the inbox, and those whose proof is gone.

use std::time::{Duration, SystemTime};

use outlast_core::Failure;
use outlast_postgres::store::Verdict;
use uuid::{Timestamp, Uuid};

use super::{Dock, claimed, envelope, verdicts};
use crate::house::forward;
use crate::sql;

const DAY: u64 = 24 * 60 * 60;

fn v7_at(at: SystemTime) -> Uuid {
    let since = at
        .duration_since(SystemTime::UNIX_EPOCH)
        .expect("after 1970");
    Uuid::new_v7(Timestamp::from_unix(
        uuid::NoContext,
        since.as_secs(),
        since.subsec_nanos(),
    ))
}

#[tokio::test]
async fn an_id_that_tells_no_time_is_completed_once_all_the_same() {
    let dock = Dock::new().await;
    let e = claimed(envelope(Uuid::new_v4()));
    let token = dock.run(&dock.one, &e).await;
    dock.seal(token, &[&e]).await;
    assert_eq!(
        sql::state(sql::complete(&dock.client, token, e.event_id).await),
        "OL002"
    );
    dock.finish(token).await;
    let again = dock.deliver(&dock.two, &[&e]).await;
    assert_eq!(verdicts(&again), [Verdict::Done]);
    // Random ids would keep leaves of the ring from being emptied, or would go with them.
    assert_eq!(
        dock.count("select count(*) from outlast._processed_event")
            .await,
        0
    );
    assert_eq!(dock.done().await, 1);

    // By the road of the retry, and where a person does without it.
    let (retried, skipped) = (
        claimed(envelope(Uuid::new_v4())),
        claimed(envelope(Uuid::new_v4())),
    );
    for e in [&retried, &skipped] {
        let token = dock.run(&dock.one, e).await;
        let failed = dock
            .one
            .fail_delivered(token, &[e], &Failure::retry("no"), true)
            .await;
        assert_eq!(failed.expect("hands over"), "retry");
        dock.finish(token).await;
    }
    let skip = "select outcome from outlast.skip('c', $1, 'a test')";
    assert_eq!(
        sql::one::<String>(&dock.client, skip, &[&skipped.event_id]).await,
        "skipped"
    );
    let token = dock.retry().await[0].token;
    sql::complete(&dock.client, token, retried.event_id)
        .await
        .expect("seals");
    dock.finish(token).await;
    assert_eq!(dock.done().await, 3);
    let again = dock.deliver(&dock.two, &[&retried, &skipped]).await;
    assert_eq!(verdicts(&again), [Verdict::Done, Verdict::Done]);
    dock.must_be_empty().await;
}

#[tokio::test]
async fn an_id_that_tells_another_time_than_its_emit_is_foreign_and_an_old_own_one_is_not() {
    let dock = Dock::new().await;
    let now = SystemTime::now();
    let before = |days: u64| now - Duration::from_secs(days * DAY);
    for (id_at, emitted_at, foreign) in [
        (now, now, false),
        (before(6), now, false),
        (before(8), now, true),
        (now, before(1), true),
        (before(20), before(20), false),
        // From a clock that is far ahead: its leaf would not be emptied for years.
        (
            now + Duration::from_secs(900 * DAY),
            now + Duration::from_secs(900 * DAY),
            true,
        ),
    ] {
        let mut e = envelope(v7_at(id_at));
        e.emitted_at = emitted_at;
        let e = claimed(e);
        let token = dock.run(&dock.one, &e).await;
        dock.seal(token, &[&e]).await;
        dock.finish(token).await;
        let sql = "select exists (select from outlast._foreign_event where event_id = $1)";
        let is: bool = sql::one(&dock.client, sql, &[&e.event_id]).await;
        assert_eq!(is, foreign, "{:?}", now.duration_since(id_at));
        let again = dock.deliver(&dock.two, &[&e]).await;
        assert_eq!(verdicts(&again), [Verdict::Done]);
    }
    dock.must_be_empty().await;
}

#[tokio::test]
async fn what_may_have_been_completed_and_cannot_be_proved_any_more_is_never_run() {
    let dock = Dock::new().await;
    let at = SystemTime::now() - Duration::from_secs(40 * DAY);
    let old = || {
        let mut e = envelope(v7_at(at));
        e.emitted_at = at;
        claimed(e)
    };
    // Nothing was ever emptied here: it is certain that it was not completed.
    dock.run(&dock.one, &old()).await;
    let emptied = "update outlast._ring_slot set emptied_until = outlast.clock() - interval '36 days' where ring = 'inbox'";
    sql::run(&dock.client, emptied).await;
    let judged = dock.deliver(&dock.two, &[&old()]).await;
    assert_eq!((judged[0].verdict, judged[0].kept), (Verdict::Parked, true));
    let incident = "select count(*) from outlast.incident where kind = 'too-old delivery'";
    assert_eq!(dock.count(incident).await, 1);
}

#[tokio::test]
async fn proofs_of_foreign_ids_are_kept_as_long_as_the_inbox_and_then_answer_too_old() {
    let dock = Dock::new().await;
    dock.house.movable_clock().await;
    let e = claimed(envelope(Uuid::new_v4()));
    let token = dock.run(&dock.one, &e).await;
    dock.seal(token, &[&e]).await;
    dock.finish(token).await;
    let forget = "select outlast._forget(100)";
    forward(&dock.client, 29 * 86_400).await;
    assert_eq!(sql::one::<i32>(&dock.client, forget, &[]).await, 0);
    forward(&dock.client, 2 * 86_400).await;
    assert_eq!(sql::one::<i32>(&dock.client, forget, &[]).await, 1);
    let judged = dock.deliver(&dock.two, &[&e]).await;
    assert_eq!((judged[0].verdict, judged[0].kept), (Verdict::Parked, true));
    // One that was emitted later is surely new.
    let mut new = envelope(Uuid::new_v4());
    new.emitted_at += Duration::from_secs(31 * DAY);
    dock.run(&dock.one, &claimed(new)).await;
}
