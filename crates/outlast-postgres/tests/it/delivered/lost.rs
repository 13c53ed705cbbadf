//! Owners that are gone: the innocent go on, and whoever kills his worker again and again is found.

use outlast_postgres::store::{Claimed, Verdict};
use uuid::Uuid;

use super::{Dock, event, verdicts};
use crate::sql;

/// Delivers all of them, to one token.
async fn run_all(dock: &Dock, events: &[&Claimed]) -> Uuid {
    let judged = dock.deliver(&dock.one, events).await;
    let Verdict::Run(token) = judged[0].verdict else {
        panic!("{judged:?}")
    };
    assert!(judged.iter().all(|one| one.verdict == Verdict::Run(token)));
    token
}

#[tokio::test]
async fn from_the_second_loss_on_what_had_started_is_a_suspect_and_nobody_else() {
    let dock = Dock::new().await;
    let (poison, innocent) = (event(None, 1), event(None, 2));
    let both = [&poison, &innocent];
    run_all(&dock, &both).await;
    dock.lapse().await;

    // Lost once: it runs as it is, but what starts is marked.
    let judged = dock.deliver(&dock.one, &both).await;
    assert!(
        judged
            .iter()
            .all(|one| (one.attempt, one.reclaims) == (2, 1))
    );
    let Verdict::Run(token) = judged[0].verdict else {
        panic!("{judged:?}")
    };
    dock.one
        .start(token, &[poison.event_id])
        .await
        .expect("marks");
    dock.lapse().await;

    // Lost twice: the one that had started is handed over to run alone, the other one goes on.
    let judged = dock.deliver(&dock.one, &both).await;
    let of = |e: &Claimed| {
        judged
            .iter()
            .find(|one| one.event_id == e.event_id)
            .expect("one")
    };
    assert_eq!(
        (of(&poison).verdict, of(&poison).kept),
        (Verdict::Parked, true)
    );
    assert!(matches!(of(&innocent).verdict, Verdict::Run(_)));
    let suspect = "select count(*) from outlast.parked where class = 'crashed' and crashes = 1";
    assert_eq!(dock.count(suspect).await, 1);

    // It kills two more.
    for _ in 0..2 {
        assert_eq!(dock.retry().await.len(), 1);
        dock.lapse().await;
    }
    assert_eq!(dock.retry().await.len(), 0);
    let incident = "select count(*) from outlast.incident where class = 'crashed'";
    assert_eq!(dock.count(incident).await, 1);
    dock.must_be_sound().await;
}

#[tokio::test]
async fn a_loss_is_remembered_until_the_broker_delivers_again_and_what_was_sealed_is_not_lost() {
    let dock = Dock::new().await;
    let (sealed, open) = (event(None, 1), event(None, 2));
    let token = run_all(&dock, &[&sealed, &open]).await;
    dock.seal(token, &[&sealed]).await;
    dock.lapse().await;
    // Somebody sweeps before anything comes again.
    let due = dock.two.due(&[dock.consumer]).await.expect("looks");
    assert!(due[&dock.consumer].lapsed);
    let swept = dock.two.reclaim(dock.consumer, 1, super::LEASE).await;
    assert!(swept.expect("sweeps").events.is_empty());
    assert!(!dock.two.due(&[dock.consumer]).await.expect("looks")[&dock.consumer].lapsed);
    assert_eq!(dock.count("select count(*) from outlast._lease").await, 0);
    dock.must_be_sound().await;

    let judged = dock.deliver(&dock.two, &[&sealed]).await;
    assert_eq!(verdicts(&judged), [Verdict::Done]);
    let judged = dock.deliver(&dock.two, &[&open]).await;
    assert_eq!((judged[0].attempt, judged[0].reclaims), (2, 1));
}

#[tokio::test]
async fn what_the_broker_never_delivers_again_is_forgotten_and_holds_nothing() {
    let dock = Dock::ordered().await;
    dock.house.movable_clock().await;
    let (lost, later) = (event(Some("k"), 1), event(Some("k"), 2));
    dock.run(&dock.one, &lost).await;
    dock.lapse().await;
    dock.two
        .reclaim(dock.consumer, 1, super::LEASE)
        .await
        .expect("sweeps");
    let judged = dock.deliver(&dock.two, &[&later]).await;
    assert_eq!(verdicts(&judged), [Verdict::Parked]);
    assert_eq!(dock.retry().await.len(), 0, "it waits for the first");
    dock.must_be_sound().await;

    let forget = "select outlast._forget(100)";
    assert_eq!(sql::one::<i32>(&dock.client, forget, &[]).await, 0);
    crate::house::forward(&dock.client, 31 * 60).await;
    assert_eq!(sql::one::<i32>(&dock.client, forget, &[]).await, 1);
    let retried = dock.retry().await;
    assert_eq!(retried.len(), 1);
    dock.seal(retried[0].token, &[&later]).await;
    dock.finish(retried[0].token).await;
    dock.must_be_empty().await;
}
