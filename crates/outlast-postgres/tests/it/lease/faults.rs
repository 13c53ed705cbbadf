//! What each lock of the lease is for: without it the bad thing happens, and these tests see it.

use super::scene::Scene;
use crate::house::House;
use crate::sql;

/// The runner works and completes, its lease is taken over, the runner commits. How many effects are stale then.
async fn stale_commits(scene: &Scene, isolation: &str) -> i64 {
    scene.work(isolation).await;
    let sealed = scene.complete().await;
    let taken = sql::reclaim(&scene.ender, scene.consumer, 10)
        .await
        .expect("reclaims");
    let committed = sealed.is_ok() && scene.commit().await.expect("answers");
    if sealed.is_err() {
        sql::run(&scene.runner, "rollback").await;
    }
    i64::from(committed && !taken.is_empty())
}

#[tokio::test]
async fn a_plain_read_of_the_token_lets_a_stale_runner_commit() {
    let house = House::new().await;
    let scene = Scene::new(&house, "sound").await;
    assert_eq!(stale_commits(&scene, "read committed").await, 0);

    let lock = "perform pg_advisory_xact_lock_shared(outlast._lease_lock(_prove.token));";
    house.plant("_prove", &[(lock, "")]).await;
    let scene = Scene::new(&house, "planted").await;
    assert_eq!(stale_commits(&scene, "read committed").await, 1);
}

#[tokio::test]
async fn a_plain_read_of_the_row_lets_a_stale_runner_with_an_old_snapshot_commit() {
    let house = House::new().await;
    house
        .plant(
            "_prove",
            &[(
                "where x.token = _prove.token for key share;",
                "where x.token = _prove.token;",
            )],
        )
        .await;
    for isolation in ["repeatable read", "serializable"] {
        let scene = Scene::new(&house, isolation.split(' ').next().expect("a word")).await;
        assert_eq!(stale_commits(&scene, isolation).await, 1, "{isolation}");
    }
}

#[tokio::test]
async fn for_share_instead_of_key_share_blocks_renewal() {
    let house = House::new().await;
    for planted in [false, true] {
        if planted {
            house
                .plant("_prove", &[("for key share;", "for share;")])
                .await;
        }
        let scene = Scene::new(&house, if planted { "planted" } else { "sound" }).await;
        scene.work("repeatable read").await;
        scene.complete().await.expect("seals");
        sql::run(&scene.ender, "set lock_timeout = '300ms'").await;
        let renewed = scene
            .ender
            .execute("select outlast.renew($1, 1000)", &[&scene.token])
            .await;
        match planted {
            false => assert!(renewed.is_ok(), "a renewal never waits for a seal"),
            true => assert_eq!(sql::state(renewed), "55P03"),
        }
        sql::run(&scene.runner, "rollback").await;
    }
}

/// Even with both locks: an update that leaves the key alone does not disturb a key share lock from behind a snapshot.
#[tokio::test]
async fn a_reclaim_by_update_lets_a_stale_runner_with_an_old_snapshot_commit() {
    let house = House::new().await;
    let (scene, other) = (
        Scene::new(&house, "c").await,
        Scene::new(&house, "sound").await,
    );
    let stale = |refused: String| assert_eq!(refused, "40001");
    other.work("repeatable read").await;
    sql::reclaim(&other.ender, other.consumer, 10)
        .await
        .expect("reclaims");
    stale(sql::state(other.complete().await));

    let deleted = "delete from outlast._lease x where x.token = l.token;\n    insert into outlast._lease (token, room, consumer, lane, seq, reclaims, process, holder, expires_at)\n    values (fresh, 'batch', l.consumer, l.lane, l.seq, l.reclaims + 1, _reclaim.process, _reclaim.holder,\n            outlast.clock() + make_interval(secs => lease_ms / 1000.0));";
    let updated = "update outlast._lease x set token = fresh, reclaims = l.reclaims + 1, expires_at = outlast.clock() + make_interval(secs => lease_ms / 1000.0) where x.token = l.token;";
    house
        .plant(
            "_reclaim",
            &[
                (deleted, updated),
                ("for update skip locked", "for no key update skip locked"),
            ],
        )
        .await;
    // As long as the token is a key of the table, an update of it still disturbs.
    let sql = "alter table outlast._lease drop constraint _lease_pkey; create index on outlast._lease (token)";
    sql::run(&scene.observer, sql).await;
    scene.work("repeatable read").await;
    let taken = sql::reclaim(&scene.ender, scene.consumer, 10)
        .await
        .expect("reclaims");
    assert_eq!(taken.len(), 1);
    scene.complete().await.expect("the stale runner seals");
    assert!(scene.commit().await.expect("answers"), "and commits");
}

#[tokio::test]
async fn an_ender_that_locks_rows_only_lets_a_stale_runner_commit() {
    let house = House::new().await;
    house
        .plant(
            "_reclaim",
            &[(
                "continue when not pg_try_advisory_xact_lock(outlast._lease_lock(t));",
                "",
            )],
        )
        .await;
    let scene = Scene::new(&house, "c").await;
    assert_eq!(stale_commits(&scene, "read committed").await, 1);
}

/// It neither waits for the open seal nor sees it: what is being done is parked as not done.
#[tokio::test]
async fn a_finish_without_the_advisory_lock_parks_what_is_being_sealed() {
    let house = House::new().await;
    house
        .plant(
            "_take",
            &[(
                "perform pg_advisory_xact_lock(outlast._lease_lock(_take.token));",
                "null;",
            )],
        )
        .await;
    let scene = Scene::new(&house, "c").await;
    scene.work("read committed").await;
    scene.complete().await.expect("seals");
    assert_eq!(
        sql::finish(&scene.ender, &[scene.token])
            .await
            .expect("does not wait"),
        [1]
    );
    assert!(
        scene.commit().await.expect("answers"),
        "behind the end of its lease"
    );
    assert_eq!(
        (scene.seals().await, scene.parked().await.as_deref()),
        (1, Some("unsealed"))
    );
}
