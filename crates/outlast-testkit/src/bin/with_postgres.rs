//! `with-postgres [--pooled] PROGRAM [ARGUMENT..]`: runs a program with a private server for its tests, and with
//! `--pooled` a PgBouncer before it that the tests go through. Tests that ask for Google's Pub/Sub emulator share one.
//!
//! The server is temporary and ends with the program, or with us, even if we are killed. If `OUTLAST_TEST_PG` names one
//! already, that one is used. Exit status: the program's.

use std::env;
use std::process::{Command, ExitCode};

use anyhow::{Context, bail};
use outlast_postgres::cluster::Stop;
use outlast_testkit::{
    broker::emulator::{PORTER, Porter},
    pg,
    pooler::{POOLED, Pooler},
};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let mut arguments = env::args_os().skip(1);
    let mut first = arguments.next();
    let pooled = first.as_deref() == Some("--pooled".as_ref());
    if pooled {
        first = arguments.next();
    }
    let Some(program) = first else {
        bail!("usage: with-postgres [--pooled] PROGRAM [ARGUMENT..]")
    };
    let mut command = Command::new(&program);
    command.args(arguments);
    let set = env::var_os(pg::SERVER).is_some_and(|server| !server.is_empty());
    let cluster = if set {
        None
    } else {
        Some(pg::cluster().start().await?)
    };
    if let Some(cluster) = &cluster {
        command.env(pg::SERVER, cluster.socket_url("postgres"));
        let server = cluster.installation();
        eprintln!(
            "with-postgres: PostgreSQL {} in {}",
            server.version(),
            cluster.folder().display()
        );
    }
    let server = match &cluster {
        Some(cluster) => cluster.socket_url("postgres"),
        None => env::var(pg::SERVER)?,
    };
    let pooler = if pooled {
        Some(Pooler::before(&server).await?)
    } else {
        None
    };
    if let Some(pooler) = &pooler {
        command.env(POOLED, pooler.folder());
        eprintln!(
            "with-postgres: through PgBouncer in {}",
            pooler.folder().display()
        );
    }
    // Google's emulator, if a test asks for it.
    let porter = Porter::open().await?;
    command.env(PORTER, porter.address().to_string());
    // A terminal sends Ctrl-C to both of us: the program decides, and we clean up after it.
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut child = command
        .spawn()
        .with_context(|| format!("run {}", program.display()))?;
    let pid = rustix::process::Pid::from_child(&child);
    let mut terminations = signal(SignalKind::terminate())?;
    let mut ended = tokio::task::spawn_blocking(move || child.wait());
    let status = loop {
        tokio::select! {
            status = &mut ended => break status??,
            _ = interrupts.recv() => {}
            _ = terminations.recv() => {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            }
        }
    };
    drop(porter);
    drop(pooler);
    if let Some(cluster) = cluster {
        cluster.stop(Stop::Immediate).await?;
    }
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from))
}
