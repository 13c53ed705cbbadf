//! What a worker claims and records of jobs.

use std::time::{Duration, SystemTime};

use outlast_core::{Failure, job::Options};
use serde_json::Value;
use tokio_postgres::{Row, types::Type};
use uuid::Uuid;

use super::{
    Claimed, CommandDue, CommandTry, EntityTry, Store, entity_queue, int, millis, record::asked,
};
use crate::Error;

/// How many of which names a claim may take: side by side.
#[derive(Clone, Debug, Default)]
pub struct Rooms {
    /// The names.
    pub names: Vec<String>,
    /// The newest version of each that the process reads.
    pub versions: Vec<i32>,
    /// How many of each at most.
    pub rooms: Vec<i32>,
    /// Behind which account and tenant to begin, by name: `{"greet": ["", "acme"]}`.
    pub after: serde_json::Map<String, Value>,
    /// What not to look at again, by name: `[{"account", "tenant", "priority", "above"}]`.
    pub floors: serde_json::Map<String, Value>,
}

impl Rooms {
    /// Asks for so many of a name, of which the process reads this version and older ones.
    pub fn ask(&mut self, name: &str, version: u16, room: usize) {
        self.names.push(name.to_owned());
        self.versions.push(version.into());
        self.rooms.push(int(room));
    }
}

/// One that was taken, under a lease.
#[derive(Clone, Debug)]
pub struct Taken {
    /// What every claim hands out. Of a job the type is its name, the place in the log is where it stood, and the reclaims are
    /// the workers that were lost while they had it.
    pub work: Claimed,
    /// `j` for a job, `c` for a command, `e` for an entity.
    pub kind: i8,
    /// What it is throttled with; empty for a job.
    pub account: String,
    /// Within its tenant the lower runs sooner.
    pub priority: i16,
}

impl Taken {
    fn from_row(row: &Row) -> Result<Self, Error> {
        let accepted_at: SystemTime = row.try_get(12)?;
        let command = CommandTry::from_row(row)?.map(Box::new);
        let entity = row.try_get::<_, Option<Value>>(26)?;
        let entity = entity.map(|entity| EntityTry::from_json(&entity).map(Box::new));
        let entity = entity.transpose()?;
        let name: String = row.try_get(3)?;
        let work = Claimed {
            token: row.try_get(0)?,
            event_id: row.try_get(1)?,
            log_id: row.try_get(8)?,
            kind: match (&command, &entity) {
                (Some(_), _) => command_queue(&name),
                (_, Some(_)) => entity_queue(&name),
                _ => name,
            },
            version: row.try_get(9)?,
            tenant: row.try_get(4)?,
            key: row.try_get(5)?,
            actor: row.try_get(16)?,
            correlation_id: row.try_get(13)?,
            causation_id: row.try_get(14)?,
            traceparent: row.try_get(17)?,
            headers: None,
            source: row.try_get(15)?,
            subject: None,
            aggregate_version: None,
            content_type: row.try_get(18)?,
            codec_key: row.try_get(19)?,
            payload: row.try_get::<_, Vec<u8>>(20)?.into(),
            emitted_at: accepted_at,
            attempt: row.try_get(10)?,
            reclaims: row.try_get(11)?,
            key_seq: None,
            command,
            entity,
            lane: None,
        };
        Ok(Self {
            work,
            kind: row.try_get(2)?,
            account: row.try_get(6)?,
            priority: row.try_get(7)?,
        })
    }
}

impl CommandTry {
    /// Of the columns that only a command has.
    fn from_row(row: &Row) -> Result<Option<Self>, Error> {
        let due = match row.try_get::<_, Option<i8>>(21)? {
            None => return Ok(None),
            Some(due) if due == b'l' as i8 => CommandDue::Look,
            Some(due) if due == b'p' as i8 => CommandDue::Poll,
            Some(_) => CommandDue::Send,
        };
        Ok(Some(Self {
            due,
            provider_key: row.try_get(24)?,
            reference: row.try_get(25)?,
        }))
    }
}

