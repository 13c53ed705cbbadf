//! A database of a contestant's own, and what it says about the work in it.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicI64, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use outlast_postgres::connect::{self, Target};
use tokio_postgres::{Client, error::SqlState};

use super::{adapter::Who, child::Child, task::Task};
use crate::server::Server;

pub struct Room {
    pub name: String,
    target: Target,
    client: Client,
    left: String,
    done_at: Option<String>,
    socket: String,
    port: u16,
    asked: AtomicI64,
}

impl Room {
    /// A new database with the business table and the contestant's schema: a copy of one in which it was installed, where the
    /// contestant takes a copy for what it is.
    pub async fn new(server: &Server, who: &Who, consumers: usize) -> Result<Self> {
        let name = format!("peer_{}", slug(&who.to_string()));
        if who.description.own_database {
            let room = Self::blank(server, who, &name).await?;
            room.install(who, consumers).await?;
            return Ok(room);
        }
        let model = format!("model_{}_{consumers}", slug(&who.to_string()));
        let admin = connect(server, "postgres").await?;
        let known = "select exists (select from pg_database where datname = $1 and datistemplate)";
        if !admin.query_one(known, &[&model]).await?.get::<_, bool>(0) {
            let room = Self::blank(server, who, &model).await?;
            room.install(who, consumers).await?;
            room.until_alone().await?;
            drop(room);
            // Said last: whoever was interrupted begins again.
            admin
                .batch_execute(&format!("alter database {model} is_template true"))
                .await?;
        }
        create(&admin, &name, &model).await?;
        Self::enter(server, who, name).await
    }

    /// With nothing but the business table.
    async fn blank(server: &Server, who: &Who, name: &str) -> Result<Self> {
        let admin = connect(server, "postgres").await?;
        create(&admin, name, "template1").await?;
        let room = Self::enter(server, who, name.to_owned()).await?;
        room.execute("create table business (id bigint generated always as identity primary key, note text not null)")
            .await?;
        Ok(room)
    }

    async fn enter(server: &Server, who: &Who, name: String) -> Result<Self> {
        let target = Target::parse(&server.cluster().socket_url(&name))?;
        let socket = server.cluster().socket();
        let socket = socket.parent().context("the socket has no folder")?;
        Ok(Self {
            client: connect::connect(&target).await?.0,
            name,
            target,
            left: who.description.left.trim_end_matches(';').to_owned(),
            done_at: who.description.done_at.clone(),
            socket: socket.to_string_lossy().into_owned(),
            port: server.cluster().port(),
            asked: AtomicI64::new(0),
        })
    }

    async fn install(&self, who: &Who, consumers: usize) -> Result<()> {
        let task = Task {
            consumers,
            ..Task::new("install")
        };
        self.run(who, &task, Duration::from_secs(120)).await
    }

    /// Runs a verb that says nothing.
    pub async fn run(&self, who: &Who, task: &Task, patience: Duration) -> Result<()> {
        let mut child = Child::start(who, self, task)?;
        child.close();
        child.end(patience).await?;
        Ok(())
    }

    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let Self {
            name, socket, port, ..
        } = self;
        vec![
            (
                "BENCH_URL",
                format!("postgresql://postgres@localhost:{port}/{name}?host={socket}"),
            ),
            ("PGHOST", socket.clone()),
            ("PGPORT", port.to_string()),
            ("PGUSER", "postgres".to_owned()),
            ("PGDATABASE", name.clone()),
        ]
    }

    pub async fn number(&self, sql: &str) -> Result<i64> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let row = self
            .client
            .query_one(&format!("select ({sql})::bigint"), &[])
            .await?;
        Ok(row.get::<_, Option<i64>>(0).unwrap_or(0))
    }

    /// Units whose completion is not committed.
    pub async fn left(&self) -> Result<i64> {
        self.number(&self.left).await
    }

    pub async fn execute(&self, sql: &str) -> Result<()> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Ok(self.client.batch_execute(sql).await?)
    }

    /// When each finished unit's completion was committed, where that can be told.
    pub async fn done_at(&self) -> Result<Option<Vec<(i64, i64)>>> {
        let Some(sql) = &self.done_at else {
            return Ok(None);
        };
        self.pairs(&format!(
            "select n::bigint, at::bigint from ({}) d (n, at)",
            sql.trim_end_matches(';')
        ))
        .await
        .map(Some)
    }

    /// When each business row was committed, in their order.
    pub async fn business_at(&self) -> Result<Vec<(i64, i64)>> {
        self.pairs(
            "select row_number() over (order by id), (extract(epoch from pg_xact_commit_timestamp(xmin)) * 1000000)::bigint from business",
        )
        .await
    }

    async fn pairs(&self, sql: &str) -> Result<Vec<(i64, i64)>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let rows = self.client.query(sql, &[]).await?;
        let pair = |row: &tokio_postgres::Row| {
            Some((row.get::<_, Option<i64>>(0)?, row.get::<_, Option<i64>>(1)?))
        };
        Ok(rows.iter().filter_map(pair).collect())
    }

    /// Waits until nobody else is connected: a killed process's session may need a moment to notice.
    pub async fn until_alone(&self) -> Result<()> {
        const OTHERS: &str = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'";
        const PATIENCE: Duration = Duration::from_secs(5);
        let until = Instant::now() + PATIENCE;
        while self.number(OTHERS).await? > 0 && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// How many transactions the runner itself has made here.
    pub fn asked(&self) -> i64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// A file that opens a gate when it is there. Not there yet.
    pub fn gate(&self, of: &str) -> PathBuf {
        let file = Path::new(&self.socket).join(format!("{}_{of}.gate", self.name));
        let _ = std::fs::remove_file(&file);
        file
    }

    /// After a restart of the server.
    pub async fn reconnect(&mut self) -> Result<()> {
        self.client = connect::connect(&self.target).await?.0;
        Ok(())
    }

    /// Another connection.
    pub async fn connect(&self) -> Result<Client> {
        Ok(connect::connect(&self.target).await?.0)
    }

    /// Removes it: disks are not for ever.
    pub async fn leave(self, server: &Server) -> Result<()> {
        let Self { name, client, .. } = self;
        drop(client);
        let admin = connect(server, "postgres").await?;
        Ok(admin
            .batch_execute(&format!("drop database if exists {name} with (force)"))
            .await?)
    }
}

pub async fn connect(server: &Server, database: &str) -> Result<Client> {
    let target = Target::parse(&server.cluster().socket_url(database))?;
    Ok(connect::connect(&target).await?.0)
}

async fn create(admin: &Client, name: &str, model: &str) -> Result<()> {
    const TRIES: usize = 50;
    admin
        .batch_execute(&format!("drop database if exists {name} with (force)"))
        .await?;
    let sql = format!("create database {name} template {model}");
    for _ in 0..TRIES {
        match admin.batch_execute(&sql).await {
            // A session that has just ended may still be there.
            Err(error) if error.code() == Some(&SqlState::OBJECT_IN_USE) => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            done => return Ok(done?),
        }
    }
    anyhow::bail!("{model} is in use")
}

fn slug(text: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '_'
        }
    };
    text.chars().map(plain).collect()
}
