//! What the drills of entities share: an application that changes and deletes its things, and the verdict.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use outlast_checker::entities::{self, Expect, Report, TABLES};
use outlast_engine::Outlast;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, IsolationLevel};

use crate::drill::{
    mirror::{Ref, Thing},
    server::client,
    world::{LEASE, Program, World},
};

/// The longest backoff of a thing, a look at everything without news, and what the product may wait for in between.
const REST: Duration = Duration::from_secs(12);

/// All of it.
pub(super) struct Office {
    pub(super) world: Arc<World>,
    person: JoinHandle<()>,
}

impl Drop for Office {
    fn drop(&mut self) {
        self.person.abort();
    }
}

impl Office {
    /// With so many things, from 1 on, of which nobody knows yet.
    pub(super) async fn open(world: Arc<World>, things: i64) -> Result<Self> {
        let sql = world.client().await?;
        sql.batch_execute(TABLES).await?;
        let members = "insert into drill.member select generate_series(1, $1::bigint)";
        sql.execute(members, &[&things]).await?;
        let person = tokio::spawn(decides(world.url().to_owned()));
        Ok(Self { world, person })
    }

    /// A reconciler process that was not started yet.
    pub(super) fn mirror(&self, name: &str) -> Program<'_> {
        self.world.mirror(name)
    }

    /// A connection of one writer.
    pub(super) async fn writer(&self, number: i32) -> Result<Writer> {
        Ok(Writer {
            number,
            sql: self.world.client().await?,
        })
    }

    /// Waits until nothing is open any more.
    pub(super) async fn rests(&self) -> Result<()> {
        let open = async |client: &Client| {
            let row = client.query_one(entities::OPEN, &[]).await;
            Some(row.ok()?.get::<_, i64>(0))
        };
        self.world.rests_as(LEASE + REST, open).await
    }

    /// At the end: waits for rest, stops the processes, and judges.
    pub(super) async fn settle(&self, expect: &Expect) -> Result<Report> {
        self.rests().await?;
        self.world.stop().await;
        let (sql, folder) = (self.world.client().await?, self.world.folder());
        let facts = entities::read(&sql, folder).await?;
        let report = entities::judge(&facts, expect);
        if !report.violations.is_empty() {
            // The database is gone when somebody looks.
            std::fs::write(folder.join("facts.txt"), format!("{facts:#?}"))?;
        }
        for violation in &report.violations {
            self.world.violated(violation);
        }
        self.world.figure(format_args!(
            "{} changes and {} deletions: {} runs, {} requests of older owners refused",
            report.changes, report.deletions, report.runs, report.refused
        ));
        ensure!(report.runs > 0, "nothing was converged");
        Ok(report)
    }
}

/// One writer of the application.
pub(super) struct Writer {
    number: i32,
    sql: Client,
}

impl Writer {
    /// Changes these things in one transaction, in this order.
    pub(super) async fn changes(&mut self, level: IsolationLevel, things: &[i64]) -> Result<()> {
        let tx = self.sql.build_transaction().isolation_level(level);
        let mut tx = tx.start().await?;
        for n in things {
            let row = "insert into drill.change (writer, n) values ($1, $2)";
            tx.execute(row, &[&self.number, n]).await?;
            Outlast::new().changed(&mut tx, &Thing { n: *n }).await?;
        }
        Ok(tx.commit().await?)
    }

    pub(super) async fn change(&mut self, n: i64) -> Result<()> {
        self.changes(IsolationLevel::ReadCommitted, &[n]).await
    }

    /// The row goes, and what the provider calls it, as far as the application knows, goes into the mark. Answers whether it did.
    pub(super) async fn delete(&mut self, n: i64) -> Result<bool> {
        const NAMED: &str = "select name from drill.named where n = $1 order by id desc limit 1";
        let mut tx = self.sql.transaction().await?;
        tx.execute("delete from drill.member where n = $1", &[&n])
            .await?;
        let name = tx.query_opt(NAMED, &[&n]).await?;
        let name: Option<String> = name.map(|row| row.get(0));
        match &name {
            Some(name) => {
                tx.execute("insert into drill.gone values ($1, $2)", &[&n, name])
                    .await?;
                let refs = Ref {
                    n,
                    name: name.clone(),
                };
                Outlast::new().deleted(&mut tx, &Thing { n }, &refs).await?;
            }
            None => Outlast::new().changed(&mut tx, &Thing { n }).await?,
        }
        tx.commit().await?;
        Ok(name.is_some())
    }

    /// The row is there again.
    pub(super) async fn restore(&mut self, n: i64) -> Result<()> {
        let mut tx = self.sql.transaction().await?;
        let member = "insert into drill.member values ($1) on conflict do nothing";
        tx.execute(member, &[&n]).await?;
        let change = "insert into drill.change (writer, n) values ($1, $2)";
        tx.execute(change, &[&self.number, &n]).await?;
        Outlast::new().changed(&mut tx, &Thing { n }).await?;
        Ok(tx.commit().await?)
    }
}

/// A person who lets go on what three processes have died of.
async fn decides(url: String) {
    const SQL: &str = "select count(outlast.retry_entity(name, entity_id)) from outlast.entity where incident_at is not null";
    let mut open: Option<Client> = None;
    loop {
        tokio::time::sleep(Duration::from_millis(250)).await;
        if open.as_ref().is_none_or(Client::is_closed) {
            open = client(&url).await.ok();
        }
        if let Some(client) = &open {
            // The server may be away.
            let _ = client.query_one(SQL, &[]).await;
        }
    }
}
