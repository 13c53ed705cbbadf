//! `outlast retention`: what is kept, what keeps it, and one pass of maintenance by hand.

mod explain;
mod plan;
mod run;

use clap::{Args, Subcommand};

use crate::{args::Global, problem::Answer};

#[derive(Debug, Args)]
pub(crate) struct Retention {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show what each room holds, how fast it grows and what it will hold at rest
    #[command(after_help = "\
Rates are measured over the newest rows, of a day at most. Completions are rows for some days and then
bits. Numbers of rows are estimates: nothing is counted whole.")]
    Plan,
    /// Say what holds a slot: a consumer, a batch, a parked event, a setting, a snapshot, a lock
    #[command(after_help = "\
The log is a ring of 16 slots of 12 hours, the inbox one of 16 slots of 3 days. A slot that cannot be
emptied in time just grows.

Examples:
  outlast retention explain            every slot that is held
  outlast retention explain log 7      that one")]
    Explain(explain::Explain),
    /// Do one pass of maintenance now; workers do one about once a minute
    #[command(after_help = "\
Folds completions of long ago into bits, empties slots that nobody needs, forgets old keys. Safe beside
workers and beside another pass. While a slot is emptied claims wait, for --hold at most.")]
    Run(run::Run),
}

impl Retention {
    pub(crate) async fn run(&self, global: &Global) -> Answer {
        match &self.command {
            Command::Plan => plan::run(global).await,
            Command::Explain(explain) => explain.run(global).await,
            Command::Run(run) => run.run(global).await,
        }
    }
}

/// Bytes as people say them.
fn size(bytes: f64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut left = bytes;
    let mut unit = 0;
    while left >= 1000.0 && unit + 1 < UNITS.len() {
        left /= 1000.0;
        unit += 1;
    }
    if unit == 0 || left >= 100.0 {
        format!("{left:.0} {}", UNITS[unit])
    } else {
        format!("{left:.1} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_are_short() {
        for (bytes, said) in [
            (0.0, "0 B"),
            (999.0, "999 B"),
            (1500.0, "1.5 kB"),
            (123_456.0, "123 kB"),
            (41e9, "41.0 GB"),
            (5e15, "5000 TB"),
        ] {
            assert_eq!(size(bytes), said);
        }
    }
}
