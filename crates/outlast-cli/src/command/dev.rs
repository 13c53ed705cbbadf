//! `outlast dev`: a private PostgreSQL in a folder, migrated, with the engine running, until Ctrl-C.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use outlast_engine::Outlast;
use outlast_postgres::{
    cluster::{Cluster, Stop},
    connect::{self, Target},
    migrate,
    schema::Schema,
};
use serde::Serialize;
use tokio_postgres::types::Type;

use crate::{
    args::Global,
    exit::Exit,
    problem::{Answer, Problem, Tried},
    signal::Signals,
};

/// The database in the private server.
const DATABASE: &str = "dev";
/// How often it looks whether the server is still there.
const LOOK: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
#[command(after_help = "\
For those without a server. The data is kept between runs and written as durably as in production.
Only this machine can reach it, with a generated password. Ctrl-C or SIGTERM stops the server; it
also stops when this process is killed.

Examples:
  outlast dev
  outlast dev --fresh             start over with an empty database
  outlast dev --dir /tmp/play --port 5544
  outlast dev --json > dev.json & until [ -s dev.json ]; do sleep 0.1; done")]
pub(crate) struct Dev {
    /// Where the server keeps its data
    #[arg(long, value_name = "FOLDER", default_value = ".outlast")]
    dir: PathBuf,
    /// Remove what an earlier run left there
    #[arg(long)]
    fresh: bool,
    /// The TCP port on 127.0.0.1 [default: the last run's, else a free one]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
}

#[derive(Serialize)]
struct Ready<'a> {
    database_url: &'a str,
    folder: &'a str,
    postgres: String,
    server_pid: u32,
    schema: u32,
}

impl Dev {
    pub(crate) async fn run(&self, global: &Global) -> Answer {
        let mut signals = Signals::listen().tried("listen for signals")?;
        let folder = self.dir.display().to_string();
        if !self.dir.join("data").exists() || self.fresh {
            global
                .out()
                .say(&format!("making a PostgreSQL server in {folder} …"))?;
        }
        let cluster = tokio::select! {
            cluster = self.start() => cluster?,
            // What was begun ends with this process; the next run starts over or goes on.
            _ = signals.next() => return Ok(Exit::Done),
        };
        let answer = self.serve(global, &cluster, &mut signals).await;
        let stopped = stop(&cluster, &mut signals).await;
        let exit = answer?;
        stopped?;
        global
            .out()
            .say(&format!("stopped; {folder} keeps the data"))?;
        Ok(exit)
    }

    async fn start(&self) -> Answer<Cluster> {
        let mut wish = Cluster::kept(&self.dir);
        if self.fresh {
            wish = wish.fresh();
        }
        if let Some(port) = self.port {
            wish = wish.port(port);
        }
        wish.start().await.tried("start PostgreSQL")
    }

    /// Until a signal, or until the server is gone.
    async fn serve(&self, global: &Global, cluster: &Cluster, signals: &mut Signals) -> Answer {
        let in_schema = named(global)?;
        let schema = tokio::select! {
            schema = prepare(cluster, in_schema) => schema?,
            _ = signals.next() => return Ok(Exit::Done),
        };
        self.announce(global, cluster, in_schema, schema)?;
        // It has no handlers, so there is nothing to drain: it may just be dropped.
        let worker = Outlast::new()
            .schema(in_schema.name())
            .worker(())
            .database(cluster.socket_url(DATABASE));
        let engine = worker.run_until(std::future::pending());
        let ended = tokio::select! {
            _ = signals.next() => return Ok(Exit::Done),
            ended = engine => ended,
            () = gone(cluster) => Ok(()),
        };
        // A server that goes away takes the engine with it, and may be seen a moment later.
        if ended.is_ok() || tokio::time::timeout(LOOK * 4, gone(cluster)).await.is_ok() {
            let what = "the server ended by itself or was stopped";
            let problem = Problem::new(Exit::Failed, "keep PostgreSQL running", what);
            let log = cluster.folder().join("server.log");
            return Err(problem.next(format!("its log says why: {}", log.display())));
        }
        ended.tried("watch the log").map(|()| Exit::Failed)
    }

    fn announce(
        &self,
        global: &Global,
        cluster: &Cluster,
        in_schema: Schema,
        schema: u32,
    ) -> Answer<()> {
        let out = global.out();
        let folder = cluster.folder().display().to_string();
        let (url, version) = (cluster.url(DATABASE), cluster.installation().major());
        if out.json {
            return out.object(&Ready {
                database_url: &url,
                folder: &folder,
                postgres: version.to_string(),
                server_pid: cluster.pid(),
                schema,
            });
        }
        out.say(&format!(
            "\
PostgreSQL {version} runs in {folder}, with schema version {schema} of Outlast.

  export DATABASE_URL={url}

In another terminal, after that line:
  psql \"$DATABASE_URL\" -c \"select id from {in_schema}.emit('greeting', '{{\\\"to\\\":\\\"you\\\"}}')\"
  outlast events ls
  outlast consumers ls

Ctrl-C stops it. The data stays for the next run; --fresh starts over."
        ))
    }
}

/// The schema of the flag or the environment. The file is not asked: it is about another server.
fn named(global: &Global) -> Answer<Schema> {
    let of_environment = std::env::var("OUTLAST_SCHEMA")
        .ok()
        .filter(|name| !name.is_empty());
    let name = global.schema.clone().or(of_environment);
    name.map_or(Ok(Schema::DEFAULT), |name| {
        Schema::named(&name).tried("read the configuration")
    })
}

/// The database and its schema.
async fn prepare(cluster: &Cluster, schema: Schema) -> Answer<u32> {
    let what = || format!("make the database {DATABASE}");
    let admin = Target::parse(&cluster.socket_url("postgres")).tried(what())?;
    let (client, _driver) = connect::connect(&admin).await.tried(what())?;
    let known = "select from pg_database where datname = $1";
    if client
        .query_typed(known, &[(&DATABASE, Type::TEXT)])
        .await
        .tried(what())?
        .is_empty()
    {
        client
            .batch_execute(&format!("create database {DATABASE}"))
            .await
            .tried(what())?;
    }
    let (mut client, _driver) = connect::connect(&admin.database(DATABASE))
        .await
        .tried(what())?;
    let migrated = migrate::of(schema)
        .run(&mut client, |_| {})
        .await
        .tried(format!("migrate the database {DATABASE}"))?;
    Ok(migrated.to)
}

async fn gone(cluster: &Cluster) {
    let mut look = tokio::time::interval(LOOK);
    loop {
        look.tick().await;
        if !cluster.is_running() {
            return;
        }
    }
}

/// In order; at once after another signal.
async fn stop(cluster: &Cluster, signals: &mut Signals) -> Answer<()> {
    tokio::select! {
        stopped = cluster.stop(Stop::Fast) => stopped,
        _ = signals.next() => cluster.stop(Stop::Immediate).await,
    }
    .tried("stop PostgreSQL")
}
