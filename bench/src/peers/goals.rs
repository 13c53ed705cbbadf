//! What the product aims at, and whether a run reached it. An aim whose workload was not run is not told.

mod judge;

use super::{
    book::Book,
    table::{BASE, number},
    workload::{enqueue, trickle},
};
use judge::Judge;

pub struct Goal {
    pub workload: &'static str,
    pub aim: String,
    pub found: String,
    pub reached: bool,
}

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
    for (workload, fastest) in [("drain", &fastest), ("handlers", &handlers)] {
        let what = "the fastest peer's rate, by jobs";
        let peer = fastest.as_deref();
        goals.extend(judge.times_of("outlast jobs, best", workload, what, "rate", peer, 1.5));
    }
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
        let Some(samples) = judge.book.samples(workload) else {
            continue;
        };
        // In every form of handler.
        let ours = samples
            .whos()
            .into_iter()
            .filter(|who| who.starts_with("outlast"));
        let values = ours.flat_map(|who| samples.values(&who, "", name));
        if let Some(worst) = values.max_by(f64::total_cmp) {
            goals.push(judge.plain(workload, aim, number(worst, 0), worst == 0.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::all;
    use crate::peers::{
        book::{Book, Chapter},
        samples::{Numbers, Sample, Samples},
    };

    fn drained(rates: &[(&str, [f64; 3])]) -> Book {
        let sample = |who: &str, round, rate| Sample {
            who: who.to_owned(),
            case: String::new(),
            round,
            numbers: Numbers::from([("rate".to_owned(), rate)]),
            words: String::new(),
        };
        let each = rates.iter().flat_map(|(who, rates)| {
            rates
                .iter()
                .enumerate()
                .map(move |(round, rate)| sample(who, round, *rate))
        });
        let mut book = Book::default();
        book.put(Chapter {
            workload: "drain".to_owned(),
            how: String::new(),
            samples: Samples(each.collect()),
        });
        book
    }

    fn is_reached(book: &Book, aim: &str) -> Option<bool> {
        all(book)
            .iter()
            .find(|goal| goal.aim.starts_with(aim))
            .map(|goal| goal.reached)
    }

    #[test]
    fn an_aim_is_judged_by_the_rounds_in_which_both_ran_and_not_against_the_floor() {
        let aim = "at least 3 × the fastest peer";
        // The third round was three times as quiet; what they are to each other is the same.
        let peers = [
            ("slow, best", [5.0, 5.0, 15.0]),
            ("quick, best", [10.0, 10.0, 30.0]),
            ("by-hand, best", [1e6; 3]),
        ];
        let mut rates = peers.to_vec();
        rates.push(("outlast, best", [31.0, 31.0, 93.0]));
        assert_eq!(is_reached(&drained(&rates), aim), Some(true));
        rates[3].1 = [29.0, 29.0, 87.0];
        assert_eq!(is_reached(&drained(&rates), aim), Some(false));
    }

    #[test]
    fn an_aim_whose_workload_was_not_run_is_not_told() {
        assert!(all(&Book::default()).is_empty());
    }
}
