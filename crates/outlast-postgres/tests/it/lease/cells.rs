//! The table: who ends the lease × when × in which isolation level × renewed or not × how the runner's transaction
//! ends. Every cell is tried; the failure text names those that broke.

use tokio_postgres::Client;

use super::scene::{ISOLATIONS, Scene};
use crate::house::House;
use crate::sql;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ender {
    Reclaim,
    Finish,
    HandBack,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    BeforeBegin,
    BeforeComplete,
    BetweenCompleteAndEnd,
    AfterEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Commit,
    Rollback,
    Prepare,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    ender: Ender,
    when: When,
    isolation: &'static str,
    renewed: bool,
    end: End,
}

fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for ender in [Ender::Reclaim, Ender::Finish, Ender::HandBack] {
        for when in [
            When::BeforeBegin,
            When::BeforeComplete,
            When::BetweenCompleteAndEnd,
            When::AfterEnd,
        ] {
            for isolation in ISOLATIONS {
                for renewed in [false, true] {
                    for end in [End::Commit, End::Rollback, End::Prepare] {
                        cells.push(Cell {
                            ender,
                            when,
                            isolation,
                            renewed,
                            end,
                        });
                    }
                }
            }
        }
    }
    cells
}

impl Cell {
    /// Whether the ender has ended the lease before the runner completes.
    fn is_too_late(self) -> bool {
        matches!(self.when, When::BeforeBegin | When::BeforeComplete)
            && match self.ender {
                // A lease that was renewed is nobody else's.
                Ender::Reclaim => !self.renewed,
                Ender::Finish => true,
                // The lease only lapses: whoever still holds it may complete until somebody takes it over. Only a
                // transaction with an older snapshot finds the row changed.
                Ender::HandBack => {
                    self.when == When::BeforeComplete && self.isolation != "read committed"
                }
            }
    }

    async fn play(self, scene: &Scene) -> Result<(), String> {
        let answer = |error| sql::short(&error);
        if self.when == When::BeforeBegin {
            self.renew(scene).await?;
            end_lease(self.ender, &scene.ender, scene).await?;
        }
        scene.work(self.isolation).await;
        if self.when == When::BeforeComplete {
            self.renew(scene).await?;
            end_lease(self.ender, &scene.ender, scene).await?;
        }
        match scene.complete().await {
            Err(refused) if self.is_too_late() => {
                // Behind the snapshot of the transaction the row is still there, and then it is changed under it.
                let expected =
                    if self.when == When::BeforeComplete && self.isolation != "read committed" {
                        "40001"
                    } else {
                        "OL001"
                    };
                if refused.code().map(|code| code.code()) != Some(expected) {
                    return Err(format!(
                        "refused with {} instead of {expected}",
                        sql::short(&refused)
                    ));
                }
                if scene.commit().await.map_err(answer)? {
                    return Err("COMMIT after a refusal did commit".into());
                }
                scene.must_add_up().await?;
                return scene.must_end_well().await;
            }
            Err(refused) => return Err(format!("complete was refused: {}", sql::short(&refused))),
            Ok(()) if self.is_too_late() => return Err("complete was not refused".into()),
            Ok(()) => {}
        }
        if self.when == When::BetweenCompleteAndEnd {
            self.renew(scene).await?;
            self.end_while_the_seal_is_open(scene).await?;
        } else {
            self.end(scene).await?;
        }
        if self.when == When::AfterEnd {
            self.renew(scene).await?;
            end_lease(self.ender, &scene.ender, scene).await?;
        }
        if (self.end == End::Rollback) == (scene.seals().await == 1) {
            return Err("the seal does not follow its transaction".into());
        }
        scene.must_add_up().await?;
        scene.must_end_well().await
    }

    /// A renewal never waits for a seal.
    async fn renew(self, scene: &Scene) -> Result<(), String> {
        if self.renewed {
            sql::run(&scene.observer, "set lock_timeout = '5s'").await;
            let renewed = scene
                .observer
                .execute("select outlast.renew($1, 60000)", &[&scene.token])
                .await;
            renewed.map_err(|error| format!("renewal: {}", sql::short(&error)))?;
        }
        Ok(())
    }

    async fn end(self, scene: &Scene) -> Result<(), String> {
        match self.end {
            End::Commit if !scene.commit().await.map_err(|error| sql::short(&error))? => {
                Err("COMMIT did not commit".into())
            }
            End::Commit => Ok(()),
            End::Rollback => {
                sql::run(&scene.runner, "rollback").await;
                Ok(())
            }
            End::Prepare => {
                sql::run(
                    &scene.runner,
                    &format!("prepare transaction '{}'", scene.token),
                )
                .await;
                sql::run(&scene.runner, &format!("commit prepared '{}'", scene.token)).await;
                Ok(())
            }
        }
    }

