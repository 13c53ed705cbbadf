//! `outlast adopt`: moving in from another job table. It reads and answers; the move itself is a statement that it prints.
//!
//! [`check`] is the command, [`columns`] and [`look`] ask, [`table`] is what the catalog says, [`mapping`] what of the table means what,
//! [`statement`] the SQL.

mod check;
mod columns;
mod look;
mod mapping;
mod statement;
mod table;

use clap::{Args, Subcommand};
use outlast_engine::DescribedJob;

use crate::{args::Global, problem::Answer, settings::Base};

#[derive(Debug, Args)]
pub(crate) struct Adopt {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Look at a table of jobs: what must be true before its backlog moves in, and the statement that moves it
    Check(Box<check::Check>),
}

/// What the user's own code says, where this is his binary: its settings, and the names that it has handlers for.
pub(crate) type Code<'a> = (&'a Base, &'a [DescribedJob<'a>]);

impl Adopt {
    pub(crate) async fn run(&self, global: &Global, code: Option<Code<'_>>) -> Answer {
        match &self.command {
            Command::Check(check) => check.run(global, code).await,
        }
    }
}
