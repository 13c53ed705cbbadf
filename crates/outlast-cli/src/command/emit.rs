//! `outlast emit`: one event from a shell, in a transaction of its own.

use std::{ffi::OsString, io::Read, os::unix::ffi::OsStringExt};

use clap::Args;
use outlast_postgres::Error;
use serde::Serialize;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::{
    args::Global,
    database::Database,
    exit::Exit,
    problem::{Answer, Problem, Tried},
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

#[derive(Serialize)]
struct Emitted {
    id: Uuid,
    new: bool,
}

impl Emit {
    pub(crate) async fn run(&self, global: &Global) -> Answer {
        let out = global.out();
        let what = format!("emit {}", crate::out::text::line(&self.kind));
        let payload = self.read()?;
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
        let row = rows.first().expect("outlast.emit answers one row");
        let (id, key) = (row.get("id"), self.dedup.clone().unwrap_or_default());
        if row.get("conflict") {
            return Err(Error::Conflict {
                kind: "event",
                key,
                first: id,
            })
            .tried(what);
        }
        if row.get("expired") {
            return Err(Error::Expired { kind: "event", key }).tried(what);
        }
        let emitted = Emitted {
            id,
            new: row.get("new"),
        };
        if out.json {
            out.object(&emitted)?;
        } else if emitted.new {
            out.say(&format!("emitted {id}"))?;
        } else {
            out.say(&format!("emitted before, as {id}; nothing new was written"))?;
        }
        Ok(Exit::Done)
    }

    fn read(&self) -> Answer<Vec<u8>> {
        if self.payload != "-" {
            return Ok(self.payload.clone().into_vec());
        }
        let mut payload = Vec::new();
        std::io::stdin()
            .lock()
            .read_to_end(&mut payload)
            .tried("read the payload from stdin")?;
        Ok(payload)
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
