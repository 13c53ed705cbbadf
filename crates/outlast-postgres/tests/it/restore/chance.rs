//! The property of a move to another server: whatever was open, half done or on its way, every committed event is
//! completed once by every consumer, and nothing that was completed is handed out again.

use tokio_postgres::Client;
use uuid::Uuid;

use super::scene::{FAR, Scene};
use crate::seeds;
use crate::sql;

struct Writers {
    open: Vec<(Client, Vec<Uuid>)>,
    committed: Vec<Uuid>,
}

/// A step of some writer: alone, or in a transaction that stays open for a while.
async fn write(scene: &Scene, writers: &mut Writers, rng: &mut fastrand::Rng) {
    let key = format!("k{}", rng.u32(..5));
    match rng.u32(..5) {
        0 if writers.open.len() < 4 => {
            let writer = scene.house.connect().await;
            sql::run(&writer, "begin").await;
            let ids = vec![sql::emit(&writer, "a", Some(&key)).await];
            writers.open.push((writer, ids));
        }
        1 if !writers.open.is_empty() => {
            let nth = rng.usize(..writers.open.len());
            let (writer, mut ids) = writers.open.swap_remove(nth);
            if rng.u32(..4) == 0 {
                sql::run(&writer, "rollback").await;
            } else {
                ids.push(sql::emit(&writer, "a", Some(&key)).await);
                sql::run(&writer, "commit").await;
                writers.committed.extend(ids);
            }
        }
        _ => writers
            .committed
            .push(sql::emit(&scene.client, "a", Some(&key)).await),
    }
}

/// Some consumer claims; mostly it also completes.
async fn claim(scene: &mut Scene, consumers: &[i32], rng: &mut fastrand::Rng) {
    let consumer = consumers[rng.usize(..consumers.len())];
    let events = scene.claim(consumer, rng.i32(1..6)).await;
    if rng.u32(..5) > 0 {
        scene.end(consumer, &events).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moved_to_another_server_in_the_middle_of_all_nothing_is_lost_or_comes_again() {
    for seed in seeds::seeds(2) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut scene = Scene::new().await;
        let consumers = [
            sql::register(&scene.client, "crowd", &["a"], "earliest", None).await,
            sql::register(&scene.client, "lanes", &["a"], "earliest", Some(4)).await,
        ];
        let mut writers = Writers {
            open: Vec::new(),
            committed: Vec::new(),
        };
        for moves in 0..3 {
            for _ in 0..40 {
                write(&scene, &mut writers, &mut rng).await;
                if rng.u32(..3) == 0 {
                    claim(&mut scene, &consumers, &mut rng).await;
                }
            }
            // What is open at the dump is not in it.
            for (writer, _) in writers.open.drain(..) {
                sql::run(&writer, "rollback").await;
            }
            let ahead = [FAR, 60, 20, 3][rng.usize(..4)];
            scene.dump(ahead + moves).await;
            for _ in 0..rng.u32(..20) {
                write(&scene, &mut writers, &mut rng).await;
            }
            for (writer, ids) in writers.open.drain(..) {
                sql::run(&writer, "commit").await;
                writers.committed.extend(ids);
            }
            scene.confirm().await.expect("confirms");
        }
        for _ in 0..40 {
            write(&scene, &mut writers, &mut rng).await;
            claim(&mut scene, &consumers, &mut rng).await;
        }
        for (writer, ids) in writers.open.drain(..) {
            sql::run(&writer, "commit").await;
            writers.committed.extend(ids);
        }
        sql::run(
            &scene.client,
            "update outlast._lease set expires_at = 'epoch'",
        )
        .await;
        for consumer in consumers {
            scene.drain(consumer).await;
            let lost = scene.lost(consumer, &writers.committed);
            assert_eq!(
                (lost, scene.again.len()),
                (0, 0),
                "seed {seed}, consumer {consumer}"
            );
        }
        assert_eq!(
            sql::broken(&scene.client).await,
            Vec::<String>::new(),
            "seed {seed}"
        );
    }
}
