//! The account of very many events: the database counts, and outside journals are read a piece at a time.

use std::{
    collections::HashSet,
    fmt, fs,
    io::{BufRead, BufReader},
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::{
    Report,
    facts::{COMPLETED, Done},
};

/// What must be there.
#[derive(Clone, Copy, Debug)]
pub struct Of<'a> {
    /// So many events, each completed by every consumer.
    pub events: i64,
    /// Consumers whose effects are rows of `drill.effect`: exactly one an event.
    pub inside: &'a [&'a str],
    /// Consumers whose effects are lines of the journals `outside-*.jsonl`: at least one an event.
    pub outside: &'a [&'a str],
}

/// How long the account took.
#[derive(Clone, Debug, Default)]
pub struct Took(Vec<(&'static str, Duration)>);

impl fmt::Display for Took {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the account:")?;
        for (what, took) in &self.0 {
            write!(f, " {what} {took:.1?},")?;
        }
        Ok(())
    }
}

/// Each must be zero.
const ZEROES: [(&str, &str); 7] = [
    (
        "intents without their event, or with other content",
        "select count(*) from drill.business b left join outlast._event e using (event_id)
         where e.event_id is null or encode(sha256(e.payload), 'hex') <> b.digest",
    ),
    (
        "events without their intent",
        "select count(*) from outlast._event e left join drill.business b using (event_id) where b.event_id is null",
    ),
    (
        "intents with more than one event",
        "select count(*) - count(distinct n) from drill.business",
    ),
    (
        "effects beyond the first of their event",
        "select count(*) - count(distinct (consumer, event_id)) from drill.effect",
    ),
    (
        "effects of no event, or with other content",
        "select count(*) from drill.effect d left join drill.business b using (event_id)
         where b.event_id is null or b.n <> d.n or b.digest <> d.digest",
    ),
    (
        "events that are parked",
        "select count(*) from outlast._parked",
    ),
    (
        "leases that are not ended",
        "select count(*) from outlast._lease where room in ('batch', 'parked')",
    ),
];

/// Compares everything with everything. Each difference is a violation, in words.
///
/// # Errors
/// When the database does not answer, or a journal cannot be read.
pub async fn account(client: &Client, folder: &Path, of: &Of<'_>) -> Result<(Report, Took)> {
    let (mut report, mut took) = (Report::default(), Took::default());
    let mut began = Instant::now();
    let mut next = |what| {
        took.0.push((what, began.elapsed()));
        began = Instant::now();
    };
    for (what, sql) in ZEROES {
        let n: i64 = client.query_one(sql, &[]).await?.get(0);
        if n != 0 {
            report.violations.push(format!("{n} {what}"));
        }
    }
    next("rows");
    let mut counts = vec![(
        "events".to_owned(),
        count(client, "select count(*) from outlast._event", None).await?,
    )];
    report.events = usize::try_from(counts[0].1)?;
    let completed = format!(
        "select count(*) from ({COMPLETED}) p join outlast._consumer c on c.id = p.consumer where c.name = $1"
    );
    for consumer in of.inside.iter().chain(of.outside) {
        let n = count(client, &completed, Some(consumer)).await?;
        counts.push((format!("completions of {consumer}"), n));
    }
    next("completions");
    for consumer in of.inside {
        let sql = "select count(*) from drill.effect where consumer = $1";
        let n = count(client, sql, Some(consumer)).await?;
        counts.push((format!("effects of {consumer}"), n));
    }
    for consumer in of.outside {
        let outside = journals(client, folder, consumer).await?;
        if outside.strange > 0 {
            report.violations.push(format!(
                "{} lines of {consumer} outside for no event, or with other content",
                outside.strange
            ));
        }
        report.again += outside.lines - outside.events.len();
        let n = i64::try_from(outside.events.len())?;
        counts.push((format!("events that {consumer} handled outside"), n));
    }
    next("effects");
    let differ = counts.into_iter().filter(|(_, n)| *n != of.events);
    report
        .violations
        .extend(differ.map(|(what, n)| format!("{what}: {n} of {}", of.events)));
    let verify = "select invariant, violations from outlast._verify() where violations <> 0";
    for row in client.query(verify, &[]).await? {
        let (invariant, n): (String, i64) = (row.get(0), row.get(1));
        report.violations.push(format!("verify: {invariant}: {n}"));
    }
    next("verify");
    Ok((report, took))
}

async fn count(client: &Client, sql: &str, of: Option<&str>) -> Result<i64> {
    let row = match of {
        Some(of) => client.query_one(sql, &[&of]).await?,
        None => client.query_one(sql, &[]).await?,
    };
    Ok(row.get(0))
}

/// What one consumer did outside.
#[derive(Debug, Default)]
struct Outside {
    lines: usize,
    events: HashSet<Uuid>,
    /// Lines that fit no intent.
    strange: i64,
}

/// Reads the journals line by line. A line without its end was never on disk for its writer: that died in it.
async fn journals(client: &Client, folder: &Path, consumer: &str) -> Result<Outside> {
    const AT_ONCE: usize = 100_000;
    let (mut outside, mut piece) = (Outside::default(), Vec::with_capacity(AT_ONCE));
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.starts_with("outside-") {
            continue;
        }
        let mut file = BufReader::new(fs::File::open(&path)?);
        let mut line = String::new();
        while file.read_line(&mut line)? > 0 {
            if line.ends_with('\n') {
                let done: Done = serde_json::from_str(&line)
                    .with_context(|| format!("{}: {line}", path.display()))?;
                if done.consumer == consumer {
                    outside.lines += 1;
                    outside.events.insert(done.event_id);
                    piece.push(done);
                }
            }
            line.clear();
            if piece.len() == AT_ONCE {
                outside.strange += strange(client, &piece).await?;
                piece.clear();
            }
        }
    }
    outside.strange += strange(client, &piece).await?;
    Ok(outside)
}

/// How many of these fit no intent.
async fn strange(client: &Client, lines: &[Done]) -> Result<i64> {
    const SQL: &str = "
        select count(*) from unnest($1::uuid[], $2::bigint[], $3::text[]) d (event_id, n, digest)
        left join drill.business b using (event_id)
        where b.event_id is null or b.n <> d.n or b.digest <> d.digest";
    let ids: Vec<_> = lines.iter().map(|done| done.event_id).collect();
    let numbers: Vec<_> = lines.iter().map(|done| done.n).collect();
    let digests: Vec<_> = lines.iter().map(|done| done.digest.as_str()).collect();
    let row = client.query_one(SQL, &[&ids, &numbers, &digests]).await?;
    Ok(row.get(0))
}
