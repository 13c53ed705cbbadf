//! `outlast audit`: who did what.

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio_postgres::{Row, types::Type};

use crate::{
    args::Global,
    database::Database,
    exit::Exit,
    out::{Table, text},
    problem::Answer,
    since::Since,
};

#[derive(Debug, Args)]
pub(crate) struct Audit {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List what operators did and what was decided without them, newest first
    #[command(after_help = "\
Examples:
  outlast audit ls --since 2d
  outlast audit ls --action setting.set --json | jq .detail")]
    Ls {
        /// Only this action, such as setting.set
        #[arg(long)]
        action: Option<String>,
        /// Only about this: the name of a setting, of a consumer, ...
        #[arg(long, value_name = "NAME")]
        about: Option<String>,
        /// Only since: 90s, 15m, 6h, 2d ago, or a time such as 2026-01-31T12:00:00Z
        #[arg(long, value_name = "TIME")]
        since: Option<Since>,
        /// How many at most
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
}

#[derive(Serialize)]
struct Listed<'a> {
    id: i64,
    at: &'a str,
    actor: &'a str,
    action: &'a str,
    about: &'a str,
    detail: Option<Box<RawValue>>,
}

impl<'a> Listed<'a> {
    fn from_row(row: &'a Row) -> Self {
        let detail: Option<String> = row.get("detail");
        Self {
            id: row.get("id"),
            at: row.get("at"),
            actor: row.get("actor"),
            action: row.get("action"),
            about: row.get("about"),
            // As the database wrote it: a number must not go through a double.
            detail: detail.and_then(|detail| RawValue::from_string(detail).ok()),
        }
    }
}

impl Audit {
    pub(crate) async fn run(&self, global: &Global) -> Answer {
        let Command::Ls {
            action,
            about,
            since,
            limit,
        } = &self.command;
        let out = global.out();
        let database = Database::to_read(global).await?;
        let (at, ago) = since.as_ref().map_or((None, None), Since::parts);
        let rows = database
            .rows(
                "list the audit",
                include_str!("../../sql/audit/list.sql"),
                &[
                    (action, Type::TEXT),
                    (about, Type::TEXT),
                    (&at, Type::TEXT),
                    (&ago, Type::TEXT),
                    (&i64::from(*limit), Type::INT8),
                ],
            )
            .await?;
        let listed = rows.iter().map(Listed::from_row);
        if out.json {
            out.objects(listed)?;
            return Ok(Exit::Done);
        }
        if rows.is_empty() {
            out.say("nothing of that kind is in the audit")?;
            return Ok(Exit::Done);
        }
        let mut table = Table::new(["AT", "ACTOR", "ACTION", "ABOUT", "DETAIL"]).whole(["AT"]);
        for one in listed {
            let detail = one.detail.as_deref().map_or("", RawValue::get);
            table.row([
                &text::time(one.at),
                one.actor,
                one.action,
                one.about,
                detail,
            ]);
        }
        out.table(&table)?;
        Ok(Exit::Done)
    }
}
