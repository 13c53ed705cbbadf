//! `outlast retention run`: one pass of maintenance, told as it goes.

use std::time::Duration;

use clap::Args;
use outlast_postgres::retention::{self, Bounds, Step};
use serde::Serialize;

use crate::{
    args::Global,
    database::Database,
    exit::Exit,
    out::text,
    problem::{Answer, Problem, Tried},
};

#[derive(Debug, Args)]
pub(super) struct Run {
    /// For how many milliseconds claims may wait while a slot is emptied
    #[arg(long, value_name = "MS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    hold: u64,
}

#[derive(Default, Serialize)]
struct Done {
    folded: i64,
    emptied: Vec<String>,
    kept: Vec<String>,
    forgotten: i64,
    more: bool,
    #[serde(skip)]
    problems: Vec<String>,
}

impl Done {
    /// Takes note of a step; a sentence for who watches.
    fn note(&mut self, step: Step) -> Option<String> {
        match step {
            Step::Contradiction(problems) => {
                self.problems = problems;
                None
            }
            Step::Folded {
                consumer,
                first,
                last,
                completed,
                ..
            } => {
                self.folded += i64::from(completed);
                let consumer = text::line(&consumer);
                Some(format!(
                    "{consumer}: {completed} completions of log ids {first} to {last} are bits now"
                ))
            }
            Step::Emptied { ring, slot, .. } => {
                let slot = format!("{ring} {slot}");
                let said = format!("slot {slot} was emptied");
                self.emptied.push(slot);
                Some(said)
            }
            Step::Kept { ring, slot, why } => {
                let slot = format!("{ring} {slot}");
                let said = format!("slot {slot} stays for now: {}", text::line(&why));
                self.kept.push(slot);
                Some(said)
            }
            Step::Forgot { what, rows } => {
                self.forgotten += rows;
                Some(format!("{rows} {what} forgotten"))
            }
            Step::Moved { rows } => Some(format!(
                "{rows} completions of consumers on brokers were moved out of a leaf that is to be swept"
            )),
            _ => None,
        }
    }
}

impl Run {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        let out = global.out();
        let mut database = Database::to_write(global).await?;
        let bounds = Bounds {
            hold: Duration::from_millis(self.hold),
            ..Bounds::default()
        };
        let mut done = Done::default();
        let mut written = Ok(());
        let schema = database.schema();
        let more = retention::pass(database.client_mut(), schema, bounds, |step| {
            if let Some(said) = done.note(step)
                && written.is_ok()
            {
                written = out.say(&said);
            }
        })
        .await
        .tried("do a pass of maintenance")?;
        written?;
        done.more = more;
        if !done.problems.is_empty() {
            let what = done.problems.join("; ");
            return Err(Problem::new(Exit::Usage, "remove what is finished", what)
                .next("mend the cluster settings: nothing is removed while they contradict each other"));
        }
        if out.json {
            out.object(&done)?;
        } else {
            out.say(&format!(
                "{} folded, {} emptied, {} forgotten{}",
                text::count(done.folded, "completion", "completions"),
                text::count(done.emptied.len() as i64, "slot", "slots"),
                text::count(done.forgotten, "row", "rows"),
                if more {
                    "; there is more: run it again"
                } else {
                    ""
                }
            ))?;
        }
        Ok(Exit::Done)
    }
}
