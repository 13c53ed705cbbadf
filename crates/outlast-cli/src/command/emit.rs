//! `outlast emit`: one event from a shell, in a transaction of its own.

use std::ffi::OsString;

use clap::Args;
use tokio_postgres::types::Type;

use crate::{
    args::Global,
    database::Database,
    exit::Exit,
    intent,
    problem::{Answer, Problem},
};

#[derive(Debug, Args)]
#[command(after_help = "\
The event is durable when its id is printed. An application emits in its own transaction instead, so
that the event commits with the business change or not at all.

Examples:
  outlast emit booking.confirmed '{\"booking\":42}' --key booking/42
  outlast emit report.made - --content-type text/csv < report.csv
  outlast emit order.paid '{\"order\":7}' --dedup order/7        twice is once")]
pub(crate) struct Emit {
    /// The event's type: 1 to 100 of a-z 0-9 . _ / -
    #[arg(value_name = "TYPE")]
    kind: String,
    /// The payload, taken as it is; - reads it from stdin
    payload: OsString,
    /// The ordering key
    #[arg(long)]
    key: Option<String>,
    /// The tenant
    #[arg(long, default_value = "")]
    tenant: String,
    /// The same key and content again is the same event
    #[arg(long, value_name = "KEY")]
    dedup: Option<String>,
    /// The version of the payload's shape
    #[arg(long, default_value_t = 1)]
    version: i32,
    /// What the payload is
    #[arg(long, value_name = "TYPE", default_value = "application/json")]
    content_type: String,
    /// Where it comes from
    #[arg(long)]
    source: Option<String>,
    /// What it is about
    #[arg(long)]
    subject: Option<String>,
    /// Who asked
    #[arg(long)]
    actor: Option<String>,
}

impl Emit {
    pub(crate) async fn run(&self, global: &Global) -> Answer {
        let what = format!("emit {}", crate::out::text::line(&self.kind));
        let payload = intent::payload(&self.payload)?;
        let database = Database::to_emit(global).await?;
        let rows = database
            .rows(
                &what,
                include_str!("../../sql/event/emit.sql"),
                &[
                    (&self.kind, Type::TEXT),
                    (&payload, Type::BYTEA),
                    (&self.content_type, Type::TEXT),
                    (&self.key, Type::TEXT),
                    (&self.tenant, Type::TEXT),
                    (&self.dedup, Type::TEXT),
                    (&self.version, Type::INT4),
                    (&self.source, Type::TEXT),
                    (&self.subject, Type::TEXT),
                    (&self.actor, Type::TEXT),
                ],
            )
            .await
            .map_err(|problem| self.unanswered(problem))?;
        intent::answered(
            global,
            ("event", "emitted", what),
            &rows,
            self.dedup.as_deref(),
        )
    }

    /// A broken connection says nothing about the commit.
    fn unanswered(&self, problem: Problem) -> Problem {
        match (problem.exit, &self.dedup) {
            (Exit::Connect, Some(_)) => {
                problem.next("nobody knows whether it was written: emit it again with the same --dedup")
            }
            (Exit::Connect, None) => {
                problem.next(
                    "nobody knows whether it was written: look with `outlast events ls`, use --dedup next time",
                )
            }
            _ => problem,
        }
    }
}
