//! A business transaction with units against the same without, by the same driver in the same database.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::peers::{
    adapter::Who,
    child::{Child, Line},
    meter::Meter,
    room::Room,
    samples::Numbers,
    stage::{Found, Stage},
    task::Task,
};

/// Writers and how many units in each transaction.
const SHAPES: [(usize, usize); 5] = [(1, 1), (8, 1), (16, 1), (1, 500), (8, 500)];

pub fn case(writers: usize, batch: usize, emit: &str) -> String {
    let writers = if writers == 1 {
        "1 writer".to_owned()
    } else {
        format!("{writers} writers")
    };
    let units = match (batch, emit) {
        (1, "own") => "one unit".to_owned(),
        (1, _) => "one unit, joined".to_owned(),
        (n, "own") => format!("{n} units"),
        (n, _) => format!("{n} units, joined"),
    };
    format!("{writers}, {units}")
}

pub async fn run(stage: &Stage) {
    let seconds = stage.pick(1.5, 0.5, 0.2);
    let shapes: &[(usize, usize)] = stage.pick(&SHAPES, &[(8, 1)], &[(8, 1), (1, 500)]);
    stage
        .interleave("enqueue", &stage.best(), stage.rounds, async |who, _| {
            let room = Room::new(&stage.server, who, 1).await?;
            // The first connections, the first pages.
            slice(stage, who, &room, 1, 1, "own", seconds / 4.0).await?;
            let mut found = Vec::new();
            for &(writers, batch) in shapes {
                let none = slice(stage, who, &room, writers, 1, "none", seconds).await?;
                for emit in ["own", "joined"] {
                    let name = case(writers, batch, emit);
                    if let Some(why) = who.skips(emit) {
                        found.push(Found::saying(name, format!("left out: {why}")));
                        continue;
                    }
                    let mut with = slice(stage, who, &room, writers, batch, emit, seconds).await?;
                    against(&mut with, &none, batch as f64);
                    found.push(Found::new(name, with));
                }
            }
            room.leave(&stage.server).await?;
            Ok(found)
        })
        .await;
}

/// What the units add to the transaction without them.
fn against(with: &mut Numbers, none: &Numbers, batch: f64) {
    let more = |name: &str| (with[name] - none[name]) / batch;
    let added = [
        ("ratio", with["rate"] / none["rate"]),
        ("without", none["rate"]),
        ("units_per_second", with["rate"] * batch),
        ("server_added", more("server")),
        ("wal_added", more("wal")),
    ];
    with.extend(added.map(|(name, value)| (name.to_owned(), value)));
}

/// Numbers are per transaction. The database says how many there were, and how many units they left.
pub async fn slice(
    stage: &Stage,
    who: &Who,
    room: &Room,
    writers: usize,
    batch: usize,
    emit: &'static str,
    seconds: f64,
) -> Result<Numbers> {
    const ROWS: &str = "select count(*) from business";
    let (rows, left) = (room.number(ROWS).await?, room.left().await?);
    let task = Task {
        writers,
        batch,
        emit,
        seconds,
        ..Task::new("enqueue")
    };
    let mut child = Child::start(who, room, &task)?;
    child.close();
    let meter = Meter::start(&stage.server, room, Vec::new()).await?;
    let lines = child.end(Duration::from_secs_f64(seconds + 60.0)).await?;
    let read = meter.read(room, Instant::now()).await?;
    let [
        Line::End {
            transactions: Some(told),
            seconds: Some(took),
            ..
        },
    ] = lines[..]
    else {
        bail!("enqueue said {lines:?}");
    };
    let committed = room.number(ROWS).await? - rows;
    if committed != told {
        bail!("it says {told} transactions, the database {committed}");
    }
    let units = if emit == "none" {
        0
    } else {
        committed * batch as i64
    };
    let waiting = room.left().await? - left;
    if waiting != units {
        bail!("{committed} transactions of {batch} left {waiting} units waiting");
    }
    let mut numbers = read.finish(room, committed as f64).await?;
    numbers.insert("rate".into(), committed as f64 / took);
    Ok(numbers)
}
