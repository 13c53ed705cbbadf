//! The seal in one message with its COMMIT, and how whoever got no answer to that message finds out.

use super::scene::{ISOLATIONS, Scene};
use crate::house::House;
use crate::sql;

/// As a worker sends it: begun with the mark, then the seal and COMMIT together. The SQLSTATE, if it was refused.
async fn together(scene: &Scene, isolation: &str, mark: &str) -> Option<String> {
    sql::run(
        &scene.runner,
        &format!("begin isolation level {isolation}; {mark}"),
    )
    .await;
    scene.effect(scene.token).await;
    let (token, event) = (scene.token, scene.event);
    let message = format!("select outlast._seal_last('{token}', '{event}'); commit");
    let answer = scene.runner.batch_execute(&message).await;
    if answer.is_err() {
        sql::run(&scene.runner, "rollback").await;
    }
    answer.err().map(|error| sql::state::<()>(Err(error)))
}

const MARK: &str = "set local outlast.begun = 'yes'";

#[tokio::test]
async fn a_seal_in_one_message_with_its_commit_is_there_with_its_effects_or_neither_is() {
    let house = House::new().await;
    for (n, isolation) in ISOLATIONS.into_iter().enumerate() {
        let scene = Scene::new(&house, &format!("last{n}")).await;
        // Without its mark the transaction may be one that the handler has begun itself.
        assert_eq!(
            together(&scene, isolation, "").await.as_deref(),
            Some("OL005")
        );
        assert_eq!((scene.effects().await, scene.seals().await), (0, 0));
        assert_eq!(together(&scene, isolation, MARK).await, None);
        assert_eq!((scene.effects().await, scene.seals().await), (1, 1));
        let again = together(&scene, isolation, MARK).await;
        assert!(
            matches!(again.as_deref(), Some("23505" | "OL002")),
            "{again:?}"
        );
        assert_eq!((scene.effects().await, scene.seals().await), (1, 1));

        let scene = Scene::new(&house, &format!("parked{n}")).await;
        sql::fail(&scene.observer, scene.token, scene.event, "retry")
            .await
            .expect("fails");
        let parked = together(&scene, isolation, MARK).await;
        assert_eq!(parked.as_deref(), Some("OL003"), "a later try owns it");
        assert_eq!((scene.effects().await, scene.seals().await), (0, 0));
    }
}

#[tokio::test]
async fn a_parked_event_is_sealed_in_one_message_by_its_own_lease() {
    let house = House::new().await;
    let mut scene = Scene::new(&house, "a").await;
    sql::fail(&scene.observer, scene.token, scene.event, "retry")
        .await
        .expect("fails");
    let due = "update outlast._parked set next_at = outlast.clock()";
    sql::run(&scene.observer, due).await;
    let claim = "select token from outlast._claim_parked($1, 1, 60000, array['a'], array[1])";
    scene.token = sql::one(&scene.observer, claim, &[&scene.consumer]).await;
    assert_eq!(together(&scene, "read committed", MARK).await, None);
    assert_eq!((scene.seals().await, scene.parked().await), (1, None));
}

#[tokio::test]
async fn whether_an_unanswered_seal_took_place_is_told_after_its_transaction_has_ended() {
    let house = House::new().await;
    for (n, isolation) in ISOLATIONS.into_iter().enumerate() {
        for end in ["commit", "rollback"] {
            let scene = Scene::new(&house, &format!("{end}{n}")).await;
            scene.work(isolation).await;
            scene.complete().await.expect("seals");
            let asker = sql::pid(&scene.ender).await;
            let asking = async {
                let sql = "select outlast._settled($1, $2)";
                sql::one::<bool>(&scene.ender, sql, &[&scene.token, &scene.event]).await
            };
            let ending = async {
                sql::until_blocked(&scene.observer, asker).await;
                sql::run(&scene.runner, end).await;
            };
            let (sealed, ()) = tokio::join!(asking, ending);
            assert_eq!(sealed, end == "commit", "{isolation}");
        }
    }
}

#[tokio::test]
async fn whether_an_unanswered_seal_took_place_is_not_told_to_whom_the_lease_is_lost() {
    let house = House::new().await;
    let scene = Scene::new(&house, "a").await;
    sql::reclaim(&scene.ender, scene.consumer, 1)
        .await
        .expect("reclaims");
    let sql = "select outlast._settled($1, $2)";
    let told = scene
        .runner
        .execute(sql, &[&scene.token, &scene.event])
        .await;
    assert_eq!(sql::state(told), "OL001");
}
