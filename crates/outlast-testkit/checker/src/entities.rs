//! Judges entities: what their provider shows, against business rows and against what was told to be cleaned up.
//!
//! The provider is a book to which every reconciler appends (`book.jsonl`): a request is a line that is on disk, served in the order
//! of the file. It takes fence numbers: a request with a lower one than it has seen of the same thing is refused. [`Shown`] is what it
//! shows then, [`read`] reads that and the database, [`judge`] compares them.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    path::Path,
};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use tokio_postgres::Client;

use crate::facts::{journals, rows};

/// The name of the book, without its ending.
pub const BOOK: &str = "book";

/// The tables of an application that has things, each of which is to be shown as often as it was changed.
pub const TABLES: &str = "
    create table drill.member (n bigint primary key);
    create table drill.change (writer int not null, n bigint not null);
    create index on drill.change (n);
    create table drill.named (id bigint generated always as identity primary key, n bigint not null, name text not null);
    create table drill.gone (n bigint not null, name text not null);";

/// One line of the book.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    /// Of which thing.
    pub n: i64,
    /// With which fence number.
    pub fence: u64,
    /// By which process.
    pub pid: i32,
    /// When, on the clock of this machine.
    pub at_ms: u64,
    /// What.
    pub step: Step,
}

/// What a reconciler does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// A run has begun.
    Began,
    /// It has ended, and returns `Ok`.
    Ended,
    /// Something is made, under this name, and looks so.
    Made(String, i64),
    /// It looks so from now on.
    Set(String, i64),
    /// It is taken away.
    Removed(String),
}

/// What the provider shows.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// By name: of which thing, and how it looks.
    things: BTreeMap<String, (i64, i64)>,
    fences: BTreeMap<i64, u64>,
    removed: HashSet<String>,
    refused: usize,
}

impl Shown {
    /// After these requests.
    pub fn after(lines: &[Line]) -> Self {
        let mut shown = Self::default();
        for line in lines {
            shown.serve(line);
        }
        shown
    }

    fn serve(&mut self, line: &Line) {
        let highest = self.fences.entry(line.n).or_default();
        if matches!(line.step, Step::Began | Step::Ended) {
            return;
        }
        if line.fence < *highest {
            self.refused += 1;
            return;
        }
        *highest = line.fence;
        match &line.step {
            Step::Made(name, look) => {
                self.things.insert(name.clone(), (line.n, *look));
            }
            Step::Set(name, look) => {
                if let Some(thing) = self.things.get_mut(name) {
                    thing.1 = *look;
                }
            }
            Step::Removed(name) => {
                self.things.remove(name);
                self.removed.insert(name.clone());
            }
            Step::Began | Step::Ended => {}
        }
    }

    /// The names of all that it shows of a thing.
    pub fn names(&self, n: i64) -> Vec<String> {
        let of = self.things.iter().filter(|(_, (whose, _))| *whose == n);
        of.map(|(name, _)| name.clone()).collect()
    }

    /// Whether it shows something under this name.
    pub fn has(&self, name: &str) -> bool {
        self.things.contains_key(name)
    }

    fn looks(&self, n: i64) -> Vec<i64> {
        let of = self.things.values().filter(|(whose, _)| *whose == n);
        of.map(|(_, look)| *look).collect()
    }
}

/// What a drill claims about itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Expect {
    /// A process slept past its lease: two runs of one thing may overlap, and what the old one has made is a person's.
    pub slept: bool,
    /// A run takes at least so long: of one thing no more than two begin within it.
    pub run_ms: Option<u64>,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The book.
    pub lines: Vec<Line>,
    /// Which thing, whether its row is there, and how often it was changed.
    pub wanted: Vec<(i64, bool, i64)>,
    /// Which thing was deleted, and what the provider calls what is to go.
    pub gone: Vec<(i64, String)>,
    /// What waits for a person: kind, and which.
    pub incidents: Vec<(String, String)>,
    /// What the product says of itself.
    pub verify: Vec<String>,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Each broken promise, with what proves it.
    pub violations: Vec<String>,
    /// Changes that have committed.
    pub changes: i64,
    /// Deletions that have committed.
    pub deletions: usize,
    /// Runs that have begun.
    pub runs: usize,
    /// Requests of older owners that the provider has refused.
    pub refused: usize,
}

/// How many entities are not converged, or in somebody's hand. In drills there is a person who decides.
pub const OPEN: &str = "
    select (select count(*) from outlast._entity_mark)
         + (select count(*) from outlast.entity where state <> 'converged')
         + (select count(*) from outlast._job_claimed) + (select count(*) from outlast._lease where room = 'job')";

