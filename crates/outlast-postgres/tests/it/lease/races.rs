//! Who waits for whom: one that is stuck holds up nobody else.

use uuid::Uuid;

use super::scene::Scene;
use crate::house::{DEADLINE, House};
use crate::sql::{self, Claim};

/// While a finish waits for an open seal, the other leases of the same worker go on being renewed.
#[tokio::test]
async fn a_renewal_of_many_leases_does_not_wait_for_one_that_is_being_ended() {
    let house = House::new().await;
    let (stuck, other) = (
        Scene::new(&house, "stuck").await,
        Scene::new(&house, "other").await,
    );
    stuck.work("read committed").await;
    stuck.complete().await.expect("seals");
    let pid = sql::pid(&stuck.ender).await;
    let ended = [stuck.token];
    let finish = sql::finish(&stuck.ender, &ended);
    let meanwhile = async {
        sql::until_blocked(&stuck.observer, pid).await;
        sql::run(&other.observer, "set lock_timeout = '5s'").await;
        let tokens = [stuck.token, other.token, Uuid::nil()];
        let sql = "select * from outlast._renew_all($1, 60000) t order by t = $2";
        let rows = other
            .observer
            .query(sql, &[&&tokens[..], &other.token])
            .await
            .expect("does not wait");
        let renewed: Vec<Uuid> = rows.iter().map(|row| row.get(0)).collect();
        assert_eq!(renewed, [stuck.token, other.token], "both are still there");
        let lapsed: bool = sql::one(
            &other.observer,
            "select lapsed from outlast.lease where token = $1",
            &[&other.token],
        )
        .await;
        assert!(!lapsed);
        assert!(stuck.commit().await.expect("answers"));
    };
    let (finished, ()) = tokio::time::timeout(DEADLINE, async { tokio::join!(finish, meanwhile) })
        .await
        .expect("ends");
    assert_eq!(finished.expect("finishes"), [0]);
}

/// A seal that stays open, as in a forgotten prepared transaction, keeps its own batch and no other.
#[tokio::test]
async fn a_batch_whose_seal_is_stuck_does_not_keep_the_next_one_from_a_reclaim() {
    let house = House::new().await;
    for isolation in super::scene::ISOLATIONS {
        let name = isolation.replace(' ', "-");
        let stuck = Scene::new(&house, &name).await;
        let later = sql::emit(&stuck.observer, &name, None).await;
        let second = Claim::of(stuck.consumer)
            .next(&stuck.observer)
            .await
            .expect("claims");
        stuck.lapse(second[0].token).await;
        stuck.work(isolation).await;
        stuck.complete().await.expect("seals");
        let taken = sql::reclaim(&stuck.ender, stuck.consumer, 1)
            .await
            .expect("reclaims");
        assert_eq!(
            taken.iter().map(|event| event.id).collect::<Vec<_>>(),
            [later],
            "{isolation}"
        );
        sql::run(&stuck.runner, "rollback").await;
    }
}

/// Between the list of what is due and the locks somebody else takes the event: he keeps it, nobody is charged.
#[tokio::test]
async fn a_parked_event_that_was_just_claimed_is_not_taken_away_again() {
    let house = House::new().await;
    for planted in [false, true] {
        let scene = Scene::new(&house, if planted { "planted" } else { "sound" }).await;
        sql::fail(&scene.observer, scene.token, scene.event, "retry")
            .await
            .expect("fails");
        sql::run(
            &scene.observer,
            "update outlast._parked set next_at = outlast.clock()",
        )
        .await;

        let first_lock = "select * into l from outlast._lease x\n    where x.room = 'parked' and x.consumer = _claim_parked.consumer";
        let gate = format!(
            "if current_setting('proof.slow', true) = 'yes' then perform pg_advisory_xact_lock_shared(4712); end if;\n    {first_lock}"
        );
        let again = "continue when l.token = p.token and not outlast._lapsed(l.expires_at);";
        let mut pieces = vec![(first_lock, gate.as_str())];
        if planted {
            pieces.push((again, ""));
        }
        house.plant("_claim_parked", &pieces).await;

        sql::run(&scene.observer, "select pg_advisory_lock(4712)").await;
        sql::run(&scene.ender, "set proof.slow = 'yes'").await;
        let pid = sql::pid(&scene.ender).await;
        let slow = sql::claim_parked(&scene.ender, scene.consumer, 1);
        let meanwhile = async {
            sql::until_blocked(&scene.observer, pid).await;
            let quick = sql::claim_parked(&scene.runner, scene.consumer, 1)
                .await
                .expect("claims");
            sql::run(&scene.observer, "select pg_advisory_unlock(4712)").await;
            quick
        };
        let (slow, quick) = tokio::join!(slow, meanwhile);
        assert_eq!(quick.len(), 1);
        let completed = sql::complete(&scene.runner, quick[0].token, scene.event).await;
        if planted {
            assert_eq!(slow.expect("claims").len(), 1, "the fault takes it away");
            assert_eq!(sql::state(completed), "OL001");
        } else {
            assert!(slow.expect("claims").is_empty());
            completed.expect("he keeps it");
        }
    }
}

