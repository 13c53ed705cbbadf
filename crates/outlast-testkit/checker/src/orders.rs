//! Judges commands: what their providers did, what was on the wire, and what the database says became of them.
//!
//! Four witnesses. The drill's journal says what its callers were told; the senders' (`wire-*.jsonl`) which requests left, and which
//! answers came; the provider's ledger what it did; and the database what is believed. [`read`] reads them, [`judge`] compares them.

mod case;
mod rules;

pub use rules::judge;

use std::{collections::HashSet, path::Path};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::facts::{Told, journals, rows};

/// One line of a sender's journal: on disk before the next step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Wire {
    /// The command's name.
    pub name: String,
    /// The kind of its provider.
    pub kind: String,
    /// Which order.
    pub n: i64,
    /// Which try.
    pub attempt: u32,
    /// What happens.
    pub step: Step,
    /// What was answered.
    pub status: Option<u16>,
    /// Which process.
    pub pid: i32,
}

/// A step of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// It is about to leave.
    Leaves,
    /// A whole answer came.
    Answered,
    /// There was nobody to take it.
    NotSent,
}

/// One line of a provider's ledger, as far as it matters.
#[derive(Clone, Debug, Deserialize)]
pub struct Entry {
    /// The kind of provider.
    pub kind: String,
    /// What it was told to know it by.
    pub reference: String,
    /// `effect`, `repeat`, `refused` and so on.
    pub what: String,
    /// The number that it gave.
    pub number: u64,
    /// How many requests of its account were under way.
    pub beside: u32,
    /// Whose.
    pub account: String,
    /// When.
    pub at_ms: u64,
    /// The order itself.
    pub body: Body,
}

/// What a request says.
#[derive(Clone, Debug, Deserialize)]
pub struct Body {
    /// Which order.
    pub n: i64,
    /// The order that it takes back.
    #[serde(default)]
    pub undoes: Option<u64>,
}

/// A command, as the database has it.
#[derive(Clone, Debug)]
pub struct Command {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// Which order.
    pub n: i64,
    /// SHA-256 of its payload.
    pub digest: String,
    /// Its state.
    pub state: String,
    /// Whether it has ended.
    pub ended: bool,
    /// Whether it is in a person's list.
    pub incident: bool,
    /// What its provider is told.
    pub provider_key: String,
    /// The number in its answer.
    pub number: Option<i64>,
    /// Whether it is due, or in work.
    pub due: bool,
}

/// One line of what happened to a command.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// To which.
    pub command: Uuid,
    /// `sent`, `answered`, `failed`, `lost` and so on.
    pub what: String,
    /// Settled, rejected, or a class of failure.
    pub result: Option<String>,
    /// Whether it was believed.
    pub moved: bool,
}

/// What a drill claims about its commands.
#[derive(Clone, Debug, Default)]
pub struct Expect {
    /// Of so many nobody can know whether they had left: their process died, or stood still, between the commit that says so and
    /// the request.
    pub in_between: usize,
    /// Orders whose business rows are gone, and were there.
    pub deleted: HashSet<i64>,
    /// Orders that may be in a person's list although their provider can be asked, or knows keys.
    pub persons: HashSet<i64>,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// What callers were told: `given-*.jsonl`.
    pub told: Vec<Told>,
    /// What senders did.
    pub wire: Vec<Wire>,
    /// What the provider did.
    pub ledger: Vec<Entry>,
    /// Business rows: which order, which command, the digest of its payload.
    pub business: Vec<(i64, Uuid, String)>,
    /// Commands.
    pub commands: Vec<Command>,
    /// What happened to them.
    pub evidence: Vec<Evidence>,
    /// Of which command an end was told, as often as it was.
    pub resolved: Vec<Uuid>,
    /// What waits for a person because a provider was said to have told two ends, in words.
    pub contradicted: Vec<String>,
    /// What the product says of itself.
    pub verify: Vec<String>,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Each broken promise, with what proves it.
    pub violations: Vec<String>,
    /// Commands.
    pub commands: usize,
    /// How many of them have ended.
    pub ended: usize,
    /// How many are in a person's list.
    pub persons: usize,
    /// How many were unknown for a while, or are.
    pub unknown: usize,
    /// Requests that left.
    pub requests: usize,
    /// Effects at the provider.
    pub effects: usize,
    /// Repeats that had none.
    pub repeats: usize,
}

/// How many commands are neither at their end nor in a person's list, or in somebody's hand.
pub const OPEN: &str = "
    select (select count(*) from outlast._job j where j.kind = 'c'
              and not exists (select from outlast._job_end e where e.id = j.id)
              and not exists (select from outlast._job_state s where s.id = j.id and s.incident_at is not null))
         + (select count(*) from outlast._job_claimed) + (select count(*) from outlast._lease where room = 'job')";

/// Reads all witnesses; `ledger` is the provider's text.
///
/// # Errors
/// When one cannot be read; that is no verdict.
pub async fn read(client: &Client, folder: &Path, ledger: &Path) -> Result<Facts> {
    let text = std::fs::read_to_string(ledger)?;
    let whole = text
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'));
    Ok(Facts {
        told: journals(folder, "given-")?,
        wire: journals(folder, "wire-")?,
        ledger: whole.map(serde_json::from_str).collect::<Result<_, _>>()?,
        business: rows(
            client,
            "select n, event_id, digest from drill.business",
            |row| (row.get(0), row.get(1), row.get(2)),
        )
        .await?,
        commands: rows(
            client,
            "select j.id, j.name, (convert_from(j.payload, 'UTF8')::json ->> 'n')::bigint, encode(sha256(j.payload), 'hex'),
                    m.state, exists (select from outlast._job_end e where e.id = j.id),
                    exists (select from outlast._job_state s where s.id = j.id and s.incident_at is not null),
                    m.provider_key, (convert_from(m.answer, 'UTF8')::json ->> 'order')::bigint,
                    exists (select from outlast._job_ready r where r.id = j.id) or exists (select from outlast._job_later l where l.id = j.id)
                    or exists (select from outlast._job_claimed c where c.id = j.id)
             from outlast._job j join outlast._command m on m.id = j.id",
            |row| Command {
                id: row.get(0),
                name: row.get(1),
                n: row.get(2),
                digest: row.get(3),
                state: row.get(4),
                ended: row.get(5),
                incident: row.get(6),
                provider_key: row.get(7),
                number: row.get(8),
                due: row.get(9),
            },
        )
        .await?,
        evidence: rows(
            client,
            "select command, what, result, moved from outlast._evidence order by id",
            |row| Evidence {
                command: row.get(0),
                what: row.get(1),
                result: row.get(2),
                moved: row.get(3),
            },
        )
        .await?,
        resolved: rows(
            client,
            "select causation_id from outlast._event where type like 'drill.%.resolved' and causation_id is not null",
            |row| row.get(0),
        )
        .await?,
        contradicted: rows(
            client,
            "select format('command %s (%s): %s', c.command, j.key, c.reason)
             from outlast._contradiction c join outlast._job j on j.id = c.command",
            |row| row.get(0),
        )
        .await?,
        verify: rows(
            client,
            "select format('verify: %s: %s, such as %s', invariant, violations, example)
             from outlast._verify() where violations <> 0",
            |row| row.get(0),
        )
        .await?,
    })
}
