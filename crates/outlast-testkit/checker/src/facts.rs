//! What the witnesses say, as they say it.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio_postgres::{Client, Row};
use uuid::Uuid;

/// The tables of a drill's own, beside the product's.
pub const TABLES: &str = "
    create schema drill;
    create table drill.business (n bigint not null, event_id uuid not null, digest text not null);
    create table drill.effect (
      consumer text not null, event_id uuid not null, n bigint not null, digest text not null, attempt int not null,
      pid int not null, at timestamptz not null default clock_timestamp());
    create index on drill.effect (event_id);";

/// What is completed, by whom: rows, and after some days bits of the ids that they had in the log; for a while both.
pub const COMPLETED: &str = "
    select p.consumer, p.event_id from outlast._processed_event p
    union
    select f.consumer, e.event_id from outlast._folded f
    join outlast._event e on e.id between f.base and f.base + 8191 and get_bit(f.done, (e.id - f.base)::int) = 1";

/// One line of a client's journal (`client-*.jsonl`): fsynced before the next step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Told {
    /// Which intent.
    pub n: i64,
    /// What was about to happen, or what the caller was told.
    pub step: Step,
    /// The error, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A step of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// About to begin.
    Begin,
    /// COMMIT was answered.
    Committed,
    /// Certainly nothing is there: rolled back, or refused before COMMIT.
    RolledBack,
    /// COMMIT was sent and not answered.
    Unknown,
}

/// One line of an outside journal (`outside-*.jsonl`): fsynced before the handler returned.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Done {
    /// Who.
    pub consumer: String,
    /// The id that the handler was given.
    pub event_id: Uuid,
    /// From the payload.
    pub n: i64,
    /// SHA-256 of the payload, as the handler saw it.
    pub digest: String,
    /// Which try.
    pub attempt: i32,
    /// Which process.
    pub pid: i32,
}

/// A business row, or the event's own row read the same way.
#[derive(Clone, Debug)]
pub struct Intent {
    /// The intent, as its client counts.
    pub n: i64,
    /// The event's id.
    pub event_id: Uuid,
    /// SHA-256 of the payload.
    pub digest: String,
}

/// An event that a handler has written.
#[derive(Clone, Debug)]
pub struct Child {
    /// What it says.
    pub intent: Intent,
    /// The event that was being handled.
    pub parent: Option<Uuid>,
}

/// What is parked.
#[derive(Clone, Debug)]
pub struct Parked {
    /// Which intent.
    pub n: i64,
    /// Whether nothing but a person changes it.
    pub quarantined: bool,
    /// All of it, in words.
    pub words: String,
}

/// A completion.
#[derive(Clone, Debug)]
pub struct Seal {
    /// By whom.
    pub consumer: String,
    /// Of what.
    pub event_id: Uuid,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// What clients were told, journal by journal.
    pub told: Vec<Told>,
    /// What handlers did outside.
    pub outside: Vec<Done>,
    /// What is in the clients' own table.
    pub business: Vec<Intent>,
    /// What clients have written into the log.
    pub events: Vec<Intent>,
    /// What handlers have written into it.
    pub children: Vec<Child>,
    /// What transactional handlers wrote.
    pub effects: Vec<Done>,
    /// What is completed.
    pub seals: Vec<Seal>,
    /// What is neither done nor in flight.
    pub parked: Vec<Parked>,
    /// What is in flight, in words.
    pub leases: Vec<String>,
    /// What the product says of itself: not the oracle, but it should agree.
    pub verify: Vec<String>,
}

impl Facts {
    /// Reads all witnesses.
    ///
    /// # Errors
    /// When one cannot be read.
    pub async fn read(client: &Client, folder: &Path) -> Result<Self> {
        Ok(Self {
            told: journals(folder, "client-")?,
            outside: journals(folder, "outside-")?,
            business: rows(
                client,
                "select n, event_id, digest from drill.business",
                intent,
            )
            .await?,
            events: rows(
                client,
                "select (convert_from(payload, 'UTF8')::json ->> 'n')::bigint, event_id, encode(sha256(payload), 'hex')
                 from outlast._event where type <> 'drill.child'",
                intent,
            )
            .await?,
            children: rows(
                client,
                "select (convert_from(payload, 'UTF8')::json ->> 'n')::bigint, event_id, encode(sha256(payload), 'hex'),
                        causation_id
                 from outlast._event where type = 'drill.child'",
                |row| Child {
                    intent: intent(row),
                    parent: row.get(3),
                },
            )
            .await?,
            effects: rows(
                client,
                "select consumer, event_id, n, digest, attempt, pid from drill.effect",
                |row| Done {
                    consumer: row.get(0),
                    event_id: row.get(1),
                    n: row.get(2),
                    digest: row.get(3),
                    attempt: row.get(4),
                    pid: row.get(5),
                },
            )
            .await?,
            seals: rows(
                client,
                &format!("select c.name, p.event_id from ({COMPLETED}) p join outlast._consumer c on c.id = p.consumer"),
                |row| Seal {
                    consumer: row.get(0),
                    event_id: row.get(1),
                },
            )
            .await?,
            parked: rows(
                client,
                "select format('%s of %s is parked: %s, %s, %s failures, %s', p.event_id, c.name, p.state, p.class,
                               p.failures, p.reason),
                        case when p.payload <> '' then (convert_from(p.payload, 'UTF8')::json ->> 'n')::bigint else -1 end,
                        p.state = 'quarantined'
                 from outlast._parked p join outlast._consumer c on c.id = p.consumer",
                |row| Parked {
                    words: row.get(0),
                    n: row.get(1),
                    quarantined: row.get(2),
                },
            )
            .await?,
            leases: rows(
                client,
                "select format('lease %s (%s) is not ended', token, room) from outlast._lease
                 where room in ('batch', 'parked', 'delivered', 'rewind')",
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
}

fn intent(row: &Row) -> Intent {
    Intent {
        n: row.get(0),
        event_id: row.get(1),
        digest: row.get(2),
    }
}

pub(crate) async fn rows<T>(
    client: &Client,
    sql: &str,
    read: impl Fn(&Row) -> T,
) -> Result<Vec<T>> {
    let rows = client
        .query(sql, &[])
        .await
        .with_context(|| sql.to_owned())?;
    Ok(rows.iter().map(read).collect())
}

/// Every line of the journals whose names begin so. A line without its end was never fsynced: its writer died in it.
///
/// # Errors
/// When one cannot be read.
pub fn journals<T: DeserializeOwned>(folder: &Path, begins: &str) -> Result<Vec<T>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.starts_with(begins) {
            continue;
        }
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        for line in text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'))
        {
            let line = serde_json::from_str(line)
                .with_context(|| format!("{}: {line}", path.display()))?;
            all.push(line);
        }
    }
    Ok(all)
}