/// A claim and the finish before it do not see each other: the row of the old batch stays, until the next claim.
#[tokio::test]
async fn a_batch_row_that_nobody_needs_goes_with_the_next_claim() {
    let house = House::new().await;
    let scene = Scene::new(&house, "c").await;
    let rows = "select count(*) from outlast._batch";
    sql::seal(&scene.observer, scene.token, &[scene.event])
        .await
        .expect("seals");

    sql::run(&scene.runner, "begin").await;
    sql::emit(&scene.observer, "c", None).await;
    let second = Claim::of(scene.consumer)
        .next(&scene.runner)
        .await
        .expect("claims");
    sql::finish(&scene.ender, &[scene.token])
        .await
        .expect("finishes");
    sql::run(&scene.runner, "commit").await;
    assert_eq!(
        sql::one::<i64>(&scene.observer, rows, &[]).await,
        2,
        "one of them is left over"
    );

    sql::seal(&scene.observer, second[0].token, &[second[0].id])
        .await
        .expect("seals");
    sql::finish(&scene.ender, &[second[0].token])
        .await
        .expect("finishes");
    sql::emit(&scene.observer, "c", None).await;
    let third = Claim::of(scene.consumer)
        .next(&scene.runner)
        .await
        .expect("claims");
    assert_eq!(third.len(), 1);
    assert_eq!(sql::one::<i64>(&scene.observer, rows, &[]).await, 1);
}

/// The last seals and the end of their batch, while somebody else ends it too: both come to an end.
#[tokio::test]
async fn two_ends_of_one_batch_with_seals_in_one_of_them_do_not_wait_for_each_other() {
    for planted in [false, true] {
        let house = House::new().await;
        let ends = "if repeated or not outlast._end_whole(";
        let gate = format!(
            "perform pg_advisory_xact_lock_shared(4713);\n  perform outlast._take(token);\n  {ends}"
        );
        let mut pieces = vec![(ends, gate.as_str())];
        if planted {
            pieces.push(("l := outlast._take(token);", "l := outlast._prove(token);"));
        }
        house.plant("_seal_and_finish", &pieces).await;
        let scene = Scene::new(&house, "c").await;
        sql::run(&scene.observer, "select pg_advisory_lock(4713)").await;
        let (first, second) = (sql::pid(&scene.runner).await, sql::pid(&scene.ender).await);
        let (ids, tokens) = ([scene.event], [scene.token]);
        let sealing = async {
            let sql = "select outlast._seal_and_finish($1, $2, false)";
            let row = scene
                .runner
                .query_one(sql, &[&scene.token, &&ids[..]])
                .await;
            row.map(|row| row.get::<_, Option<i32>>(0))
        };
        let ending = async {
            sql::until_blocked(&scene.observer, first).await;
            sql::finish(&scene.ender, &tokens).await
        };
        let opening = async {
            sql::until_blocked(&scene.observer, first).await;
            sql::until_blocked(&scene.observer, second).await;
            sql::run(&scene.observer, "select pg_advisory_unlock(4713)").await;
        };
        let (sealed, ended, ()) = tokio::join!(sealing, ending, opening);
        if planted {
            let states = [sealed.map(drop).err(), ended.map(drop).err()];
            // From PostgreSQL 17 on the guard of a lapsed lease may be quicker than the deadlock's detection.
            let ended = states.iter().flatten().map(sql::short);
            let ended = ended.filter(|error| ["40P01", "25P04"].contains(&&error[..5]));
            assert_eq!(ended.count(), 1);
        } else {
            assert_eq!(sealed.expect("seals and ends"), Some(0));
            assert_eq!(ended.expect("finds it ended"), Vec::<i32>::new());
            assert_eq!((scene.seals().await, scene.parked().await), (1, None));
        }
    }
}

/// Solid Queue #162, #531, #609, #267: two that end the same batches, each in an order of its own, waited for each other.
#[tokio::test]
async fn whoever_ends_many_batches_takes_them_in_one_order() {
    // Goal: two calls with the same tokens never hold one and wait for the other's. Method: the lower one is taken, and
    // a call that names the higher one first must wait without having taken that.
    let unsorted = ("array(select u from unnest(tokens) u order by u)", "tokens");
    for (plant, takes) in [(None, false), (Some(unsorted), true)] {
        let house = House::new().await;
        if let Some(plant) = plant {
            house.plant("_finish", &[plant]).await;
        }
        let (one, two) = (
            Scene::new(&house, "one").await,
            Scene::new(&house, "two").await,
        );
        let (low, high) = (one.token.min(two.token), one.token.max(two.token));
        let take = "select from outlast._lease where token = $1 for update nowait";
        sql::run(&one.runner, "begin").await;
        one.runner.query(take, &[&low]).await.expect("is free");
        let pid = sql::pid(&one.ender).await;
        let tokens = [high, low];
        let finish = sql::finish(&one.ender, &tokens);
        let meanwhile = async {
            sql::until_blocked(&one.observer, pid).await;
            sql::run(&two.runner, "begin").await;
            let taken = two.runner.query(take, &[&high]).await.is_err();
            sql::run(&two.runner, "rollback").await;
            sql::run(&one.runner, "rollback").await;
            taken
        };
        let (finished, taken) = tokio::join!(finish, meanwhile);
        assert_eq!(taken, takes);
        assert_eq!(finished.expect("finishes"), [1, 1]);
    }
}
