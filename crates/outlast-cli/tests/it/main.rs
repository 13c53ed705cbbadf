//! The real binary against real PostgreSQL.

mod accounts;
mod adopt;
mod apply;
mod commands;
mod completions;
mod config;
mod connect;
mod consumers;
mod dead;
mod dev;
mod docs;
mod doctor;
mod emit;
mod entities;
mod events;
mod jobs;
mod migrate;
mod outbox;
mod own;
mod parked;
mod push;
mod relay;
mod restore;
mod retention;
mod run;
mod schema;
mod schemas;
mod topics;
mod verify;
mod webhooks;

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use outlast_testkit::pg::{self, Database};
use tokio_postgres::Client;

/// Long enough for a loaded machine; nothing waits so long when all is well.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a command answered.
#[derive(Debug)]
struct Ran {
    code: i32,
    out: String,
    err: String,
}

/// `outlast ARGS`, in a surrounding that says nothing about a database.
fn command(args: &[&str]) -> Command {
    let mut command = clean(Command::new(env!("CARGO_BIN_EXE_outlast")));
    command.args(args);
    command
}

/// In a surrounding that says nothing about a database.
fn clean(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("OUTLAST_") && name != "OUTLAST_PG_BIN"
            || name.starts_with("PG")
            || name == "DATABASE_URL"
        {
            command.env_remove(name);
        }
    }
    command.current_dir(std::env::temp_dir());
    command
}

/// Runs it to its end.
async fn run(mut command: Command, stdin: &[u8]) -> Ran {
    let stdin = stdin.to_vec();
    let work = move || -> std::io::Result<Output> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn()?;
        // One that does not read its input has closed it: its answer tells.
        let _ = child
            .stdin
            .take()
            .expect("stdin is piped")
            .write_all(&stdin);
        child.wait_with_output()
    };
    let output = tokio::task::spawn_blocking(work).await;
    let output = output.expect("the thread lives").expect("outlast runs");
    Ran {
        code: output.status.code().expect("it ended by itself"),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// `outlast --database URL ARGS`, to its end.
async fn outlast(url: &str, args: &[&str]) -> Ran {
    let mut command = command(args);
    command.args(["--database", url]);
    run(command, b"").await
}

impl Ran {
    /// With this exit code.
    #[track_caller]
    fn with(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }

    /// Without a complaint.
    #[track_caller]
    fn fine(self) -> Self {
        let ran = self.with(0);
        assert_eq!(ran.err, "", "{ran:#?}");
        ran
    }

    /// Says this, wherever.
    #[track_caller]
    fn says(self, text: &str) -> Self {
        assert!(
            self.out.contains(text) || self.err.contains(text),
            "{text:?} is not in {self:#?}"
        );
        self
    }

    /// Its output, one JSON document a line.
    #[track_caller]
    fn json(&self) -> Vec<serde_json::Value> {
        let parse = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        self.out.lines().map(parse).collect()
    }
}

/// A migrated database of the test's own.
async fn database() -> (Database, Client) {
    let database = pg::empty().await;
    let mut client = database.connect().await;
    outlast_postgres::migrate::run(&mut client, |_| {})
        .await
        .expect("an empty database can be migrated");
    (database, client)
}

/// A folder that the server's user can reach; removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        Self(std::env::temp_dir().join(format!("outlast-cli-{}", uuid::Uuid::new_v4().simple())))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn execute(client: &Client, sql: &str) {
    if let Err(error) = client.batch_execute(sql).await {
        panic!("{sql}: {error:?}");
    }
}

async fn number(client: &Client, sql: &str) -> i64 {
    match client.query_one(sql, &[]).await {
        Ok(row) => row.get(0),
        Err(error) => panic!("{sql}: {error:?}"),
    }
}
