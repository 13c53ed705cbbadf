//! What is done to one unreadable message after the other, after showing how many.

use clap::Args;
use outlast_postgres::store::read_again;
use serde::Serialize;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::show::attributes;
use crate::{
    args::Global,
    database::Database,
    exit::Exit,
    out::{Out, text},
    problem::{Answer, Problem},
};

/// After how many a person is told how far it is.
const TOLD: usize = 100;

/// Which ones.
#[derive(Debug, Args)]
struct Which {
    /// Ids, as ls lists them
    #[arg(value_name = "ID", required_unless_present = "all")]
    ids: Vec<Uuid>,
    /// All of the consumer, oldest first
    #[arg(long, conflicts_with = "ids")]
    all: bool,
    /// With --all: how many at most
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    most: u32,
    /// The consumer that they came to
    #[arg(long, value_name = "NAME")]
    consumer: String,
    /// Who asks, for the audit; without it the database's user
    #[arg(long, value_name = "WHO")]
    actor: Option<String>,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Args)]
pub(super) struct Retry {
    #[command(flatten)]
    which: Which,
}

#[derive(Debug, Args)]
pub(super) struct Discard {
    #[command(flatten)]
    which: Which,
    /// Why, for whoever asks later
    #[arg(long)]
    reason: String,
}

/// What became of one.
#[derive(Serialize)]
struct Ended {
    id: Uuid,
    outcome: String,
    /// The event that it is, if it could be read.
    event: Option<Uuid>,
    /// Why it still cannot be read.
    why: Option<String>,
}

impl Which {
    async fn ids(&self, database: &Database, what: &str) -> Answer<Vec<Uuid>> {
        if !self.all {
            return Ok(self.ids.clone());
        }
        let given = [
            (&self.consumer as _, Type::TEXT),
            (&i64::from(self.most) as _, Type::INT8),
        ];
        let sql = include_str!("../../../sql/unreadable/ids.sql");
        let rows = database.rows(what, sql, &given).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// Shows how many, and asks.
    fn agreed(&self, out: Out, what: &str, ids: &[Uuid], doing: &str) -> Answer<bool> {
        let many = text::count(ids.len(), "message", "messages");
        let of = text::line(&self.consumer);
        if ids.is_empty() {
            out.say(&format!("nothing of {of} is unreadable"))?;
            return Ok(false);
        }
        if !self.yes && !out.asks(&format!("{doing} {many} of {of}?"))? {
            let next = format!(
                "{many} would be concerned; nothing was changed; add --yes to do it without being asked"
            );
            return Err(Problem::new(Exit::Usage, what, "nobody said yes").next(next));
        }
        Ok(true)
    }
}

/// Tells what became of one, and now and then how far it is.
fn told(out: Out, ended: &Ended, (done, all): (usize, usize)) -> Answer<()> {
    if out.json {
        return out.object(ended);
    }
    if all <= TOLD || ended.why.is_some() {
        let event = ended
            .event
            .map(|event| format!(", event {event}"))
            .unwrap_or_default();
        let why = ended.why.as_deref().map(text::line);
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        out.say(&format!("{}: {}{event}{why}", ended.id, ended.outcome))?;
    }
    if done.is_multiple_of(TOLD) {
        out.say(&format!("{done} of {all}"))?;
    }
    Ok(())
}

impl Retry {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        let out = global.out();
        let database = Database::to_write(global).await?;
        let which = &self.which;
        let what = format!("retry messages of {}", text::line(&which.consumer));
        let ids = which.ids(&database, &what).await?;
        if !which.agreed(out, &what, &ids, "read again")? {
            return Ok(Exit::Done);
        }
        let mut left = false;
        for (nth, id) in ids.iter().enumerate() {
            let ended = self.one(&database, &what, *id).await?;
            left |= matches!(
                &*ended.outcome,
                "unreadable" | "absent" | "running" | "paused"
            );
            told(out, &ended, (nth + 1, ids.len()))?;
        }
        Ok(if left { Exit::Found } else { Exit::Done })
    }

    async fn one(&self, database: &Database, what: &str, id: Uuid) -> Answer<Ended> {
        let ended = |outcome: &str, event, why| Ended {
            id,
            outcome: outcome.to_owned(),
            event,
            why,
        };
        let consumer = &self.which.consumer;
        let given = [(&id as _, Type::UUID), (consumer as _, Type::TEXT)];
        let sql = include_str!("../../../sql/unreadable/show.sql");
        let rows = database.rows(what, sql, &given).await?;
        let Some(row) = rows.first() else {
            return Ok(ended("absent", None, None));
        };
        let envelopes = match read_again(&attributes(row.get("attributes"))) {
            Ok(envelopes) => envelopes,
            Err(why) => return Ok(ended("unreadable", None, Some(why))),
        };
        let given = [
            (consumer as _, Type::TEXT),
            (&id as _, Type::UUID),
            (&envelopes as _, Type::JSONB),
            (&self.which.actor as _, Type::TEXT),
        ];
        let sql = include_str!("../../../sql/unreadable/read_again.sql");
        let rows = database.rows(what, sql, &given).await?;
        Ok(ended(rows[0].get("outcome"), rows[0].get("event_id"), None))
    }
}

impl Discard {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        let out = global.out();
        let database = Database::to_write(global).await?;
        let which = &self.which;
        let what = format!("discard messages of {}", text::line(&which.consumer));
        let ids = which.ids(&database, &what).await?;
        if !which.agreed(out, &what, &ids, "remove")? {
            return Ok(Exit::Done);
        }
        let sql = include_str!("../../../sql/unreadable/discard.sql");
        let mut absent = false;
        for (nth, id) in ids.iter().enumerate() {
            let given = [
                (&which.consumer as _, Type::TEXT),
                (id as _, Type::UUID),
                (&self.reason as _, Type::TEXT),
                (&which.actor as _, Type::TEXT),
            ];
            let rows = database.rows(&what, sql, &given).await?;
            let gone: bool = rows[0].get("gone");
            absent |= !gone;
            let outcome = if gone { "discarded" } else { "absent" };
            let ended = Ended {
                id: *id,
                outcome: outcome.into(),
                event: None,
                why: None,
            };
            told(out, &ended, (nth + 1, ids.len()))?;
        }
        Ok(if absent { Exit::Found } else { Exit::Done })
    }
}
