//! One claimed event, a runner, somebody who ends its lease, and the runner's own effect in its own transaction.

use tokio_postgres::{Client, Error};
use uuid::Uuid;

use crate::house::House;
use crate::sql::{self, Claim};

pub(crate) const ISOLATIONS: [&str; 3] = ["read committed", "repeatable read", "serializable"];

/// The runner's own table. It holds no lease and knows no lease: only the sealing transaction protects it.
const EFFECT: &str = "create table if not exists effect (event uuid not null, token uuid not null, xid xid8 not null)";

pub(crate) struct Scene {
    pub(crate) runner: Client,
    pub(crate) ender: Client,
    pub(crate) observer: Client,
    pub(crate) consumer: i32,
    pub(crate) token: Uuid,
    pub(crate) event: Uuid,
}

impl Scene {
    /// A consumer of this name with one event in flight, its lease lapsed: a reclaim would take it.
    pub(crate) async fn new(house: &House, name: &str) -> Self {
        let [runner, ender, observer] = [
            house.connect().await,
            house.connect().await,
            house.connect().await,
        ];
        sql::run(&observer, EFFECT).await;
        let mut scene = Self {
            runner,
            ender,
            observer,
            consumer: 0,
            token: Uuid::nil(),
            event: Uuid::nil(),
        };
        scene.set(name).await;
        scene
    }

    /// The same people, the next play.
    pub(crate) async fn set(&mut self, name: &str) {
        self.consumer = sql::register(&self.observer, name, &[name], "now", None).await;
        self.event = sql::emit(&self.observer, name, Some("key")).await;
        let claimed = Claim::of(self.consumer)
            .next(&self.observer)
            .await
            .expect("claims");
        assert_eq!(
            claimed.iter().map(|c| c.id).collect::<Vec<_>>(),
            [self.event]
        );
        self.token = claimed[0].token;
        self.lapse(self.token).await;
    }

    pub(crate) async fn lapse(&self, token: Uuid) {
        let sql = "update outlast._lease set expires_at = outlast.clock() - interval '1 second' where token = $1";
        assert_eq!(
            self.observer.execute(sql, &[&token]).await.expect("lapses"),
            1
        );
    }

    /// The runner begins, takes its snapshot and does its work.
    pub(crate) async fn work(&self, isolation: &str) {
        sql::run(&self.runner, &format!("begin isolation level {isolation}")).await;
        self.effect(self.token).await;
    }

    pub(crate) async fn effect(&self, token: Uuid) {
        let sql = "insert into effect values ($1, $2, pg_current_xact_id())";
        self.runner
            .execute(sql, &[&self.event, &token])
            .await
            .expect("has an effect");
    }

    pub(crate) async fn complete(&self) -> Result<(), Error> {
        sql::complete(&self.runner, self.token, self.event).await
    }

    /// COMMIT, and whether it was one: COMMIT of a failed transaction answers ROLLBACK without an error.
    pub(crate) async fn commit(&self) -> Result<bool, Error> {
        let before: Option<String> = match self
            .runner
            .query_one("select pg_current_xact_id_if_assigned()::text", &[])
            .await
        {
            Ok(row) => row.get(0),
            Err(_) => None,
        };
        self.runner.batch_execute("commit").await?;
        let Some(xid) = before else { return Ok(false) };
        Ok(sql::one::<Option<String>>(
            &self.observer,
            "select pg_xact_status($1::text::xid8)",
            &[&xid],
        )
        .await
        .as_deref()
            == Some("committed"))
    }

    pub(crate) async fn effects(&self) -> i64 {
        sql::one(
            &self.observer,
            "select count(*) from effect where event = $1",
            &[&self.event],
        )
        .await
    }

    pub(crate) async fn seals(&self) -> i64 {
        let sql =
            "select count(*) from outlast._processed_event where consumer = $1 and event_id = $2";
        sql::one(&self.observer, sql, &[&self.consumer, &self.event]).await
    }

    pub(crate) async fn parked(&self) -> Option<String> {
        let sql = "select max(class) from outlast._parked where consumer = $1 and event_id = $2";
        sql::one(&self.observer, sql, &[&self.consumer, &self.event]).await
    }

    /// Whatever happened: the event is somewhere, it is done at most once, and with it its effect.
    pub(crate) async fn must_add_up(&self) -> Result<(), String> {
        let (effects, seals) = (self.effects().await, self.seals().await);
        if effects != seals {
            return Err(format!("{effects} effects and {seals} seals"));
        }
        let lost: i64 = sql::one(
            &self.observer,
            "select count(*) from outlast._lost($1)",
            &[&self.consumer],
        )
        .await;
        if lost > 0 {
            Err(format!("{lost} lost"))
        } else {
            Ok(())
        }
    }

    /// Somebody does what is left, and then it is done exactly once.
    pub(crate) async fn must_end_well(&self) -> Result<(), String> {
        let sql = "update outlast._parked set next_at = outlast.clock() where consumer = $1 and state = 'retry'";
        self.observer
            .execute(sql, &[&self.consumer])
            .await
            .expect("is due");
        let sql = "update outlast._lease set expires_at = outlast.clock() - interval '1 second' where consumer = $1";
        self.observer
            .execute(sql, &[&self.consumer])
            .await
            .expect("lapses");
        for _ in 0..2 {
            let mut again = sql::reclaim(&self.observer, self.consumer, 10)
                .await
                .map_err(|e| sql::short(&e))?;
            again.extend(
                sql::claim_parked(&self.observer, self.consumer, 10)
                    .await
                    .map_err(|e| sql::short(&e))?,
            );
            for event in again {
                sql::run(&self.runner, "begin").await;
                self.effect(event.token).await;
                sql::complete(&self.runner, event.token, event.id)
                    .await
                    .map_err(|e| sql::short(&e))?;
                sql::run(&self.runner, "commit").await;
                sql::finish(&self.observer, &[event.token])
                    .await
                    .map_err(|e| sql::short(&e))?;
            }
        }
        let (effects, seals) = (self.effects().await, self.seals().await);
        if (effects, seals) != (1, 1) {
            return Err(format!("in the end {effects} effects and {seals} seals"));
        }
        let left: i64 = sql::one(
            &self.observer,
            "select (select count(*) from outlast._lease where consumer = $1) + (select count(*) from outlast._parked where consumer = $1)",
            &[&self.consumer],
        )
        .await;
        if left > 0 {
            Err(format!("{left} leases or parked rows stay behind"))
        } else {
            self.must_add_up().await
        }
    }
}
