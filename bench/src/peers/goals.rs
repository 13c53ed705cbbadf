//! What the product aims at, and whether a run reached it. An aim whose workload was not run is not told.

use super::{
    book::Book,
    table::{BASE, number},
    workload::{enqueue, trickle},
};
use crate::report::spread;

pub struct Goal {
    pub workload: &'static str,
    pub aim: String,
    pub found: String,
    pub reached: bool,
}

/// In the names of `adapters.toml`: what is no peer.
const FLOOR: &str = "by-hand";

pub fn all(book: &Book) -> Vec<Goal> {
    let judge = Judge { book };
    let mut goals = Vec::new();
    drains(&judge, &mut goals);
    enqueues(&judge, &mut goals);
    latencies(&judge, &mut goals);
    flats(&judge, &mut goals);
    faults(&judge, &mut goals);
    goals
}

fn drains(judge: &Judge, goals: &mut Vec<Goal>) {
    let fastest = judge.fastest("drain", |_| true);
    let fenced = judge.fastest("drain", |who| {
        judge.book.description(who).is_some_and(|d| d.fenced)
    });
    goals.extend(judge.times(
        "drain",
        "the fastest peer's rate",
        "rate",
        fastest.as_deref(),
        3.0,
    ));
    goals.extend(judge.times(
        "drain",
        "the fastest fenced peer's rate",
        "rate",
        fenced.as_deref(),
        12.0,
    ));
    goals.extend(judge.most(
        "drain",
        "the fastest peer's server CPU a unit",
        "server",
        fastest.as_deref(),
        0.35,
    ));
    goals.extend(judge.most(
        "drain",
        "the fastest peer's WAL a unit",
        "wal",
        fastest.as_deref(),
        0.3,
    ));
    goals.extend(judge.least_with_history("WAL a unit", "wal"));
    goals.extend(judge.least_with_history("server CPU a unit", "server"));
    if let Some(rate) = judge.median("drain", "outlast, batch", "", "rate") {
        goals.push(judge.plain(
            "drain",
            "`on_batch` at least 150,000/s",
            format!("{}/s", number(rate, 0)),
            rate >= 150_000.0,
        ));
    }
    let handlers = judge.fastest("handlers", |_| true);
    goals.extend(judge.times(
        "handlers",
        "the fastest peer's rate",
        "rate",
        handlers.as_deref(),
        1.5,
    ));
    for (workload, who, floor) in [
        ("drain", BASE, "by-hand, best"),
        ("drain", "outlast, tx", "by-hand, tx"),
        ("handlers", BASE, "by-hand, best"),
    ] {
        let ratio = judge.ratio(workload, "rate", (who, ""), (floor, ""));
        goals.extend(ratio.map(|ratio| {
            judge.plain(
                workload,
                &format!("{who}: at least half of the rate of {floor}"),
                number(ratio, 2),
                ratio >= 0.5,
            )
        }));
    }
    let (Some(tx), Some(without)) = (
        judge.median("drain", "outlast, tx", "", "rate"),
        judge.median("enqueue", BASE, &enqueue::case(8, 1, "own"), "without"),
    ) else {
        return;
    };
    let aim = "`on_tx` at 8 connections at least 0.65 of the same transactions without a seal";
    goals.push(judge.plain("drain", aim, number(tx / without, 2), tx / without >= 0.65));
}

fn enqueues(judge: &Judge, goals: &mut Vec<Goal>) {
    for (emit, least, what) in [
        ("own", 0.65, "as its own round trip"),
        ("joined", 0.8, "joined"),
    ] {
        // As many writers as make the processors the limit.
        let busiest = [16, 8].map(|writers| enqueue::case(writers, 1, emit));
        let Some((case, ratio)) = busiest
            .iter()
            .find_map(|case| Some((case, judge.median("enqueue", BASE, case, "ratio")?)))
        else {
            continue;
        };
        let aim = format!("with a unit, {what}, at least {least} of without ({case})");
        goals.push(judge.plain("enqueue", &aim, number(ratio, 2), ratio >= least));
        goals.extend(judge.first(
            "enqueue",
            case,
            "ratio",
            &format!("the best of all in {case}"),
            true,
        ));
    }
}

fn latencies(judge: &Judge, goals: &mut Vec<Goal>) {
    for (name, most, unit, what) in [
        ("p50", 2.0, "ms", "commit → start at 200/s, p50"),
        ("p99", 6.0, "ms", "commit → start at 200/s, p99"),
        ("server", 300.0, "µs", "server CPU a unit at 200/s"),
    ] {
        if let Some(value) = judge.median("trickle", BASE, trickle::STEADY, name) {
            let aim = format!("{what} at most {most:.0} {unit}");
            goals.push(judge.plain(
                "trickle",
                &aim,
                format!("{} {unit}", number(value, 2)),
                value <= most,
            ));
        }
    }
    goals.extend(judge.first(
        "trickle",
        trickle::STEADY,
        "p99",
        "the lowest p99 of all at 200/s",
        false,
    ));
}

