//! What a consumer on a broker is: no place in the log, no hold on it, rows that go with it.

use outlast_core::Failure;
use outlast_postgres::{Error, store::Verdict};

use super::{Dock, LEASE, event, reads, registration, verdicts};
use crate::house::forward;
use crate::sql;
use uuid::Uuid;

#[tokio::test]
async fn what_it_reads_is_part_of_what_a_consumer_is_but_not_which_broker() {
    let dock = Dock::new().await;
    sql::register(&dock.client, "log", &["a"], "now", None).await;
    let of_the_log = dock
        .one
        .register_delivered(&registration("log", false), &reads("nats"))
        .await;
    assert!(
        matches!(&of_the_log, Err(Error::BadName(why)) if why.contains("reads the log")),
        "{of_the_log:?}"
    );
    let of_a_broker = dock.one.register(&registration("c", false)).await;
    assert!(
        matches!(&of_a_broker, Err(Error::BadName(why)) if why.contains("reads a broker")),
        "{of_a_broker:?}"
    );
    let otherwise = dock
        .one
        .register_delivered(&registration("c", true), &reads("nats"))
        .await;
    assert!(matches!(otherwise, Err(Error::BadName(_))));

    // Moved to another broker it is the same one: what it has completed counts.
    let e = event(None, 1);
    let token = dock.run(&dock.one, &e).await;
    dock.seal(token, &[&e]).await;
    dock.finish(token).await;
    let mut more = registration("c", false);
    more.types.push("b".into());
    let moved = dock.one.register_delivered(&more, &reads("pubsub")).await;
    assert_eq!(moved.expect("moves").id, dock.consumer);
    let seen = "select broker || ' ' || topic || ' ' || subscription || ' ' || array_to_string(types, ',') from outlast.consumer where name = 'c'";
    assert_eq!(
        sql::one::<String>(&dock.client, seen, &[]).await,
        "pubsub orders c a,b"
    );
    assert_eq!(
        verdicts(&dock.deliver(&dock.two, &[&e]).await),
        [Verdict::Done]
    );
    dock.must_be_sound().await;
}

#[tokio::test]
async fn it_holds_nothing_of_the_log_and_is_never_folded() {
    let dock = Dock::new().await;
    dock.house.movable_clock().await;
    sql::emit(&dock.client, "a", None).await;
    let e = event(None, 1);
    let token = dock.run(&dock.one, &e).await;
    dock.seal(token, &[&e]).await;
    dock.finish(token).await;
    forward(&dock.client, 5 * 86_400).await;
    let folded = dock
        .client
        .query("select * from outlast._fold($1)", &[&dock.consumer])
        .await;
    assert!(folded.expect("asks").is_empty());
    let needs = "select count(*) from generate_series(0, 15) s cross join lateral outlast._log_needs(s::smallint) n
        where n.about = 'c'";
    assert_eq!(dock.count(needs).await, 0);
    // A sweep of its leaf takes its rows along.
    let slot = "select outlast._inbox_slot($1)";
    let slot: i16 = sql::one(&dock.client, slot, &[&e.event_id]).await;
    let kept = "select count(*) from outlast._rows_to_keep($1) where event_id = $2";
    assert_eq!(
        sql::one::<i64>(&dock.client, kept, &[&slot, &e.event_id]).await,
        1
    );
    let again = dock.deliver(&dock.two, &[&e]).await;
    assert_eq!(verdicts(&again), [Verdict::Done]);
    dock.must_be_sound().await;
}

/// Nobody reads the log here: in whichever table, their rows are the proof.
#[tokio::test]
async fn a_leaf_that_only_brokers_fill_counts_as_swept_and_keeps_its_rows() {
    let dock = Dock::new().await;
    dock.house.movable_clock().await;
    let many = "insert into outlast._processed_event (event_id, at, consumer, slot, outcome)
        select id, outlast.clock(), 1, outlast._inbox_slot(id), 'd' from (select outlast._v7(outlast.clock()) as id from generate_series(1, 5001)) x";
    sql::run(&dock.client, many).await;
    forward(&dock.client, 8 * 86_400).await;
    let swept = "select count(*) from outlast._ring_slot r join outlast._processed_event p on p.slot = r.slot
        where r.ring = 'inbox' and r.swept_until > outlast._v7_time(p.event_id)";
    assert_eq!(dock.count(swept).await, 0);
    assert_eq!(
        dock.count("select count(*) from outlast._judge() where ring = 'inbox'")
            .await,
        0
    );
    assert_eq!(dock.count("select outlast._move_out(100)::bigint").await, 0);
    assert_eq!(dock.count(swept).await, 5001);
}

