//! What all workloads have: the server, the contestants, the clock, and where samples go.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Result;

use super::{
    adapter::Who,
    samples::{Numbers, Sample, Samples},
    workload::drain::{Drain, drain},
};
use crate::server::Server;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Full,
    /// Minutes: short slices, few rounds.
    Quick,
    /// Seconds: whether everything runs; figures without worth.
    Smoke,
}

/// The contestant whose figures the others' are compared with.
pub const OURS: &str = "outlast";
pub const OUR_JOBS: &str = "outlast jobs";

pub struct Stage {
    pub server: Server,
    pub whos: Vec<Who>,
    pub form: Form,
    pub rounds: usize,
    pub until: Option<Instant>,
    found: Mutex<Vec<(String, Sample)>>,
    /// Units a second, of a first look.
    rates: Mutex<HashMap<String, f64>>,
}

/// One case of one contestant.
pub struct Found {
    pub case: String,
    pub numbers: Numbers,
    pub words: String,
}

impl Found {
    pub fn new(case: impl Into<String>, numbers: Numbers) -> Self {
        Self {
            case: case.into(),
            numbers,
            words: String::new(),
        }
    }

    pub fn saying(case: impl Into<String>, words: impl Into<String>) -> Self {
        Self {
            case: case.into(),
            numbers: Numbers::new(),
            words: words.into(),
        }
    }
}

impl Stage {
    pub fn new(
        server: Server,
        whos: Vec<Who>,
        form: Form,
        rounds: usize,
        until: Option<Instant>,
    ) -> Self {
        Self {
            server,
            whos,
            form,
            rounds,
            until,
            found: Mutex::default(),
            rates: Mutex::default(),
        }
    }

    /// By form.
    pub fn pick<T>(&self, full: T, quick: T, smoke: T) -> T {
        match self.form {
            Form::Full => full,
            Form::Quick => quick,
            Form::Smoke => smoke,
        }
    }

    /// In the two that everybody has, and ours in all.
    pub fn ours_in_all(&self) -> Vec<&Who> {
        let wanted = |who: &&Who| !who.has_further_profile() || who.adapter.name == OURS;
        self.whos.iter().filter(wanted).collect()
    }

    /// Contestants in the two profiles that everybody has, without further ones.
    pub fn usual(&self) -> Vec<&Who> {
        self.whos
            .iter()
            .filter(|who| !who.has_further_profile())
            .collect()
    }

    /// Each in its fastest profile.
    pub fn best(&self) -> Vec<&Who> {
        self.whos
            .iter()
            .filter(|who| who.profile == "best")
            .collect()
    }

    /// The same, and ours in every form of handler.
    pub fn best_and_ours(&self) -> Vec<&Who> {
        let wanted = |who: &&Who| {
            who.profile == "best" || (who.has_further_profile() && who.adapter.name == OURS)
        };
        self.whos.iter().filter(wanted).collect()
    }

    /// Runs every contestant once in each round, each round beginning with another one. Who fails is not asked again.
    pub async fn interleave(
        &self,
        workload: &str,
        whos: &[&Who],
        rounds: usize,
        run: impl AsyncFn(&Who, usize) -> Result<Vec<Found>>,
    ) {
        let mut out = Vec::new();
        for round in 0..rounds {
            for nth in 0..whos.len() {
                let who = whos[(nth + round) % whos.len()];
                if out.contains(&who.to_string()) {
                    continue;
                }
                if let Some(why) = who.skips(workload) {
                    out.push(who.to_string());
                    self.put(
                        workload,
                        who,
                        round,
                        Found::saying("", format!("left out: {why}")),
                    );
                    continue;
                }
                if self.until.is_some_and(|until| Instant::now() > until) {
                    self.put(
                        workload,
                        who,
                        round,
                        Found::saying("", "not measured: the time of this form was over"),
                    );
                    out.push(who.to_string());
                    continue;
                }
                match run(who, round).await {
                    Ok(found) => found
                        .into_iter()
                        .for_each(|found| self.put(workload, who, round, found)),
                    Err(error) => {
                        out.push(who.to_string());
                        self.put(
                            workload,
                            who,
                            round,
                            Found::saying("", format!("failed: {error:#}")),
                        );
                    }
                }
            }
        }
    }

    fn put(&self, workload: &str, who: &Who, round: usize, found: Found) {
        let shown: Vec<String> = [
            "rate",
            "ratio",
            "p50",
            "p99",
            "server",
            "wal",
            "losses",
            "duplicates",
        ]
        .iter()
        .filter_map(|name| Some(format!("{name} {:.1}", found.numbers.get(*name)?)))
        .collect();
        eprintln!(
            "{workload} {} · {who} · round {} · {} {}",
            found.case,
            round + 1,
            shown.join(", "),
            found.words
        );
        let Found {
            case,
            numbers,
            words,
        } = found;
        let sample = Sample {
            who: who.to_string(),
            case,
            round,
            numbers,
            words,
        };
        lock(&self.found).push((workload.to_owned(), sample));
    }

    pub fn samples(&self, workload: &str) -> Samples {
        let found = lock(&self.found);
        let mine = found.iter().filter(|(of, _)| of == workload);
        Samples(mine.map(|(_, sample)| sample.clone()).collect())
    }

    /// In the full form longer than any lease of a contestant that was told 30 s.
    pub fn patience(&self) -> Duration {
        Duration::from_secs(self.pick(120, 20, 60))
    }

    /// How many no-ops a second a contestant does, by a first look.
    pub async fn rate(&self, who: &Who) -> Result<f64> {
        let known = lock(&self.rates).get(&who.to_string()).copied();
        if let Some(rate) = known {
            return Ok(rate);
        }
        let mut rate = 0.0;
        for units in self.pick([2_000, 20_000], [1_000, 10_000], [200, 200]) {
            let numbers = drain(
                self,
                who,
                &Drain {
                    units,
                    ..Drain::default()
                },
            )
            .await?;
            rate = numbers["rate"];
            // Long enough to tell.
            if numbers["seconds"] > 0.4 {
                break;
            }
        }
        lock(&self.rates).insert(who.to_string(), rate);
        Ok(rate)
    }

    /// As many units as this contestant does in `seconds`.
    pub async fn units(&self, who: &Who, seconds: f64) -> Result<i64> {
        let least = self.pick(1_000.0, 500.0, 200.0);
        let most = self.pick(300_000.0, 100_000.0, 1_000.0);
        let units = (self.rate(who).await? * seconds).clamp(least, most);
        // Whole hundreds, for people.
        Ok((units / 100.0).ceil() as i64 * 100)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
