//! What every command takes, and the help that teaches.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::{exit::Exit, out::Out};

/// How log lines are written to stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Pretty,
    /// One JSON object a line.
    Json,
}

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct Global {
    /// The database: postgres://user@host/name, or libpq's key=value form
    ///
    /// Without it: OUTLAST_DATABASE_URL, then DATABASE_URL, then libpq's PG… variables. A password is better kept in
    /// PGPASSWORD or ~/.pgpass than in an argument, which other users of the machine can read.
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) database: Option<String>,

    /// The schema of Outlast in it [default: outlast]
    ///
    /// Without it: OUTLAST_SCHEMA, then `schema` in the configuration file.
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) schema: Option<String>,

    /// Print for programs: one JSON document, or one object a line for lists
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// The configuration file [default: outlast.toml, if it is there]
    #[arg(long, global = true, value_name = "FILE", env = "OUTLAST_CONFIG")]
    pub(crate) config: Option<PathBuf>,

    /// Log lines on stderr: for people, or JSON [default: pretty on a terminal, else json for `run`]
    ///
    /// OUTLAST_LOG says what is logged, as in `OUTLAST_LOG=warn,outlast_engine=debug`.
    #[arg(long, global = true, value_enum, value_name = "FORMAT")]
    pub(crate) log: Option<LogFormat>,
}

impl Global {
    pub(crate) fn out(&self) -> Out {
        Out::new(self.json)
    }
}

/// The end of every long help: what scripts may rely on.
pub(crate) fn exit_codes() -> String {
    let mut text = String::from("Exit codes:\n");
    for exit in Exit::ALL {
        text.push_str(&format!("  {}  {}\n", exit.code(), exit.means()));
    }
    text
}
