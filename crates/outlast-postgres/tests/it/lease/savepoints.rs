//! Seals that are not there although the handler believes it: what SQL lets a program do to itself loses nothing.

use super::scene::{ISOLATIONS, Scene};
use crate::house::House;
use crate::sql;

#[tokio::test]
async fn a_savepoint_rolled_back_after_the_seal_leaves_the_event_to_the_finish() {
    let house = House::new().await;
    for (n, isolation) in ISOLATIONS.into_iter().enumerate() {
        let scene = Scene::new(&house, &format!("savepoint{n}")).await;
        sql::run(
            &scene.runner,
            &format!("begin isolation level {isolation}; savepoint s"),
        )
        .await;
        scene.effect(scene.token).await;
        scene.complete().await.expect("seals");
        sql::run(&scene.runner, "rollback to s; commit").await;

        assert_eq!(
            sql::finish(&scene.ender, &[scene.token])
                .await
                .expect("finishes"),
            [1],
            "{isolation}"
        );
        assert_eq!(
            scene.parked().await.as_deref(),
            Some("unsealed"),
            "{isolation}"
        );
        scene.must_add_up().await.expect(isolation);
        scene.must_end_well().await.expect(isolation);
    }
}

/// The lock went with the savepoint, so the lease may be taken over before COMMIT: the seal then comes too late.
#[tokio::test]
async fn a_seal_after_a_savepoint_rolled_back_proves_the_lease_again() {
    let house = House::new().await;
    for (n, isolation) in ISOLATIONS.into_iter().enumerate() {
        let scene = Scene::new(&house, &format!("again{n}")).await;
        sql::run(
            &scene.runner,
            &format!("begin isolation level {isolation}; savepoint s"),
        )
        .await;
        scene.complete().await.expect("seals");
        sql::run(&scene.runner, "rollback to s").await;
        let taken = sql::reclaim(&scene.ender, scene.consumer, 1)
            .await
            .expect("reclaims");
        assert_eq!(taken.len(), 1, "{isolation}: nobody seals it any more");
        let refused = sql::state(scene.complete().await);
        assert_eq!(
            refused,
            if n == 0 { "OL001" } else { "40001" },
            "{isolation}"
        );
        sql::run(&scene.runner, "rollback").await;
        scene.must_end_well().await.expect(isolation);
    }
}

#[tokio::test]
async fn a_failed_transaction_that_is_committed_leaves_the_event_to_the_finish() {
    let house = House::new().await;
    for (n, isolation) in ISOLATIONS.into_iter().enumerate() {
        let scene = Scene::new(&house, &format!("failed{n}")).await;
        scene.work(isolation).await;
        scene.complete().await.expect("seals");
        scene
            .runner
            .batch_execute("select 1 / 0")
            .await
            .expect_err("fails");
        assert!(
            !scene.commit().await.expect("answers"),
            "COMMIT answers ROLLBACK"
        );

        assert_eq!(
            sql::finish(&scene.ender, &[scene.token])
                .await
                .expect("finishes"),
            [1],
            "{isolation}"
        );
        assert_eq!(
            scene.parked().await.as_deref(),
            Some("unsealed"),
            "{isolation}"
        );
        scene.must_add_up().await.expect(isolation);
        scene.must_end_well().await.expect(isolation);
    }
}

#[tokio::test]
async fn a_seal_that_was_forgotten_leaves_the_event_to_the_finish() {
    let house = House::new().await;
    let scene = Scene::new(&house, "forgotten").await;
    assert_eq!(
        sql::finish(&scene.ender, &[scene.token])
            .await
            .expect("finishes"),
        [1]
    );
    assert_eq!(scene.parked().await.as_deref(), Some("unsealed"));
    let unsealed: i64 = sql::one(
        &scene.observer,
        "select count(*) from outlast.parked where class = 'unsealed'",
        &[],
    )
    .await;
    assert_eq!(unsealed, 1, "and it is counted");
    scene.must_end_well().await.expect("ends well");
}

/// Between two runners of one event, one sealed and one failed it, both may commit. Then it is done.
#[tokio::test]
async fn sealed_and_parked_side_by_side_is_done() {
    let house = House::new().await;
    for (n, class) in ["retry", "permanent"].into_iter().enumerate() {
        let scene = Scene::new(&house, &format!("both{n}")).await;
        scene.work("read committed").await;
        scene.complete().await.expect("seals");
        sql::fail(&scene.ender, scene.token, scene.event, class)
            .await
            .expect("fails");
        assert!(scene.commit().await.expect("commits"));
        assert_eq!(
            (scene.seals().await, scene.parked().await.as_deref()),
            (1, Some(class))
        );

        assert_eq!(
            sql::broken(&scene.observer).await,
            Vec::<String>::new(),
            "{class}: the batch is under way"
        );

        assert_eq!(
            sql::finish(&scene.ender, &[scene.token])
                .await
                .expect("finishes"),
            [0]
        );
        scene.must_end_well().await.expect(class);
        let incidents: i64 = sql::one(
            &scene.observer,
            "select count(*) from outlast.incident",
            &[],
        )
        .await;
        assert_eq!(incidents, 0, "what is done needs nobody");
    }
}
