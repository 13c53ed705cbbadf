//! Judges a drill from the outside: plain SQL and files, nothing of the product.
//!
//! Three witnesses are compared. The clients' journals (fsynced before BEGIN and after COMMIT) say what callers were told.
//! The database says what is there: business rows, events, completions, effects. The outside journals (fsynced before a
//! handler returned) say what handlers really did out there. [`facts`] reads them, [`rules`] compares them.

mod account;
pub mod broker;
pub mod entities;
pub mod facts;
pub mod orders;
mod relayed;
pub mod rules;

pub use account::{Of, Took, account};
pub use relayed::{Relayed, relayed};

use std::{collections::HashSet, path::Path};

use anyhow::Result;
use tokio_postgres::Client;

use facts::Facts;

/// What a drill claims about itself, so that the rest follows.
#[derive(Clone, Debug)]
pub struct Expect {
    /// Who handles every event.
    pub consumers: Vec<Consumer>,
    /// False where clients committed asynchronously and the server was killed: what they were told may be gone. What is
    /// gone must then be gone for everybody.
    pub durable: bool,
    /// Each event that the consumer of this name has completed has so many children, written in the same commit.
    pub fan_out: Option<(String, usize)>,
    /// Intents whose events must end in quarantine, and no other event does.
    pub quarantined: HashSet<i64>,
    /// Intents whose events a person has given up: nobody has to complete them.
    pub given_up: HashSet<i64>,
    /// True where history was rewound: what was done outside for events that are gone is counted, not held against anybody.
    pub rewound: bool,
}

/// A consumer of a drill.
#[derive(Clone, Debug)]
pub struct Consumer {
    /// Its name in the database and in the journals.
    pub name: String,
    /// Where its effects are.
    pub effects: Effects,
    /// What it handles.
    pub handles: Handles,
}

/// What a consumer of a drill handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handles {
    /// Every event of a client.
    Intents,
    /// Every child of such an event.
    Children,
}

/// Where the effects of a consumer are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effects {
    /// Rows of `drill.effect`, in the transaction of the completion: exactly one an event.
    Inside,
    /// Lines of a journal: at least one an event.
    Outside,
    /// Messages at a broker, which are judged by themselves: it is a relay.
    Published,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Each broken promise, with what proves it.
    pub violations: Vec<String>,
    /// Transactions whose clients were told that they committed.
    pub committed: usize,
    /// Transactions whose clients were told that nothing of them is there.
    pub rolled_back: usize,
    /// Transactions whose clients never knew.
    pub unknown: usize,
    /// Of those that clients were told of, how many a crash took back (only where `durable` is false).
    pub taken_back: usize,
    /// Outside effects for events that a rewind took back: what others saw and the database does not know.
    pub only_outside: usize,
    /// Events in the log.
    pub events: usize,
    /// Outside effects beyond the first for their event and consumer.
    pub again: usize,
    /// The highest number of a try that had an effect.
    pub attempt_max: i32,
}

/// Reads everything and judges it. For a drill that has come to rest.
///
/// # Errors
/// When a witness cannot be read; that is no verdict.
pub async fn check(client: &Client, folder: &Path, expect: &Expect) -> Result<(Facts, Report)> {
    let facts = Facts::read(client, folder).await?;
    let report = rules::judge(&facts, expect);
    Ok((facts, report))
}

/// How much is not done yet: events without a completion, parked ones, batches and tries in flight. What is in quarantine
/// is at rest: nothing changes it but a person.
///
/// # Errors
/// When the database does not answer.
pub async fn open_work(client: &Client, consumers: usize) -> Result<i64> {
    const SQL: &str = "
        select greatest($1 - (select count(*) from outlast._consumer), 0)
             + (select count(*) from outlast._event e join outlast._consumer_type t on t.type = e.type)
             - (select count(*) from outlast._processed_event p
                where exists (select from outlast._event e where e.event_id = p.event_id))
             -- What is a bit and no row any more.
             - (select count(*) from outlast._folded f
                join outlast._event e on e.id between f.base and f.base + 8191 and get_bit(f.done, (e.id - f.base)::int) = 1
                where not exists (select from outlast._processed_event p
                                  where p.consumer = f.consumer and p.event_id = e.event_id))
             + (select coalesce(sum(case state when 'quarantined' then -1 else 1 end), 0)::bigint from outlast._parked)
             + (select count(*) from outlast._lease where room in ('batch', 'parked', 'delivered', 'rewind'))";
    let consumers = i64::try_from(consumers)?;
    Ok(client.query_one(SQL, &[&consumers]).await?.get(0))
}
