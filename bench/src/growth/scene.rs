//! A database in which one thing is large: as the product would have left it.

use anyhow::Result;
use tokio_postgres::Client;

use super::{history, work};
use crate::server::{Database, Server};

/// What stands around the work that is measured. Each axis changes one of these.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    pub consumers: i64,
    pub ordered: bool,
    /// Of the events that are filled in; none have no key.
    pub keys: i64,
    pub tenants: i64,
    /// So many events wait while a part of them is drained; none: exactly what is filled in is drained.
    pub waiting: i64,
    /// Finished events that are still there.
    pub history: i64,
    /// Transactions that have emitted and do not end.
    pub writers: i64,
    /// Batches that came and went since a snapshot was taken that is still open; none: there is none.
    pub snapshot: i64,
}

impl Default for Scene {
    fn default() -> Self {
        Self {
            consumers: 1,
            ordered: false,
            keys: 0,
            tenants: 1,
            waiting: 0,
            history: 0,
            writers: 0,
            snapshot: 0,
        }
    }
}

/// It, built.
pub struct Stage {
    pub scene: Scene,
    pub database: Database,
    /// Whoever keeps something open.
    _holders: Vec<Client>,
    /// How many completions there must be by now.
    pub completed: i64,
}

impl Stage {
    pub async fn build(server: &Server, name: &str, scene: Scene) -> Result<Self> {
        let database = server.database(name).await?;
        if scene.history > 0 {
            history::write(&database, scene.history).await?;
        }
        let mut stage = Self {
            scene,
            database,
            _holders: Vec::new(),
            completed: scene.history,
        };
        // Registers its consumers, behind the history.
        work::register(&stage).await?;
        if scene.history > 0 {
            history::fold(&stage.database).await?;
        }
        stage.fill(scene.waiting).await?;
        stage.database.sql.batch_execute("vacuum (analyze)").await?;
        if scene.snapshot > 0 {
            let holder = stage.database.connect().await?;
            holder
                .batch_execute("begin isolation level repeatable read; select 1")
                .await?;
            stage._holders.push(holder);
            work::churn(&mut stage, scene.snapshot).await?;
        }
        for _ in 0..scene.writers {
            let holder = stage.database.connect().await?;
            holder
                .batch_execute("begin; select outlast.emit('load', '{\"n\":0}'::text)")
                .await?;
            stage._holders.push(holder);
        }
        Ok(stage)
    }

    /// Emits so many events of about 200 bytes, in transactions of 10,000: each takes its own id before it draws any.
    pub async fn fill(&self, events: i64) -> Result<()> {
        const AT_ONCE: i64 = 10_000;
        let Scene { keys, tenants, .. } = self.scene;
        let sql = format!(
            "insert into outlast._event (slot, schema_version, id, xid, event_id, emitted_at, type, tenant, key, content_type, payload)
             select outlast._log_slot(t), 1, nextval('outlast._event_id'), pg_current_xact_id(), outlast._v7(t), t, 'load',
                    case when {tenants} = 1 then '' else 't' || floor(random() * {tenants}) end,
                    case when {keys} > 0 then 'key/' || floor(random() * {keys}) end,
                    'application/json', convert_to('{{\"n\":' || g || ',\"note\":\"' || repeat('x', 180) || '\"}}', 'UTF8')
             from (select g, outlast.clock() as t from generate_series(1, $1::bigint) g) s"
        );
        let insert = self.database.sql.prepare(&sql).await?;
        let mut left = events;
        while left > 0 {
            let now = left.min(AT_ONCE);
            left -= now;
            self.database
                .sql
                .batch_execute("begin; select pg_current_xact_id()")
                .await?;
            self.database.sql.execute(&insert, &[&now]).await?;
            self.database.sql.batch_execute("commit").await?;
        }
        Ok(())
    }
}
