//! After transaction ids restarted: each rule by itself, and that each is missed when it is not there.

use outlast_testkit::wait_for;
use uuid::Uuid;

use super::scene::{FAR, Scene, confirm};
use crate::house::DEADLINE;
use crate::sql::{self, Claim};

/// How far ahead the old server was: far, or so little that this one is about to use the same ids.
const AHEAD: [i64; 3] = [FAR, 40, 5];

#[tokio::test]
async fn nobody_claims_or_registers_before_a_person_has_looked() {
    let mut scene = Scene::new().await;
    let c = sql::register(&scene.client, "c", &["a"], "now", None).await;
    scene.emit("a").await;
    scene.dump(FAR).await;
    scene.emit("a").await;
    for refused in [
        sql::state(Claim::of(c).run(&scene.client).await),
        sql::state(sql::reclaim(&scene.client, c, 1).await),
        sql::state(sql::claim_parked(&scene.client, c, 1).await),
        sql::state(
            scene
                .client
                .execute("select outlast.claim('event', 'c')", &[])
                .await,
        ),
        sql::state(
            scene
                .client
                .execute("select outlast.register('d', array['a'])", &[])
                .await,
        ),
    ] {
        assert_eq!(refused, "OL004");
    }
    assert_eq!(
        sql::broken(&scene.client).await.len(),
        1,
        "and verify says so"
    );
    scene.confirm().await.expect("confirms");
    assert_eq!(scene.claim(c, 10).await.len(), 2);
    assert_eq!(sql::broken(&scene.client).await, Vec::<String>::new());
}

/// What is old and open, what was emitted before anybody looked, what comes after; what is done stays done.
async fn story(scene: &mut Scene, ahead: i64) -> (i32, Vec<Uuid>) {
    let c = sql::register(&scene.client, "c", &["a"], "earliest", None).await;
    let mut all = Vec::new();
    for _ in 0..20 {
        all.push(scene.emit("a").await);
    }
    // A straggler: open at the tick, committed after it.
    let writer = scene.house.connect().await;
    sql::run(&writer, "begin").await;
    let straggler = sql::emit(&writer, "a", None).await;
    all.push(scene.emit("a").await);
    let first = scene.claim(c, 10).await;
    assert_eq!(first.len(), 10);
    scene.end(c, &first).await;
    sql::run(&writer, "commit").await;
    all.push(straggler);
    // And what no tick has seen.
    all.push(scene.emit("a").await);
    scene.dump(ahead).await;
    for _ in 0..20 {
        all.push(scene.emit("a").await);
    }
    (c, all)
}