/// Under which name the commands of a name are claimed: a job and a command may be called alike.
pub fn command_queue(name: &str) -> String {
    format!("{COMMANDS}{name}")
}

/// The name of what is claimed under this one, and whether it is a command.
pub fn of_queue(queue: &str) -> (&str, bool) {
    queue
        .strip_prefix(COMMANDS)
        .map_or((queue, false), |name| (name, true))
}

/// What stands before the names of commands where they are claimed.
const COMMANDS: &str = "command:";

/// What waits for the names of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DueJobs {
    /// Somebody's claim has lapsed.
    pub lapsed: bool,
    /// Something may run now.
    pub ready: bool,
    /// When the next is due, from now, if one is.
    pub next: Option<Duration>,
}

fn from_now(ms: Option<i64>) -> Option<Duration> {
    ms.map(|ms| Duration::from_millis(ms.max(0).unsigned_abs()))
}

impl Store {
    /// Takes jobs that may run now. Committed, and durable, before the first is handed out.
    pub async fn claim_jobs(
        &self,
        rooms: &Rooms,
        bytes: u64,
        lease: Duration,
    ) -> Result<Vec<Taken>, Error> {
        let (bytes, after) = (bytes as i64, Value::Object(rooms.after.clone()));
        let floors = Value::Object(rooms.floors.clone());
        let rows = self
            .remembered(
                "select * from outlast._claim_jobs($5, $6, $7, $8, $9, $1, $2, $3, $4, after => $10, floors => $11)",
                &[
                    (&rooms.names, Type::TEXT_ARRAY),
                    (&rooms.versions, Type::INT4_ARRAY),
                    (&rooms.rooms, Type::INT4_ARRAY),
                    (&bytes, Type::INT8),
                    (&millis(lease), Type::INT4),
                    (&after, Type::JSONB),
                    (&floors, Type::JSONB),
                ],
            )
            .await?;
        rows.iter().map(Taken::from_row).collect()
    }

    /// Gives back what lapsed claims held, of at most so many claims; answers how many jobs. Committed when it returns.
    pub async fn reclaim_jobs(&self, claims: usize) -> Result<usize, Error> {
        let row = self
            .one(
                "select outlast._reclaim_jobs($1)",
                &[(&int(claims), Type::INT4)],
            )
            .await?;
        Ok(usize::try_from(row.get::<_, i32>(0)).unwrap_or(0))
    }

    /// Makes ready what is due, at most so many; answers how many, and when the next is due, from now. Committed when it
    /// returns.
    pub async fn promote(&self, most: usize) -> Result<(usize, Option<Duration>), Error> {
        let row = self
            .one(
                "select moved, next_ms from outlast._promote($1)",
                &[(&int(most), Type::INT4)],
            )
            .await?;
        let moved = usize::try_from(row.get::<_, i32>(0)).unwrap_or(0);
        Ok((moved, from_now(row.get(1))))
    }

    /// What waits for a process that has these names.
    pub async fn due_jobs(&self, names: &[String]) -> Result<DueJobs, Error> {
        let row = self
            .one(
                "select lapsed, ready, next_ms from outlast._due_jobs($1)",
                &[(&names, Type::TEXT_ARRAY)],
            )
            .await?;
        Ok(DueJobs {
            lapsed: row.get(0),
            ready: row.get(1),
            next: from_now(row.get(2)),
        })
    }

    /// Marks jobs as about to start. Committed when it returns.
    pub async fn start_jobs(&self, token: Uuid, ids: &[Uuid]) -> Result<(), Error> {
        self.one(
            "select outlast._start_jobs($1, $2)::text",
            &[(&token, Type::UUID), (&ids, Type::UUID_ARRAY)],
        )
        .await
        .map(drop)
    }

