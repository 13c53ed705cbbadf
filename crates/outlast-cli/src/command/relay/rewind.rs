//! `outlast relay rewind`: shows what would be published once more, asks, asks for it, and follows it.

use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tokio_postgres::types::{ToSql, Type};

use crate::{
    args::Global,
    database::Database,
    exit::Exit,
    out::text,
    problem::{Answer, Problem},
    since::Since,
};

#[derive(Debug, Args)]
#[command(after_help = "\
For a broker that has lost what it confirmed: every message gets the id that it had, so consumers that remember what they
have completed take none of it twice. It goes on beside what is new, in the process that relays.

Examples:
  outlast relay rewind orders --to 2h --reason 'stream was wiped'
  outlast relay rewind orders --to 2026-11-30T08:00:00Z --until 2026-11-30T09:30:00Z --reason 'backup of 08:00' --wait")]
pub(super) struct Rewind {
    /// The route's name
    route: String,
    /// Back to this time: a span before now such as 2h, or a time such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME")]
    to: Since,
    /// Not what was emitted from then on [default: now]
    #[arg(long, value_name = "TIME")]
    until: Option<Since>,
    /// Why, for the audit
    #[arg(long)]
    reason: String,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Wait until it is done
    #[arg(long)]
    wait: bool,
    /// Show what it would publish, and do nothing
    #[arg(long, conflicts_with_all = ["yes", "wait"])]
    dry_run: bool,
}

#[derive(Serialize)]
struct Asked<'a> {
    route: &'a str,
    events: i64,
    bytes: i64,
    first: Option<&'a str>,
    last: Option<&'a str>,
    /// None when it was not asked for.
    id: Option<i64>,
    state: &'a str,
    sent: i64,
    refused: i64,
}

impl Rewind {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        let out = global.out();
        let database = Database::to_write(global).await?;
        let what = format!("rewind route {}", text::line(&self.route));
        let (since, until) = (self.to.parts(), self.until.as_ref().map(Since::parts));
        let until = until.unwrap_or_default();
        let args: [(&(dyn ToSql + Sync), Type); 5] = [
            (&self.route, Type::TEXT),
            (&since.0, Type::TEXT),
            (&since.1, Type::TEXT),
            (&until.0, Type::TEXT),
            (&until.1, Type::TEXT),
        ];
        let sql = include_str!("../../../sql/relay/preview.sql");
        let rows = database.rows(&what, sql, &args).await?;
        let row = &rows[0];
        let mut asked = Asked {
            route: &self.route,
            events: row.get("events"),
            bytes: row.get("bytes"),
            first: row.get("first"),
            last: row.get("last"),
            id: None,
            state: "not asked for",
            sent: 0,
            refused: 0,
        };
        let many = text::count(asked.events, "event", "events");
        if !out.json {
            let span = match (asked.first, asked.last) {
                (Some(first), Some(last)) => format!(", emitted from {first} to {last}"),
                _ => String::new(),
            };
            out.say(&format!(
                "{many} would be published once more ({} of payload{span})",
                text::bytes(asked.bytes)
            ))?;
        }
        if self.dry_run {
            if out.json {
                out.object(&asked)?;
            }
            return Ok(Exit::Done);
        }
        if !self.yes && !out.asks(&format!("publish {many} once more?"))? {
            let next = "nothing was published; add --yes to do it without being asked";
            return Err(Problem::new(Exit::Usage, what, "nobody said yes").next(next));
        }
        let mut with_reason = args.to_vec();
        with_reason.push((&self.reason, Type::TEXT));
        let sql = include_str!("../../../sql/relay/rewind.sql");
        let rows = database.rows(&what, sql, &with_reason).await?;
        let id: i64 = rows[0].get("id");
        asked.id = Some(id);
        asked.events = rows[0].get("events");
        asked.state = "running";
        if self.wait {
            let ended = follow(global, &database, &what, id).await?;
            (asked.state, asked.sent, asked.refused) = (ended.0, ended.1, ended.2);
        }
        if out.json {
            out.object(&asked)?;
        } else if self.wait {
            let refused = match asked.refused {
                0 => String::new(),
                n => format!("; the broker can never take {n}: the relay's log names them"),
            };
            out.say(&format!(
                "{}: {} published{refused}",
                asked.state, asked.sent
            ))?;
        } else {
            out.say("asked for; `outlast relay status` shows how far it is")?;
        }
        Ok(if asked.state == "cancelled" {
            Exit::Found
        } else {
            Exit::Done
        })
    }
}

/// Shows how far it is, until it ends.
async fn follow(
    global: &Global,
    database: &Database,
    what: &str,
    id: i64,
) -> Answer<(&'static str, i64, i64)> {
    let (out, mut shown) = (global.out(), -1);
    let sql = include_str!("../../../sql/relay/progress.sql");
    loop {
        let rows = database.rows(what, sql, &[(&id, Type::INT8)]).await?;
        let row = &rows[0];
        let (state, events): (&str, i64) = (row.get("state"), row.get("events"));
        let (sent, refused): (i64, i64) = (row.get("sent"), row.get("refused"));
        match state {
            "done" => return Ok(("done", sent, refused)),
            "cancelled" => return Ok(("cancelled", sent, refused)),
            _ => {}
        }
        if !out.json && sent + refused != shown {
            shown = sent + refused;
            out.say(&format!("{shown} of {events}"))?;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