/// Reads all witnesses.
///
/// # Errors
/// When one cannot be read; that is no verdict.
pub async fn read(client: &Client, folder: &Path) -> Result<Facts> {
    Ok(Facts {
        lines: journals(folder, BOOK)?,
        wanted: rows(
            client,
            "select x.n, exists (select from drill.member m where m.n = x.n), (select count(*) from drill.change c where c.n = x.n)
             from (select n from drill.change union select n from drill.member) x order by 1",
            |row| (row.get(0), row.get(1), row.get(2)),
        )
        .await?,
        gone: rows(client, "select n, name from drill.gone", |row| (row.get(0), row.get(1))).await?,
        incidents: rows(client, "select kind, concat(key, ': ', reason) from outlast.incident", |row| {
            (row.get(0), row.get(1))
        })
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

/// Compares the witnesses.
pub fn judge(facts: &Facts, expect: &Expect) -> Report {
    let shown = Shown::after(&facts.lines);
    let mut wrong = facts.verify.clone();
    looks_as_wanted(facts, &shown, &mut wrong);
    is_cleaned_up(facts, &shown, &mut wrong);
    if !expect.slept {
        one_at_a_time(facts, &mut wrong);
    }
    if let Some(run_ms) = expect.run_ms {
        not_too_often(facts, run_ms, &mut wrong);
    }
    for (kind, which) in &facts.incidents {
        if !(expect.slept && kind == "late refs") {
            wrong.push(format!("{kind}: {which}"));
        }
    }
    let begun = facts.lines.iter().filter(|line| line.step == Step::Began);
    Report {
        violations: wrong,
        changes: facts.wanted.iter().map(|(_, _, changes)| changes).sum(),
        deletions: facts.gone.len(),
        runs: begun.count(),
        refused: shown.refused,
    }
}

/// What was committed last is what is shown: no generation is lost.
fn looks_as_wanted(facts: &Facts, shown: &Shown, wrong: &mut Vec<String>) {
    let mut known = BTreeSet::new();
    for (n, is_there, changes) in &facts.wanted {
        known.insert(*n);
        let (looks, wanted) = (
            shown.looks(*n),
            Vec::from_iter(is_there.then_some(*changes)),
        );
        if looks != wanted {
            wrong.push(format!(
                "generation: of thing {n} {looks:?} is shown, and {wanted:?} is wanted"
            ));
        }
    }
    let others = shown.things.iter().filter(|(_, (n, _))| !known.contains(n));
    wrong
        .extend(others.map(|(name, (n, _))| {
            format!("thing {n} is shown as {name}, and there never was one")
        }));
}

/// What was deleted with its refs is gone there, by those refs, whatever came after.
fn is_cleaned_up(facts: &Facts, shown: &Shown, wrong: &mut Vec<String>) {
    for (n, name) in &facts.gone {
        if shown.has(name) || !shown.removed.contains(name) {
            wrong.push(format!(
                "refs: thing {n} was deleted with {name}, and nobody has taken that away"
            ));
        }
    }
}

fn one_at_a_time(facts: &Facts, wrong: &mut Vec<String>) {
    let mut inside: BTreeMap<i64, u64> = BTreeMap::new();
    for line in &facts.lines {
        match line.step {
            Step::Began => {
                inside.insert(line.n, line.fence);
            }
            Step::Ended if inside.get(&line.n) != Some(&line.fence) => wrong.push(format!(
                "thing {} was converged twice at once: fence {} ends within {:?}",
                line.n,
                line.fence,
                inside.get(&line.n)
            )),
            _ => {}
        }
    }
}

fn not_too_often(facts: &Facts, run_ms: u64, wrong: &mut Vec<String>) {
    let mut begun: BTreeMap<i64, Vec<u64>> = BTreeMap::new();
    for line in facts.lines.iter().filter(|line| line.step == Step::Began) {
        begun.entry(line.n).or_default().push(line.at_ms);
    }
    for (n, times) in begun {
        let third = times.windows(3).find(|three| three[2] < three[0] + run_ms);
        if let Some(three) = third {
            wrong.push(format!(
                "thing {n} began three times within a run of {run_ms} ms: {three:?}"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(n: i64, fence: u64, step: Step) -> Line {
        Line {
            n,
            fence,
            pid: 1,
            at_ms: fence * 100,
            step,
        }
    }

    fn made(name: &str, look: i64) -> Step {
        Step::Made(name.into(), look)
    }

    fn wrong(facts: &Facts, expect: &Expect) -> String {
        judge(facts, expect).violations.join("\n")
    }

    #[test]
    fn an_older_look_a_second_one_and_a_forgotten_deletion_are_found() {
        let mut facts = Facts {
            lines: vec![line(1, 1, made("a", 2))],
            wanted: vec![(1, true, 2)],
            ..Facts::default()
        };
        assert_eq!(wrong(&facts, &Expect::default()), "");
        // An older owner wakes: the provider refuses it.
        facts.lines.push(line(1, 0, Step::Set("a".into(), 1)));
        assert_eq!(judge(&facts, &Expect::default()).refused, 1);
        assert_eq!(wrong(&facts, &Expect::default()), "");
        facts.wanted = vec![(1, true, 3)];
        assert!(wrong(&facts, &Expect::default()).contains("[2] is shown, and [3] is wanted"));
        facts.lines.push(line(1, 2, made("b", 3)));
        assert!(wrong(&facts, &Expect::default()).contains("[2, 3] is shown"));
        facts.gone = vec![(1, "a".into())];
        assert!(wrong(&facts, &Expect::default()).contains("deleted with a"));
        facts.lines.push(line(1, 2, Step::Removed("a".into())));
        assert_eq!(wrong(&facts, &Expect::default()), "");
        facts.wanted = vec![(1, false, 3)];
        assert!(wrong(&facts, &Expect::default()).contains("[3] is shown, and [] is wanted"));
    }

    #[test]
    fn two_runs_at_once_and_too_many_of_them_are_found() {
        let runs = |steps: &[(u64, Step)]| Facts {
            lines: steps
                .iter()
                .map(|(fence, step)| line(1, *fence, step.clone()))
                .collect(),
            ..Facts::default()
        };
        let (began, ended) = (Step::Began, Step::Ended);
        let after = runs(&[(1, began.clone()), (2, began.clone()), (2, ended.clone())]);
        assert_eq!(wrong(&after, &Expect::default()), "", "the first has died");
        let within = runs(&[(1, began.clone()), (2, began.clone()), (1, ended)]);
        assert!(wrong(&within, &Expect::default()).contains("twice at once"));
        let often = runs(&[(1, began.clone()), (2, began.clone()), (3, began)]);
        let expect = |run_ms| Expect {
            run_ms: Some(run_ms),
            slept: true,
        };
        assert_eq!(wrong(&often, &expect(200)), "");
        assert!(wrong(&often, &expect(201)).contains("three times"));
    }
}