#[tokio::test]
async fn a_retired_consumer_leaves_nothing_and_its_workers_are_refused() {
    let dock = Dock::ordered().await;
    let (running, parked) = (event(Some("a"), 1), event(Some("b"), 2));
    let token = dock.run(&dock.one, &running).await;
    dock.deliver(&dock.two, &[&event(Some("a"), 3)]).await;
    let other = dock.run(&dock.two, &parked).await;
    let failed = dock
        .two
        .fail_delivered(other, &[&parked], &Failure::permanent("no"), true)
        .await;
    failed.expect("hands over");
    dock.finish(other).await;
    let given_up: serde_json::Value = sql::one(
        &dock.client,
        "select outlast.retire_consumer('c', 'a test')",
        &[],
    )
    .await;
    assert_eq!(
        (
            &given_up["in_flight"],
            &given_up["behind"],
            &given_up["quarantined"]
        ),
        (&1.into(), &1.into(), &1.into())
    );
    assert_eq!(
        sql::state(sql::complete(&dock.client, token, running.event_id).await),
        "OL001"
    );
    let late = dock
        .one
        .register_delivered(&registration("c", true), &reads("memory"))
        .await;
    assert!(matches!(late, Err(Error::ConsumerGone(_))), "{late:?}");
    let judged = dock.deliver(&dock.one, &[&event(None, 4)]).await;
    assert!(
        matches!(verdicts(&judged)[..], [Verdict::Paused(_)]),
        "{judged:?}"
    );
    dock.must_be_empty().await;
}

#[tokio::test]
async fn after_a_restore_nobody_owns_what_was_delivered() {
    let dock = Dock::new().await;
    let e = event(None, 1);
    let token = dock.run(&dock.one, &e).await;
    sql::run(&dock.client, "select outlast._rebase()").await;
    assert_eq!(
        sql::state(sql::complete(&dock.client, token, e.event_id).await),
        "OL001"
    );
    let again = dock.deliver(&dock.two, &[&e]).await;
    assert!(
        matches!(verdicts(&again)[..], [Verdict::Run(_)]),
        "{again:?}"
    );
    dock.must_be_sound().await;
}

#[tokio::test]
async fn what_is_no_event_is_kept_once_as_it_came_until_a_person_has_looked() {
    let dock = Dock::new().await;
    let attributes = [("x\0".to_owned(), "\u{1}ü".to_owned())];
    let keep = async |body: &[u8]| {
        let kept = dock
            .one
            .keep_unreadable(dock.consumer, "7\0", "no\0 id", &attributes, body)
            .await;
        kept.expect("keeps")
    };
    let id = keep(b"\x00\xff").await;
    assert_eq!(keep(b"\x00\xff").await, id);
    assert_ne!(keep(b"other").await, id);
    let sql = "select seen, why, payload from outlast.unreadable where id = $1";
    let row = dock.client.query_one(sql, &[&id]).await.expect("there");
    assert_eq!(
        (
            row.get::<_, i64>(0),
            row.get::<_, &str>(1),
            row.get::<_, &[u8]>(2)
        ),
        (2, "no id", &b"\x00\xff"[..])
    );
    let incidents = "select count(*) from outlast.incident where kind = 'unreadable message' and owner = 'team'";
    assert_eq!(dock.count(incidents).await, 2);
    let discard = "select outlast.discard('c', $1, 'junk of a test')";
    assert!(sql::one::<bool>(&dock.client, discard, &[&id]).await);
    assert!(!sql::one::<bool>(&dock.client, discard, &[&id]).await);
    assert_eq!(dock.count(incidents).await, 1);
    let audited = "select count(*) from outlast._audit where action = 'unreadable.discarded'";
    assert_eq!(dock.count(audited).await, 1);
}

#[tokio::test]
async fn what_the_broker_gave_up_on_becomes_one_incident_unless_it_is_done_or_in_work() {
    let dock = Dock::ordered().await;
    let (dead, done, running) = (event(Some("k"), 1), event(None, 2), event(None, 3));
    let token = dock.run(&dock.one, &done).await;
    dock.seal(token, &[&done]).await;
    dock.finish(token).await;
    dock.run(&dock.one, &running).await;
    let import = async || {
        let all = [&dead, &done, &running];
        let judged = dock
            .one
            .import_dead(dock.consumer, &all, LEASE, "delivered 5 times")
            .await;
        let judged = judged.expect("imports");
        let of = |id: Uuid| {
            let one = judged.iter().find(|one| one.event_id == id).expect("each");
            (one.verdict, one.kept)
        };
        assert_eq!(of(done.event_id), (Verdict::Done, false));
        assert!(matches!(of(running.event_id).0, Verdict::Defer(_)));
        of(dead.event_id)
    };
    assert_eq!(import().await, (Verdict::Parked, true));
    assert_eq!(import().await, (Verdict::Parked, false));
    let incident = "select count(*) from outlast.incident where class = 'dead-letter' and reason = 'delivered 5 times' and about = $1";
    assert_eq!(
        sql::one::<i64>(&dock.client, incident, &[&dead.event_id]).await,
        1
    );
    // Later ones of its key wait for the person, too.
    let judged = dock.deliver(&dock.two, &[&event(Some("k"), 4)]).await;
    assert_eq!(verdicts(&judged), [Verdict::Parked]);
    let retry = "select outcome from outlast.retry('c', $1)";
    assert_eq!(
        sql::one::<String>(&dock.client, retry, &[&dead.event_id]).await,
        "retry"
    );
    let retried = dock.retry().await;
    assert_eq!(
        (retried[0].event_id, &retried[0].payload),
        (dead.event_id, &dead.payload)
    );
    dock.must_be_sound().await;
}
