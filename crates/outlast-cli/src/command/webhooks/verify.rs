//! `outlast webhooks verify`: recorded webhooks, judged by their signatures alone.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use clap::Args;
use outlast_http::webhook::vectors::{self, Judged, MOST_BYTES};
use serde::Serialize;

use crate::{
    args::Global,
    exit::Exit,
    out::{Table, text},
    problem::{Answer, Problem, Tried},
};

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// The file of recorded webhooks; - reads stdin
    #[arg(long, value_name = "FILE")]
    vectors: PathBuf,
}

#[derive(Serialize)]
struct Verdict<'a> {
    id: &'a str,
    verdict: &'static str,
    /// One word.
    reason: &'static str,
    /// The provider's id, or ids where a webhook has several events; none where it has none, or is refused.
    event_id: EventId<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum EventId<'a> {
    One(Option<&'a str>),
    Several(Vec<Option<&'a str>>),
}

impl Verify {
    pub(crate) fn run(&self, global: &Global) -> Answer {
        let out = global.out();
        let name = text::line(&self.vectors.to_string_lossy());
        let file = read(&self.vectors).tried(format!("read {name}"))?;
        let judged = vectors::judge(&file).map_err(|why| {
            let next = "`outlast webhooks verify --help` says what a row has";
            Problem::new(Exit::Usage, format!("judge {name}"), why.to_string()).next(next)
        })?;
        let differs = |one: &&Judged| one.expected.is_some_and(|e| e != one.verdict.is_ok());
        let different = judged.iter().filter(differs).count();
        let exit = if different == 0 {
            Exit::Done
        } else {
            Exit::Found
        };
        if out.json {
            out.objects(judged.iter().map(Verdict::of))?;
            return Ok(exit);
        }
        let mut table = Table::new(["ID", "VERDICT", "REASON"]).whole(["ID"]);
        for one in &judged {
            let verdict = Verdict::of(one);
            let expected = if differs(&one) {
                " (expected otherwise)"
            } else {
                ""
            };
            let why = match &one.verdict {
                Ok(_) => verdict.reason.to_owned(),
                Err(why) => format!("{}: {why}", verdict.reason),
            };
            table.row([verdict.id, verdict.verdict, &format!("{why}{expected}")]);
        }
        out.table(&table)?;
        let accepted = judged.iter().filter(|one| one.verdict.is_ok()).count();
        let rows = text::count(judged.len(), "webhook", "webhooks");
        let refused = judged.len() - accepted;
        out.say(&format!(
            "{rows}: {accepted} accepted, {refused} refused, {different} otherwise than expected"
        ))?;
        Ok(exit)
    }
}

impl<'a> Verdict<'a> {
    fn of(judged: &'a Judged) -> Self {
        let (verdict, reason, events) = match &judged.verdict {
            Ok(verified) => ("accept", "verified", &verified.events[..]),
            Err(why) => ("reject", why.word(), &[][..]),
        };
        let event_id = match events {
            [] => EventId::One(None),
            [one] => EventId::One(one.id.as_deref()),
            all => EventId::Several(all.iter().map(|item| item.id.as_deref()).collect()),
        };
        Self {
            id: &judged.id,
            verdict,
            reason,
            event_id,
        }
    }
}

/// One byte more than is judged, so that it is seen.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let most = u64::try_from(MOST_BYTES)
        .unwrap_or(u64::MAX)
        .saturating_add(1);
    let mut bytes = Vec::new();
    match path.as_os_str() == "-" {
        true => io::stdin().lock().take(most).read_to_end(&mut bytes)?,
        false => File::open(path)?.take(most).read_to_end(&mut bytes)?,
    };
    Ok(bytes)
}
