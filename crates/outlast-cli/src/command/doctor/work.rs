//! Jobs, commands and entities that are due, and that no worker takes: nobody runs one with code for them, or their name is paused.

use std::time::Duration;

use outlast_core::broker::Severity::{Good, Warning};
use outlast_postgres::store::{entity_of, of_queue};
use tokio::time::{Instant, sleep};

use super::{Found, Shown, unread};
use crate::{database::Database, out::text, problem::Answer, work::Work};

const OF: &str = "work";
/// What has waited for a minute and is not taken within this either is taken by nobody.
const LOOK: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_millis(250);

/// What waits of one name.
struct Waits {
    /// Where it is claimed.
    queue: String,
    /// One of those that wait.
    head: String,
    seconds: i64,
    paused: Option<String>,
}

pub(super) async fn look(database: &Database, all: &mut Shown) -> Answer<()> {
    match unread(unserved(database).await, OF, "jobs, commands and entities") {
        Ok(some) => all.show(some),
        Err(one) => all.show([one]),
    }
}

async fn unserved(database: &Database) -> Answer<Vec<Found>> {
    let mut still = waiting(database).await?;
    // A worker may be about to take it: what lies at the head of its name now is looked for once more.
    let end = Instant::now() + LOOK;
    while still.iter().any(|one| one.paused.is_none()) && Instant::now() < end {
        sleep(AGAIN).await;
        let now = waiting(database).await?;
        still.retain(|one| {
            now.iter()
                .any(|other| other.queue == one.queue && other.head == one.head)
        });
    }
    if still.is_empty() {
        let says = "nothing that is due waits for a worker";
        let about = "jobs, commands and entities";
        return Ok(vec![Found::new(Good, OF, about, says, "")]);
    }
    Ok(still.iter().map(Waits::found).collect())
}

async fn waiting(database: &Database) -> Answer<Vec<Waits>> {
    let sql = include_str!("../../../sql/doctor/work.sql");
    let rows = database.rows("look at what is due", sql, &[]).await?;
    let one = |row: &tokio_postgres::Row| Waits {
        queue: row.get("name"),
        head: row.get("head"),
        seconds: row.get("seconds"),
        paused: row.get("paused"),
    };
    Ok(rows.iter().map(one).collect())
}

impl Waits {
    fn found(&self) -> Found {
        let (work, name) = match (entity_of(&self.queue), of_queue(&self.queue)) {
            (Some(name), _) => (Work::Entity, name),
            (None, (name, true)) => (Work::Command, name),
            (None, (name, false)) => (Work::Job, name),
        };
        let (one, many, since) = (work.one(), work.many(), text::duration(self.seconds));
        let (says, mend) = match &self.paused {
            Some(reason) => (
                format!("paused: {reason}; the oldest has waited for {since}"),
                format!("nobody takes them until: outlast {many} resume {name}"),
            ),
            None => (
                format!("due for {since}, and no worker takes it"),
                format!(
                    "start a worker with code for it: YOUR_PROGRAM run (its `check` says what it has); what waits: outlast {many} ls --name {name} --state waiting"
                ),
            ),
        };
        Found::new(Warning, OF, format!("{one} {name}"), says, mend)
    }
}