    /// A reclaim leaves a batch that is being sealed; whoever must end it waits for the seal.
    async fn end_while_the_seal_is_open(self, scene: &Scene) -> Result<(), String> {
        if self.end == End::Prepare {
            sql::run(
                &scene.runner,
                &format!("prepare transaction '{}'", scene.token),
            )
            .await;
        }
        let end = async {
            match self.end {
                End::Prepare => {
                    sql::run(&scene.runner, &format!("commit prepared '{}'", scene.token)).await;
                }
                _ => self.end(scene).await?,
            }
            Ok::<(), String>(())
        };
        if self.ender == Ender::Reclaim {
            sql::run(&scene.ender, "set lock_timeout = '5s'").await;
            let taken = sql::reclaim(&scene.ender, scene.consumer, 10)
                .await
                .map_err(|error| sql::short(&error))?;
            if !taken.is_empty() {
                return Err("a reclaim took a batch that is being sealed".into());
            }
            return end.await;
        }
        let pid = sql::pid(&scene.ender).await;
        let ended = end_lease(self.ender, &scene.ender, scene);
        let waited = async {
            sql::until_blocked(&scene.observer, pid).await;
            end.await
        };
        let (ended, waited) = tokio::join!(ended, waited);
        waited?;
        ended.map(|_| ())
    }
}

async fn end_lease(ender: Ender, client: &Client, scene: &Scene) -> Result<(), String> {
    let ended = match ender {
        Ender::Reclaim => sql::reclaim(client, scene.consumer, 10).await.map(|_| ()),
        Ender::Finish => sql::finish(client, &[scene.token]).await.map(|_| ()),
        Ender::HandBack => sql::hand_back(client, scene.token, &[]).await,
    };
    ended.map_err(|error| format!("the end of the lease: {}", sql::short(&error)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_every_cell_nothing_commits_behind_the_end_of_its_lease_and_nothing_is_lost() {
    let house = House::new().await;
    let mut broken = Vec::new();
    let cells = cells();
    let mut scene = Scene::new(&house, "before-all-cells").await;
    for (n, cell) in cells.iter().enumerate() {
        scene.set(&format!("cell{n}")).await;
        if let Err(what) = cell.play(&scene).await {
            broken.push(format!("{cell:?}: {what}"));
            // Whatever it left open must not disturb the others.
            let _ = scene.runner.batch_execute("rollback").await;
        }
    }
    assert_eq!(sql::broken(&scene.observer).await, Vec::<String>::new());
    assert!(
        broken.is_empty(),
        "{} of {} cells:\n{}",
        broken.len(),
        cells.len(),
        broken.join("\n")
    );
}

/// Nothing else that names the token is let through either.
#[tokio::test]
async fn every_verb_of_an_ended_lease_is_refused() {
    let house = House::new().await;
    let verbs = [
        ("fence", "select outlast.fence($1)"),
        ("renew", "select outlast.renew($1, 1000)"),
        ("complete", "select outlast.complete($1, $2)"),
        ("seal", "select outlast._seal($1, array[$2]::uuid[])"),
        (
            "seal again",
            "select outlast._seal($1, array[$2]::uuid[], true)",
        ),
        (
            "seal with its commit",
            "select outlast._seal_last($1, $2) from set_config('outlast.begun', 'yes', true)",
        ),
        ("start", "select outlast._start($1, array[$2]::uuid[])"),
        ("fail", "select outlast.fail($1, $2, 'retry', 'why')"),
        (
            "wait for version",
            "select outlast._wait_for_version($1, $2)",
        ),
    ];
    for (n, isolation) in ISOLATIONS.into_iter().enumerate() {
        let scene = Scene::new(&house, &format!("verbs{n}")).await;
        let fresh = sql::reclaim(&scene.ender, scene.consumer, 1)
            .await
            .expect("reclaims")[0]
            .token;
        for (verb, sql) in verbs {
            let sql = if sql.contains("$2") {
                sql.to_owned()
            } else {
                format!("{sql}, $2::uuid")
            };
            sql::run(&scene.runner, &format!("begin isolation level {isolation}")).await;
            let refused = scene
                .runner
                .execute(&sql, &[&scene.token, &scene.event])
                .await;
            assert_eq!(sql::state(refused), "OL001", "{verb} in {isolation}");
            sql::run(&scene.runner, "rollback").await;
        }
        assert_eq!(scene.parked().await, None);
        sql::complete(&scene.runner, fresh, scene.event)
            .await
            .expect("the new owner completes");
        assert_eq!(
            sql::state(sql::complete(&scene.runner, fresh, scene.event).await),
            "OL002"
        );
    }
}

/// The token of one batch opens no event of another, nor one that is parked.
#[tokio::test]
async fn a_seal_of_what_is_not_in_the_claim_is_refused() {
    let house = House::new().await;
    let scene = Scene::new(&house, "a").await;
    let client = &scene.observer;
    let later = sql::emit(client, "a", None).await;
    let foreign = sql::emit(client, "b", None).await;
    for id in [later, foreign, uuid::Uuid::nil()] {
        assert_eq!(
            sql::state(sql::complete(client, scene.token, id).await),
            "OL003"
        );
    }
    sql::fail(client, scene.token, scene.event, "retry")
        .await
        .expect("fails");
    assert_eq!(
        sql::state(scene.complete().await),
        "OL003",
        "a later try owns it"
    );
    assert_eq!(
        sql::state(sql::seal(client, scene.token, &[scene.event]).await),
        "OL003"
    );
}
