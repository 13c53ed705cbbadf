//! `outlast dead import`: what a broker has given up on, put before a person under its own id, and only then out of the broker.

use std::time::Duration;

use clap::{Args, Subcommand};
use outlast_core::broker::{Broker, BrokerError, Delivered, Envelope, Subscription};
use outlast_engine::{Imported, import_dead};
use serde::Serialize;
use tokio::time::Instant;

use crate::{
    args::Global,
    database::Database,
    exit::Exit,
    needs::{self, Named, Reader},
    out::text,
    problem::{Answer, Problem, Tried},
    settings::{Base, Effective, Set},
};

/// What one question to the broker may take.
const ASK: Duration = Duration::from_secs(10);
/// How many are looked at before somebody is asked.
const PREVIEW: usize = 200;
/// How many are imported between two lines that say how far it is.
const AT_ONCE: usize = 100;
/// A broker may need so long to hand out again what was looked at.
const AGAIN: Duration = Duration::from_secs(20);

#[derive(Debug, Args)]
pub(crate) struct Dead {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Import dead letters of a consumer: each becomes an incident; shows how many first
    Import(Import),
}

#[derive(Debug, Args)]
#[command(after_help = "\
A running worker does this by itself once a minute. Each event becomes an incident of its consumer under the id that it was
emitted with; what is completed, or parked, is only taken from the broker; what is no event is kept for `outlast
unreadable`. As often as you like: nothing is imported twice. When the cause is mended: outlast parked retry ID.

Examples:
  outlast dead import mailer --dry-run
  outlast dead import mailer --most 10000 --yes")]
struct Import {
    /// The consumer that they were meant for
    consumer: String,
    /// Which broker of the file, if several are of its kind
    #[arg(long, value_name = "NAME")]
    broker: Option<String>,
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    most: u32,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Show what there is, and do nothing
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
}

/// What was found, and what became of it.
#[derive(Default, Serialize)]
struct Done<'a> {
    consumer: &'a str,
    broker: &'a str,
    /// Seen in the preview.
    events: usize,
    no_events: usize,
    /// There may be more than were looked at.
    more: bool,
    imported: bool,
    incidents: usize,
    settled: usize,
    unreadable: usize,
    left: usize,
}

impl Dead {
    pub(crate) async fn run(&self, global: &Global) -> Answer {
        let Command::Import(import) = &self.command;
        import.run(global).await
    }
}

