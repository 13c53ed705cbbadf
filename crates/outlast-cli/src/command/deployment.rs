//! `outlast deployment`: what this database is called. A worker that is configured for another name refuses it.

use clap::{Args, Subcommand};
use serde_json::json;
use tokio_postgres::types::Type;

use crate::{
    args::Global,
    database::Database,
    exit::Exit,
    out::text,
    problem::{Answer, Problem},
};

#[derive(Debug, Args)]
pub(crate) struct Deployment {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the name
    Show,
    /// Name the database, or name a copy anew, before any worker runs on it
    #[command(after_help = "\
A copy of production that keeps its name is production to every worker: what the original has sent, the
copy sends again. Give it a name of its own first, then let `outlast restore status` say what it holds.

Example:
  outlast deployment set staging --yes")]
    Set {
        /// Letters a-z, digits and . _ / -
        name: String,
        /// Do not ask, if it has another name
        #[arg(long)]
        yes: bool,
    },
}

impl Deployment {
    pub(crate) async fn run(&self, global: &Global) -> Answer {
        let out = global.out();
        let database = match &self.command {
            Command::Show => Database::to_read(global).await?,
            Command::Set { .. } => Database::to_write(global).await?,
        };
        let sql = "select deployment from outlast._house";
        let rows = database.rows("read the name", sql, &[]).await?;
        let before: Option<&str> = rows.first().and_then(|row| row.get(0));
        let Command::Set { name, yes } = &self.command else {
            if out.json {
                out.object(&json!({ "deployment": before }))?;
            }
            out.say(&before.map_or("no name: a development database".to_owned(), text::line))?;
            return Ok(Exit::Done);
        };
        let renames = before.filter(|before| before != name).map(text::line);
        if let Some(old) = &renames {
            out.say(&format!("{database} is {old}; workers that are configured for {old} will refuse it at their next connection"))?;
            if !yes && !out.asks(&format!("name it {name}?"))? {
                let next = "nothing was changed; add --yes to name it without being asked";
                return Err(
                    Problem::new(Exit::Usage, "deployment set", "nobody said yes").next(next),
                );
            }
        }
        let sql = "select outlast._name_deployment($1)";
        database
            .rows("name the database", sql, &[(&name as _, Type::TEXT)])
            .await?;
        if out.json {
            out.object(&json!({ "deployment": name, "before": before }))?;
        }
        out.say(&format!("{database} is deployment {name}; set deployment = \"{name}\" in outlast.toml of its workers"))?;
        Ok(Exit::Done)
    }
}