    /// Completes jobs that a handler returned `Ok` for. Committed when it returns. `repeated`: the answer to the same call was
    /// perhaps lost.
    pub async fn complete_jobs(
        &self,
        token: Uuid,
        ids: &[Uuid],
        repeated: bool,
    ) -> Result<(), Error> {
        self.one(
            "select outlast._complete_jobs($1, $2, $3)::text",
            &[
                (&token, Type::UUID),
                (&ids, Type::UUID_ARRAY),
                (&repeated, Type::BOOL),
            ],
        )
        .await
        .map(drop)
    }

    /// The last completions of a claim and its end, in one commit; answers how many were left and given back.
    pub async fn complete_and_finish_jobs(
        &self,
        token: Uuid,
        ids: &[Uuid],
        repeated: bool,
    ) -> Result<usize, Error> {
        let row = self
            .one(
                "select outlast._complete_and_finish_jobs($1, $2, $3)",
                &[
                    (&token, Type::UUID),
                    (&ids, Type::UUID_ARRAY),
                    (&repeated, Type::BOOL),
                ],
            )
            .await?;
        Ok(usize::try_from(row.get::<_, i32>(0)).unwrap_or(0))
    }

    /// Gives back jobs of a claim that have not started, while the rest of it goes on. Committed when it returns.
    pub async fn let_go_jobs(&self, token: Uuid, ids: &[Uuid]) -> Result<(), Error> {
        self.one(
            "select outlast._let_go_jobs($1, $2)::text",
            &[(&token, Type::UUID), (&ids, Type::UUID_ARRAY)],
        )
        .await
        .map(drop)
    }

    /// Ends a claim; what is left of it is given back without a charge. Answers how many. Committed when it returns.
    pub async fn finish_jobs(&self, token: Uuid) -> Result<usize, Error> {
        let row = self
            .one("select outlast._finish_jobs($1)", &[(&token, Type::UUID)])
            .await?;
        Ok(usize::try_from(row.get::<_, i32>(0)).unwrap_or(0))
    }

    /// Records a failure; answers what became of the job: `retry`, `quarantined` or `cancelled`. Committed when it returns.
    /// `options`: how many tries there are, where the job says nothing itself, and how long the pauses are.
    pub async fn fail_job(
        &self,
        token: Uuid,
        id: Uuid,
        failure: &Failure,
        charged: bool,
        options: &Options,
    ) -> Result<String, Error> {
        let (class, reason, after) = asked(failure);
        let attempts = options
            .attempts
            .map(|n| i32::try_from(n).unwrap_or(i32::MAX));
        let ms = |d: Duration| i64::try_from(d.as_millis()).unwrap_or(i64::MAX);
        let first = options.backoff.map(|backoff| ms(backoff.first));
        let most = options.backoff.map(|backoff| ms(backoff.most));
        let row = self
            .one(
                "select outlast._fail($1, $2, $3, $4, $5, $6, $7, $8, $9)",
                &[
                    (&token, Type::UUID),
                    (&id, Type::UUID),
                    (&class, Type::TEXT),
                    (&reason, Type::TEXT),
                    (&after, Type::INT8),
                    (&charged, Type::BOOL),
                    (&attempts, Type::INT4),
                    (&first, Type::INT8),
                    (&most, Type::INT8),
                ],
            )
            .await?;
        Ok(row.get(0))
    }

    /// Whether the transaction `xid`, whose COMMIT was not answered, has ended this job. Waits until it has ended.
    ///
    /// # Errors
    /// [`Error::Stalled`] while it is still open after some seconds; ask again.
    pub async fn job_landed(&self, id: Uuid, xid: u64) -> Result<bool, Error> {
        let text = xid.to_string();
        let sql = "select outlast._job_landed($1, $2::text::xid8)";
        self.landed_by(sql, &[(&id, Type::UUID), (&text, Type::TEXT)], xid)
            .await
    }
}