impl Import {
    async fn run(&self, global: &Global) -> Answer {
        let out = global.out();
        let effective = Effective::load(global, &Set::default(), &Base::default())?;
        let brokers = effective.brokers().connect().await?;
        let database = Database::to_write(global).await?;
        let what = format!("import dead letters of {}", text::line(&self.consumer));
        let reader = self.reader(&database, &what).await?;
        let (name, broker) = self.broker(&reader, &brokers, &what)?;
        let failed = |why: BrokerError| Problem::new(Exit::Failed, &what, why.to_string());
        let most = usize::try_from(self.most).unwrap_or(usize::MAX);
        let look = PREVIEW.min(most);
        let seen = peek(broker.as_ref(), &reader.subscription, look)
            .await
            .map_err(failed)?;
        let mut done = Done {
            consumer: &reader.name,
            broker: name,
            events: seen.events,
            no_events: seen.no_events,
            more: seen.events + seen.no_events >= look,
            ..Done::default()
        };
        let many = text::count(done.events + done.no_events, "dead letter", "dead letters");
        let many = format!("{}{many}", if done.more { "at least " } else { "" });
        out.say(&format!(
            "{many} on {name}, {} of them no events",
            done.no_events
        ))?;
        if self.dry_run || done.events + done.no_events == 0 {
            if out.json {
                out.object(&done)?;
            }
            return Ok(Exit::Done);
        }
        if !self.yes && !out.asks(&format!("import them, at most {most}?"))? {
            let next = "nothing was imported; add --yes to do it without being asked";
            return Err(Problem::new(Exit::Usage, what, "nobody said yes").next(next));
        }
        let target = effective.target()?.application_name("outlast-cli");
        let mut all = Imported::default();
        let count = |all: &Imported| all.incidents + all.settled + all.unreadable;
        let mut moved = Instant::now();
        while count(&all) < most {
            let some = import_dead(
                &target,
                effective.settings.deployment.as_deref(),
                &reader.name,
                broker.as_ref(),
                &reader.subscription,
                AT_ONCE.min(most - count(&all)),
            )
            .await
            .tried(&*what)?;
            all.left = some.left;
            if count(&some) > 0 {
                let left = all.left;
                all += some;
                all.left = left;
                moved = Instant::now();
                out.say(&format!("{} imported", count(&all)))?;
                continue;
            }
            // What was looked at comes again, but not at once.
            let seen = seen.events + seen.no_events;
            if count(&all) + all.left >= seen || moved.elapsed() > AGAIN {
                break;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        done.imported = true;
        (done.incidents, done.settled) = (all.incidents, all.settled);
        (done.unreadable, done.left) = (all.unreadable, all.left);
        if out.json {
            out.object(&done)?;
        }
        out.say(&format!(
            "{} put before a person, {} were settled already, {} unreadable, {} in work and left: outlast incidents ls --consumer {}",
            done.incidents,
            done.settled,
            done.unreadable,
            done.left,
            text::line(&reader.name)
        ))?;
        Ok(Exit::Done)
    }

    async fn reader(&self, database: &Database, what: &str) -> Answer<Reader> {
        let mut readers = needs::readers(database, Some(&self.consumer)).await?;
        readers.pop().ok_or_else(|| {
            let why = "no consumer of this name reads a broker";
            let next = "`outlast consumers ls` lists those that have registered";
            Problem::new(Exit::Usage, what, why).next(next)
        })
    }

    fn broker<'a>(&self, reader: &Reader, brokers: &'a [Named], what: &str) -> Answer<&'a Named> {
        let mut fit = reader.brokers(brokers);
        if let Some(wanted) = &self.broker {
            fit.retain(|(name, _)| name == wanted);
        }
        match fit[..] {
            [one] => Ok(one),
            [] => {
                let why = format!(
                    "no broker of kind {} is in the configuration file",
                    reader.kind
                );
                let next = "name it there: [broker.NAME] (docs/brokers.md)";
                Err(Problem::new(Exit::Usage, what, why).next(next))
            }
            _ => {
                let names: Vec<&str> = fit.iter().map(|(name, _)| name.as_str()).collect();
                let why = format!("it may be on any of {}", names.join(", "));
                Err(Problem::new(Exit::Usage, what, why).next("say which one: --broker NAME"))
            }
        }
    }
}

/// What was looked at.
struct Seen {
    events: usize,
    no_events: usize,
}

/// Looks at dead letters and lets go of them again.
async fn peek(
    broker: &dyn Broker,
    subscription: &Subscription,
    most: usize,
) -> Result<Seen, BrokerError> {
    let mut held: Vec<Delivered> = Vec::new();
    let failed = loop {
        let more = AT_ONCE.min(most - held.len());
        if more == 0 {
            break None;
        }
        match broker.dead(subscription, more, ASK).await {
            Ok(some) if some.is_empty() => break None,
            Ok(some) => held.extend(some),
            Err(why) => break Some(why),
        }
    };
    let is_event = |one: &&Delivered| Envelope::from_attributes(&one.attributes).is_ok();
    let events = held.iter().filter(is_event).count();
    let no_events = held.len() - events;
    for one in held {
        one.settle.release(Duration::ZERO).await;
    }
    // Nobody answers a release. What is said after it is answered only when it has arrived: else it goes with this process.
    let _ = broker.probe(ASK).await;
    match failed {
        Some(why) => Err(why),
        None => Ok(Seen { events, no_events }),
    }
}
