//! `outlast jobs enqueue`: one job from a shell, in a transaction of its own.

use std::{ffi::OsString, time::Duration};

use clap::Args;
use outlast_core::duration;
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
The job is durable when its id is printed. An application enqueues in its own transaction instead, so
that the job commits with the business change or not at all.

Examples:
  outlast jobs enqueue send_receipt '{\"order\":7}' --key order/7      twice is once
  outlast jobs enqueue send_reminder '{\"order\":7}' --after 2d
  outlast jobs enqueue import - --content-type text/csv < contacts.csv")]
pub(super) struct Enqueue {
    /// The name: 1 to 100 of a-z 0-9 . _ / -
    name: String,
    /// The payload, taken as it is; - reads it from stdin
    payload: OsString,
    /// The same key and content again is the same job
    #[arg(long)]
    key: Option<String>,
    /// How long the key answers, such as 7d; 0s: for ever
    #[arg(long, value_name = "TIME", value_parser = duration::parse, requires = "key")]
    lifetime: Option<Duration>,
    /// The tenant
    #[arg(long, default_value = "")]
    tenant: String,
    /// Not before so long from now: 90s, 15m, 6h, 2d
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    after: Option<Duration>,
    /// Not before this time, such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", conflicts_with = "after")]
    at: Option<String>,
    /// The lower runs sooner, within its tenant: -100 to 100
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    priority: i32,
    /// How many tries before a person must look
    #[arg(long, value_name = "N")]
    attempts: Option<i32>,
    /// The version of the payload's shape
    #[arg(long, default_value_t = 1)]
    version: i32,
    /// What the payload is
    #[arg(long, value_name = "TYPE", default_value = "application/json")]
    content_type: String,
    /// Where it comes from
    #[arg(long)]
    source: Option<String>,
    /// Who asked
    #[arg(long)]
    actor: Option<String>,
}

impl Enqueue {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        let what = format!("enqueue {}", crate::out::text::line(&self.name));
        let payload = intent::payload(&self.payload)?;
        let ms = |d: Duration| i64::try_from(d.as_millis()).unwrap_or(i64::MAX);
        let (after, lifetime) = (self.after.map(ms), self.lifetime.map(ms));
        let database = Database::to_emit(global).await?;
        let rows = database
            .rows(
                &what,
                include_str!("../../../sql/job/enqueue.sql"),
                &[
                    (&self.name, Type::TEXT),
                    (&payload, Type::BYTEA),
                    (&self.content_type, Type::TEXT),
                    (&self.key, Type::TEXT),
                    (&self.tenant, Type::TEXT),
                    (&after, Type::INT8),
                    (&self.at, Type::TEXT),
                    (&self.priority, Type::INT4),
                    (&self.version, Type::INT4),
                    (&self.attempts, Type::INT4),
                    (&lifetime, Type::INT8),
                    (&self.source, Type::TEXT),
                    (&self.actor, Type::TEXT),
                ],
            )
            .await
            .map_err(|problem| self.unanswered(problem))?;
        intent::answered(
            global,
            ("job", "enqueued", what),
            &rows,
            self.key.as_deref(),
        )
    }

    /// A broken connection says nothing about the commit.
    fn unanswered(&self, problem: Problem) -> Problem {
        match (problem.exit, &self.key) {
            (Exit::Connect, Some(_)) => problem.next(
                "nobody knows whether it was written: enqueue it again with the same --key",
            ),
            (Exit::Connect, None) => problem.next(
                "nobody knows whether it was written: look with `outlast jobs ls`, use --key next time",
            ),
            _ => problem,
        }
    }
}
