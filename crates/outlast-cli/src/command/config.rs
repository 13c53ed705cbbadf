//! `outlast config`: what is set, and where it comes from.

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::{
    args::Global,
    exit::Exit,
    out::Table,
    problem::Answer,
    settings::{Base, Effective, Set, keys},
};

#[derive(Debug, Args)]
#[command(after_help = "\
Defaults < outlast.toml < environment (OUTLAST_LEASE=30s) < flags (--set lease=30s).
What is wrong is told all at once.

Examples:
  outlast config show
  outlast config default > outlast.toml
  OUTLAST_LEASE=30s outlast config show --json")]
pub(crate) struct Config {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show every setting, its value and where it comes from; the database without its password
    Show {
        #[command(flatten)]
        set: Set,
    },
    /// Print an outlast.toml with every setting as a comment
    Default,
}

#[derive(Serialize)]
struct Entry {
    name: &'static str,
    value: Option<toml::Value>,
    origin: String,
}

impl Config {
    /// `base`: the defaults, or what the code of a user's binary says.
    pub(crate) fn run(&self, global: &Global, base: &Base) -> Answer {
        let out = global.out();
        let Command::Show { set } = &self.command else {
            out.raw(keys::default_file().as_bytes())?;
            return Ok(Exit::Done);
        };
        let effective = Effective::load(global, set, base)?;
        let mut table = Table::new(["SETTING", "VALUE", "ORIGIN"]);
        for (name, value, origin) in effective.entries() {
            if out.json {
                out.object(&Entry {
                    name,
                    value,
                    origin,
                })?;
            } else {
                let value = value.map(|value| value.to_string()).unwrap_or_default();
                table.row([name, &value, &origin]);
            }
        }
        if !out.json {
            out.table(&table)?;
        }
        Ok(Exit::Done)
    }
}