fn flats(judge: &Judge, goals: &mut Vec<Goal>) {
    let two = judge.ratio(
        "two-workers",
        "rate",
        (BASE, "2 processes"),
        (BASE, "1 process"),
    );
    goals.extend(two.map(|ratio| {
        judge.plain(
            "two-workers",
            "two processes at least 1.1 × one",
            number(ratio, 2),
            ratio >= 1.1,
        )
    }));
    let five = judge.ratio(
        "fan-out",
        "server",
        (BASE, "5 consumers"),
        (BASE, "1 consumer"),
    );
    goals.extend(five.map(|ratio| {
        judge.plain(
            "fan-out",
            "server CPU a completion at most 1.25 × that of one consumer",
            number(ratio, 2),
            ratio <= 1.25,
        )
    }));
    for (workload, case, what) in [
        (
            "snapshot",
            "at the end of the hold",
            "under an open snapshot",
        ),
        ("retained", "many kept", "with finished units kept"),
    ] {
        if let Some(ratio) = judge.median(workload, BASE, case, "ratio") {
            goals.push(judge.plain(
                workload,
                &format!("less than 10 % slower {what}"),
                number(ratio, 2),
                ratio > 0.9,
            ));
        }
    }
}

fn faults(judge: &Judge, goals: &mut Vec<Goal>) {
    for (workload, name, aim) in [
        ("kill", "losses", "nothing lost when a worker is killed"),
        ("stop", "stale", "no stale completion accepted"),
        ("restart", "losses", "nothing lost when PostgreSQL dies"),
    ] {
        let worst = judge
            .book
            .samples(workload)
            .map(|samples| samples.values(BASE, "", name));
        if let Some(worst) = worst.and_then(|values| values.into_iter().max_by(f64::total_cmp)) {
            goals.push(judge.plain(workload, aim, number(worst, 0), worst == 0.0));
        }
    }
}

struct Judge<'a> {
    book: &'a Book,
}

impl Judge<'_> {
    fn median(&self, workload: &str, who: &str, case: &str, number: &str) -> Option<f64> {
        self.book.samples(workload)?.median(who, case, number)
    }

    fn ratio(
        &self,
        workload: &str,
        number: &str,
        mine: (&str, &str),
        base: (&str, &str),
    ) -> Option<f64> {
        let ratios = self.book.samples(workload)?.ratios(number, mine, base);
        (!ratios.is_empty()).then(|| spread(ratios).0)
    }

    fn peers(&self, workload: &str) -> Vec<String> {
        let whos = self
            .book
            .samples(workload)
            .map(|samples| samples.whos())
            .unwrap_or_default();
        let peer = |who: &String| !who.starts_with("outlast, ") && !who.starts_with(FLOOR);
        whos.into_iter().filter(peer).collect()
    }

    fn fastest(&self, workload: &str, fits: impl Fn(&str) -> bool) -> Option<String> {
        let rated = self.peers(workload).into_iter().filter(|who| fits(who));
        let rated = rated.filter_map(|who| Some((self.median(workload, &who, "", "rate")?, who)));
        rated.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, who)| who)
    }

    fn plain(&self, workload: &'static str, aim: &str, found: String, reached: bool) -> Goal {
        Goal {
            workload,
            aim: aim.to_owned(),
            found,
            reached,
        }
    }

    fn times(
        &self,
        workload: &'static str,
        what: &str,
        name: &str,
        peer: Option<&str>,
        least: f64,
    ) -> Option<Goal> {
        let ratio = self.ratio(workload, name, (BASE, ""), (peer?, ""))?;
        let aim = format!("at least {least} × {what}");
        Some(self.plain(
            workload,
            &aim,
            format!("{} × {}", number(ratio, 2), peer?),
            ratio >= least,
        ))
    }

    fn most(
        &self,
        workload: &'static str,
        what: &str,
        name: &str,
        peer: Option<&str>,
        most: f64,
    ) -> Option<Goal> {
        let ratio = self.ratio(workload, name, (BASE, ""), (peer?, ""))?;
        let aim = format!("at most {most} of {what}");
        Some(self.plain(
            workload,
            &aim,
            format!("{} of {}", number(ratio, 2), peer?),
            ratio <= most,
        ))
    }

    /// Against every peer, in every profile.
    fn first(
        &self,
        workload: &'static str,
        case: &str,
        name: &str,
        aim: &str,
        more: bool,
    ) -> Option<Goal> {
        let mine = self.median(workload, BASE, case, name)?;
        let others = self
            .peers(workload)
            .into_iter()
            .filter_map(|who| Some((self.median(workload, &who, case, name)?, who)));
        let (best, who) = if more {
            others.max_by(|a, b| a.0.total_cmp(&b.0))
        } else {
            others.min_by(|a, b| a.0.total_cmp(&b.0))
        }?;
        let reached = if more { mine >= best } else { mine <= best };
        Some(self.plain(
            workload,
            aim,
            format!("{} against {} of {who}", number(mine, 2), number(best, 2)),
            reached,
        ))
    }

    fn least_with_history(&self, what: &str, name: &str) -> Option<Goal> {
        let mine = self.median("drain", BASE, "", name)?;
        let keeps = |who: &String| self.book.description(who).is_some_and(|d| d.history);
        let others = self.peers("drain").into_iter().filter(keeps);
        let others = others.filter_map(|who| Some((self.median("drain", &who, "", name)?, who)));
        let (best, who) = others.min_by(|a, b| a.0.total_cmp(&b.0))?;
        let aim = format!("the lowest {what} of all that keep history");
        Some(self.plain(
            "drain",
            &aim,
            format!("{} against {} of {who}", number(mine, 1), number(best, 1)),
            mine <= best,
        ))
    }
}
