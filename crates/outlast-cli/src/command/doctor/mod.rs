//! `outlast doctor`: what is effective, asked of the servers themselves, and what mends what is not as it should be.

mod brokers;
mod canary;
mod database;
pub(super) mod found;
mod work;

use clap::Args;
use outlast_core::broker::Severity;

use crate::{
    args::Global,
    database::Database,
    exit::Exit,
    out::{Out, text},
    problem::Answer,
    settings::{Base, Effective, Set},
};
use found::Found;

#[derive(Debug, Args)]
#[command(after_help = "\
Nothing is changed, and nothing is believed because a file says so: the database, the brokers of the file
([broker.NAME]), their topics and subscriptions are asked what they have. What may not be read is unverified.
Exit code 1 when something is bad; a warning is none.

The canary is a message of its own, through a topic and a subscription of its own (outlast.canary and
outlast-canary, made if they are not there): no consumer of yours gets it.

Examples:
  outlast doctor
  outlast doctor --canary
  outlast doctor --json | jq -r 'select(.severity == \"bad\") | [.of, .about, .found] | @tsv'")]
pub(crate) struct Doctor {
    /// Send a message through each broker of the file, and time it
    #[arg(long)]
    canary: bool,
}

impl Doctor {
    pub(crate) async fn run(&self, global: &Global) -> Answer {
        let out = global.out();
        let effective = Effective::load(global, &Set::default(), &Base::default())?;
        let brokers = effective.brokers().connect().await?;
        let database = Database::open(global).await?;
        let mut all = Shown::new(out);
        let fits = database::look(&database, &effective, &mut all).await?;
        if fits {
            work::look(&database, &mut all).await?;
            brokers::look(&database, &brokers, &mut all).await?;
        }
        if self.canary {
            for (name, broker) in &brokers {
                let found = canary::send(name, broker.as_ref()).await;
                all.show(found)?;
            }
        }
        all.end()
    }
}

/// Findings, shown as they come.
pub(super) struct Shown {
    out: Out,
    of: String,
    count: [usize; 4],
}

impl Shown {
    pub(super) fn new(out: Out) -> Self {
        Self {
            out,
            of: String::new(),
            count: [0; 4],
        }
    }

    pub(super) fn show(&mut self, found: impl IntoIterator<Item = Found>) -> Answer<()> {
        for one in found {
            self.count[one.severity as usize] += 1;
            if self.out.json {
                self.out.object(&one)?;
                continue;
            }
            if self.of != one.of {
                let gap = if self.of.is_empty() { "" } else { "\n" };
                self.out.say(&format!("{gap}{}", text::line(&one.of)))?;
                self.of.clone_from(&one.of);
            }
            let (about, says) = (text::line(&one.about), text::line(&one.found));
            self.out
                .say(&format!("  {:11} {about}: {says}", one.word()))?;
            if !one.mend.is_empty() {
                self.out
                    .say(&format!("  {:11}   {}", "", text::line(&one.mend)))?;
            }
        }
        Ok(())
    }

    pub(super) fn end(self) -> Answer {
        let count = |severity: Severity| self.count[severity as usize];
        let bad = count(Severity::Bad);
        self.out.say(&format!(
            "\n{bad} bad, {}, {} unverified, {} as it should be",
            text::count(count(Severity::Warning), "warning", "warnings"),
            count(Severity::Unverified),
            count(Severity::Good),
        ))?;
        Ok(if bad == 0 { Exit::Done } else { Exit::Found })
    }
}

/// A question that failed is a finding, not the end: the rest can still be asked.
fn unread<T>(answer: Answer<T>, of: &str, about: &str) -> Result<T, Found> {
    answer.map_err(|problem| {
        Found::new(
            Severity::Unverified,
            of,
            about,
            problem.message(),
            "ask with a login that may read it",
        )
    })
}