#[tokio::test]
async fn after_a_rebase_nothing_is_lost_and_nothing_comes_again() {
    for ahead in AHEAD {
        let mut scene = Scene::new().await;
        let (c, mut all) = story(&mut scene, ahead).await;
        scene.confirm().await.expect("confirms");
        for _ in 0..20 {
            all.push(scene.emit("a").await);
            scene.drain(c).await;
        }
        assert_eq!(
            (scene.lost(c, &all), scene.again.len()),
            (0, 0),
            "{ahead} ahead"
        );
        assert_eq!(sql::broken(&scene.client).await, Vec::<String>::new());
        // And nothing is looked for for ever. (Others of this server may have been open at the last tick.)
        let beyond = "select outlast._beyond(b) from outlast._batch where consumer = $1 order by seq desc limit 1";
        wait_for("a lane that is at rest", DEADLINE, async || {
            scene.drain(c).await;
            let more: bool = sql::one(&scene.client, beyond, &[&c]).await;
            (!more).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn without_the_base_what_the_old_server_wrote_is_lost() {
    let mut scene = Scene::new().await;
    let rule = "(e.id <= base or pg_visible_in_snapshot(e.xid, visible))";
    scene
        .house
        .plant("_scan", &[(rule, "pg_visible_in_snapshot(e.xid, visible)")])
        .await;
    let (c, all) = story(&mut scene, FAR).await;
    scene.confirm().await.expect("confirms");
    scene.drain(c).await;
    assert!(scene.lost(c, &all) > 0);
}

#[tokio::test]
async fn a_straggler_of_the_old_server_is_lost_when_its_end_is_asked_of_the_new_one() {
    let mut scene = Scene::new().await;
    let rule = "where (a).hi <= (b).base or pg_visible_in_snapshot(o.xid, (b).snap);";
    let planted = "where pg_visible_in_snapshot(o.xid, (b).snap);";
    scene.house.plant("_stragglers", &[(rule, planted)]).await;
    let (c, all) = story(&mut scene, FAR).await;
    scene.confirm().await.expect("confirms");
    scene.drain(c).await;
    assert_eq!(scene.lost(c, &all), 1);
}

/// An open transaction of the new server whose number one of the old server had.
#[tokio::test]
async fn events_below_the_base_are_no_stragglers_of_the_new_server() {
    for planted in [false, true] {
        let mut scene = Scene::new().await;
        if planted {
            let rule = "e.id > greatest(_scan.lo, (a).base) and";
            scene
                .house
                .plant("_scan", &[(rule, "e.id > _scan.lo and")])
                .await;
        }
        let c = sql::register(&scene.client, "c", &["a"], "now", None).await;
        let old = scene.emit("a").await;
        scene.dump(FAR).await;
        scene.confirm().await.expect("confirms");
        let writer = scene.house.connect().await;
        sql::run(&writer, "begin").await;
        let new = sql::emit(&writer, "a", None).await;
        // By chance.
        let chance = "update outlast._event set xid = $1::text::xid8 where event_id = $2";
        let own: String = sql::one(&writer, "select pg_current_xact_id()::text", &[]).await;
        scene
            .client
            .execute(chance, &[&own, &old])
            .await
            .expect("the same number");
        scene.emit("a").await;
        scene.drain(c).await;
        sql::run(&writer, "commit").await;
        let last = scene.claim(c, 10).await;
        assert!(last.iter().any(|event| event.id == new));
        assert_eq!(scene.again, if planted { vec![old] } else { vec![] });
    }
}

/// He has drawn his id and waits for a key of somebody else: no row of his is there yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebase_waits_for_whoever_has_drawn_an_id_and_not_written_its_row() {
    for planted in [false, true] {
        let mut scene = Scene::new().await;
        if planted {
            let (sound, table) = (
                "alter sequence outlast._event_id owned by none;",
                "lock table outlast._event in share row exclusive mode;",
            );
            scene.house.plant("_rebase", &[(sound, table)]).await;
        }
        let c = sql::register(&scene.client, "c", &["a"], "now", None).await;
        scene.dump(FAR).await;
        const KEYED: &str =
            "select id from outlast.emit(type => 'a', payload => '{}', dedup => 'k')";
        let (first, second) = (scene.house.connect().await, scene.house.connect().await);
        sql::run(&first, "begin").await;
        sql::one::<Uuid>(&first, KEYED, &[]).await;
        let pid = sql::pid(&second).await;
        sql::run(&second, "begin").await;
        let second = tokio::spawn(async move {
            let id = sql::one::<Uuid>(&second, KEYED, &[]).await;
            (second, id)
        });
        sql::until_blocked(&scene.client, pid).await;
        let confirming = scene.house.connect().await;
        let pid = sql::pid(&confirming).await;
        let confirming = tokio::spawn(async move { confirm(&confirming).await });
        sql::until_blocked(&scene.client, pid).await;
        sql::run(&first, "rollback").await;
        let (second, event) = second.await.expect("he goes on");
        if planted {
            // The rebase has not waited for him, and somebody takes a tick before he ends.
            confirming.await.expect("ends").expect("confirms");
            scene.emit("a").await;
            scene.drain(c).await;
            sql::run(&second, "commit").await;
        } else {
            sql::run(&second, "commit").await;
            confirming.await.expect("ends").expect("confirms");
        }
        scene.emit("a").await;
        scene.drain(c).await;
        assert_eq!(scene.lost(c, &[event]), usize::from(planted));
    }
}

#[tokio::test]
async fn new_ids_are_above_all_that_progress_refers_to() {
    for planted in [false, true] {
        let mut scene = Scene::new().await;
        if planted {
            let step = "perform setval('outlast._event_id', top + 1);";
            scene.house.plant("_rebase", &[(step, "")]).await;
        }
        let c = sql::register(&scene.client, "c", &["a"], "now", None).await;
        for _ in 0..5 {
            scene.emit("a").await;
        }
        scene.drain(c).await;
        // The log is emptied some day; the sequence did not come along.
        sql::run(
            &scene.client,
            "truncate outlast._event; select setval('outlast._event_id', 1, false)",
        )
        .await;
        scene.dump(FAR).await;
        scene.confirm().await.expect("confirms");
        let event = scene.emit("a").await;
        scene.drain(c).await;
        assert_eq!(scene.lost(c, &[event]), usize::from(planted));
    }
}

/// Logical replication leaves sequences behind: what was emitted before anybody looked has ids that were used before.
#[tokio::test]
async fn events_under_ids_that_were_used_before_get_new_ones() {
    for planted in [false, true] {
        let mut scene = Scene::new().await;
        if planted {
            scene
                .house
                .plant(
                    "_rebase",
                    &[(
                        "from outlast._reused(last, top) x",
                        "from outlast._reused(last, top) x where false",
                    )],
                )
                .await;
        }
        let c = sql::register(&scene.client, "c", &["a"], "now", None).await;
        let mut all = Vec::new();
        for _ in 0..6 {
            all.push(scene.emit("a").await);
        }
        let half = scene.claim(c, 3).await;
        scene.end(c, &half).await;
        scene.dump(FAR).await;
        // The first ids are not in this leaf any more, else an emit would be refused.
        sql::run(&scene.client, "delete from outlast._event where id <= 3; select setval('outlast._event_id', 1, false)").await;
        let again = [scene.emit("a").await, scene.emit("a").await];
        scene.confirm().await.expect("confirms");
        all.push(scene.emit("a").await);
        scene.drain(c).await;
        assert_eq!((scene.lost(c, &all), scene.again.len()), (0, 0));
        assert_eq!(scene.lost(c, &again), if planted { 2 } else { 0 });
    }
}

#[tokio::test]
async fn a_lease_of_the_old_server_completes_nothing_and_its_work_is_taken_over_without_a_charge() {
    let mut scene = Scene::new().await;
    let c = sql::register(&scene.client, "c", &["a"], "now", None).await;
    for _ in 0..4 {
        scene.emit("a").await;
    }
    let events = scene.claim(c, 3).await;
    sql::complete(&scene.client, events[0].token, events[0].id)
        .await
        .expect("completes");
    scene.done.insert((c, events[0].id));
    sql::fail(&scene.client, events[1].token, events[1].id, "retry")
        .await
        .expect("fails");
    sql::run(
        &scene.client,
        "update outlast._parked set next_at = outlast.clock()",
    )
    .await;
    let parked = sql::claim_parked(&scene.client, c, 1)
        .await
        .expect("claims");
    scene.dump(FAR).await;
    scene.confirm().await.expect("confirms");
    // Whoever had it and can reach this server.
    for (token, id) in [
        (events[2].token, events[2].id),
        (parked[0].token, parked[0].id),
    ] {
        assert_eq!(
            sql::state(sql::complete(&scene.client, token, id).await),
            "OL001"
        );
    }
    let state = "select failures, crashes from outlast._parked where event_id = $1";
    let row = scene
        .client
        .query_one(state, &[&parked[0].id])
        .await
        .expect("parked");
    assert_eq!(
        (row.get::<_, i32>(0), row.get::<_, i32>(1)),
        (1, 0),
        "what it had before"
    );
    let retried = sql::claim_parked(&scene.client, c, 1)
        .await
        .expect("claims");
    scene.end(c, &retried).await;
    scene.drain(c).await;
    let all: Vec<Uuid> = events.iter().map(|event| event.id).collect();
    assert_eq!((scene.lost(c, &all), scene.again.len()), (0, 0));
    let parked = "select count(*) from outlast._parked";
    assert_eq!(sql::one::<i64>(&scene.client, parked, &[]).await, 0);
}

/// An open seal under an old lease is waited for, as by whoever ends a lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_seal_in_progress_lands_before_the_rebase_or_not_at_all() {
    let mut scene = Scene::new().await;
    let c = sql::register(&scene.client, "c", &["a"], "now", None).await;
    scene.emit("a").await;
    let events = scene.claim(c, 1).await;
    scene.dump(FAR).await;
    let sealing = scene.house.connect().await;
    sql::run(&sealing, "begin").await;
    sql::complete(&sealing, events[0].token, events[0].id)
        .await
        .expect("completes");
    let confirming = scene.house.connect().await;
    let pid = sql::pid(&confirming).await;
    let confirming = tokio::spawn(async move { confirm(&confirming).await });
    sql::until_blocked(&scene.client, pid).await;
    sql::run(&sealing, "commit").await;
    confirming.await.expect("ends").expect("confirms");
    scene.done.insert((c, events[0].id));
    scene.drain(c).await;
    assert!(scene.again.is_empty());
    assert_eq!(sql::broken(&scene.client).await, Vec::<String>::new());
}

/// Types that were added later count from a cut of the old server.
#[tokio::test]
async fn a_type_that_was_added_late_counts_from_there_also_on_the_new_server() {
    for ahead in AHEAD {
        let mut scene = Scene::new().await;
        let c = sql::register(&scene.client, "c", &["a"], "now", None).await;
        scene.emit("a").await;
        scene.drain(c).await;
        let before = scene.emit("b").await;
        sql::register(&scene.client, "c", &["a", "b"], "now", None).await;
        let mut all = vec![scene.emit("b").await];
        scene.dump(ahead).await;
        all.push(scene.emit("b").await);
        scene.confirm().await.expect("confirms");
        all.push(scene.emit("b").await);
        scene.drain(c).await;
        assert_eq!(
            (scene.lost(c, &all), scene.again.len()),
            (0, 0),
            "{ahead} ahead"
        );
        assert_eq!(scene.lost(c, &[before]), 1, "{ahead} ahead");
        assert_eq!(sql::broken(&scene.client).await, Vec::<String>::new());
    }
}

/// A second dump, of a server that was rebased itself.
#[tokio::test]
async fn a_database_can_be_moved_again() {
    let mut scene = Scene::new().await;
    let (c, mut all) = story(&mut scene, FAR).await;
    scene.confirm().await.expect("confirms");
    let half = scene.claim(c, 5).await;
    scene.end(c, &half).await;
    all.push(scene.emit("a").await);
    scene.dump(30).await;
    all.push(scene.emit("a").await);
    scene.confirm().await.expect("confirms");
    for _ in 0..5 {
        all.push(scene.emit("a").await);
    }
    scene.drain(c).await;
    assert_eq!((scene.lost(c, &all), scene.again.len()), (0, 0));
    assert_eq!(sql::broken(&scene.client).await, Vec::<String>::new());
}

/// Emits wait at most as long as the rebase waits for a lock; then it gives up, and nothing is half done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebase_that_cannot_have_the_sequence_gives_up_and_changes_nothing() {
    let mut scene = Scene::new().await;
    let c = sql::register(&scene.client, "c", &["a"], "now", None).await;
    scene.dump(FAR).await;
    let writer = scene.house.connect().await;
    sql::run(&writer, "begin").await;
    let event = sql::emit(&writer, "a", None).await;
    assert_eq!(sql::state(scene.confirm().await), "55P03");
    assert_eq!(sql::state(Claim::of(c).run(&scene.client).await), "OL004");
    sql::run(&writer, "commit").await;
    scene.confirm().await.expect("confirms");
    scene.drain(c).await;
    assert_eq!(scene.lost(c, &[event]), 0);
}
