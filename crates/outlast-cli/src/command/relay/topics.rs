//! `outlast relay topics`: what the routes and the consumers on brokers need there, what is missing of it, and making that.

use std::time::Duration;

use clap::Args;
use outlast_core::broker::{Ensure, Finding, Severity};
use serde::Serialize;
use tokio_postgres::types::Type;

use crate::{
    args::Global,
    database::Database,
    exit::Exit,
    needs::{self, Named, Need, What},
    out::{Out, Table, complain, text},
    problem::{Answer, Problem},
    settings::{Base, Effective, Set},
};

/// What one question to a broker may take.
const ASK: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
#[command(after_help = "\
A relay only looks; it makes nothing. This makes what is missing, with settings that keep what docs/brokers.md
promises, and changes nothing that is there: `outlast doctor` says what of it should be otherwise. A topic
with {type} in it stands for one of each type that its route names, that was seen in the log, or that --type says.
Where the rows of another system's outbox name the topic: those of the rows that wait, and of what is parked.
Without --create the exit code is 1 when something is missing or cannot be looked at.

Examples:
  outlast relay topics
  outlast relay topics bookings --create
  outlast relay topics --type booking.made --create --yes --json")]
pub(super) struct Topics {
    /// Only of these routes; without one also of outboxes, and of the consumers that read a broker
    #[arg(value_name = "ROUTE")]
    routes: Vec<String>,
    /// Also this type, for topics with {type} in them
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// Make what is missing; shows it first and asks
    #[arg(long)]
    create: bool,
    /// Do not ask
    #[arg(long, requires = "create")]
    yes: bool,
}

/// One need, and what came of it.
#[derive(Serialize)]
struct Line<'a> {
    of: &'a str,
    broker: &'a str,
    what: &'a What,
    state: State,
    /// Why it cannot be looked at or made; what of it should be otherwise.
    findings: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    There,
    /// There, and loses messages or cannot be used.
    Bad,
    Missing,
    Made,
    /// Nobody knows.
    Unverified,
}

impl State {
    fn shown(self) -> &'static str {
        match self {
            Self::There => "there",
            Self::Bad => "there, BAD",
            Self::Missing => "missing",
            Self::Made => "made",
            Self::Unverified => "unverified",
        }
    }
}

/// What is needed, and where it was looked for.
struct Looked {
    need: Need,
    /// What the broker is called; for a consumer, whose broker the database does not know, the one that has it.
    broker: String,
    state: State,
    findings: Vec<String>,
}

impl Topics {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        let out = global.out();
        let effective = Effective::load(global, &Set::default(), &Base::default())?;
        let brokers = effective.brokers().connect().await?;
        let database = if self.create {
            Database::to_write(global).await?
        } else {
            Database::to_read(global).await?
        };
        let mut all = self.look(&database, &brokers).await?;
        if all.is_empty() {
            out.say("no route and no consumer needs anything of a broker")?;
            return Ok(Exit::Done);
        }
        if self.create {
            self.make(&database, &brokers, &mut all, out).await?;
        } else if !out.json {
            table(out, &all)?;
        }
        if out.json {
            out.objects(all.iter().map(Looked::line))?;
        }
        let whole = |one: &Looked| matches!(one.state, State::There | State::Made);
        Ok(if all.iter().all(whole) {
            Exit::Done
        } else {
            Exit::Found
        })
    }

    async fn look(&self, database: &Database, brokers: &[Named]) -> Answer<Vec<Looked>> {
        let names = (!self.routes.is_empty()).then_some(&self.routes[..]);
        let routes = needs::routes(database, names).await?;
        let known = |name: &String| routes.iter().any(|route| route.name == *name);
        if let Some(unknown) = self.routes.iter().find(|name| !known(name)) {
            let what = format!("look at route {}", text::line(unknown));
            let next = "`outlast relay status` lists the routes that there are";
            return Err(Problem::new(Exit::Usage, what, "there is no such route").next(next));
        }
        let mut types = self.types.clone();
        if routes.iter().any(|route| route.topic.contains("{type}")) {
            types.extend(needs::types_seen(database).await?);
        }
        let mut all = Vec::new();
        for route in &routes {
            let named = brokers.iter().filter(|(name, _)| *name == route.broker);
            let named: Vec<&Named> = named.collect();
            for need in route.needs(&types) {
                all.push(look(need, &named, &route.broker).await);
            }
        }
        if names.is_none() {
            for outbox in needs::outboxes(database).await? {
                let named = brokers.iter().filter(|(name, _)| *name == outbox.broker);
                let named: Vec<&Named> = named.collect();
                if let Some(why) = &outbox.problem {
                    let name = text::line(&outbox.name);
                    complain(&format!(
                        "the rows of outbox {name} were not looked at: {}\n",
                        text::line(why)
                    ));
                }
                for need in outbox.needs() {
                    all.push(look(need, &named, &outbox.broker).await);
                }
            }
            for reader in needs::readers(database, None).await? {
                let named = reader.brokers(brokers);
                all.push(look(reader.need(), &named, &reader.kind).await);
            }
        }
        Ok(all)
    }

    async fn make(
        &self,
        database: &Database,
        brokers: &[Named],
        all: &mut [Looked],
        out: Out,
    ) -> Answer<()> {
        if !out.json {
            table(out, all)?;
        }
        let missing = all.iter().filter(|one| one.state == State::Missing).count();
        if missing == 0 {
            return out.say("nothing is missing");
        }
        if !self.yes && !out.asks(&format!("make {missing} of them?"))? {
            let next = "nothing was made; add --yes to make it without being asked";
            return Err(Problem::new(Exit::Usage, "make topics", "nobody said yes").next(next));
        }
        for one in all.iter_mut().filter(|one| one.state == State::Missing) {
            let named = brokers.iter().find(|(name, _)| *name == one.broker);
            let Some((name, broker)) = named else {
                continue;
            };
            match broker.ensure(&one.need.topology, Ensure::Create, ASK).await {
                Ok(findings) => {
                    (one.state, one.findings) = judged(&findings);
                    if one.state == State::There {
                        one.state = State::Made;
                    }
                    audit(database, name, &one.need).await?;
                }
                Err(why) => one.findings = vec![why.to_string()],
            }
            out.say(&format!(
                "{} {} on {}: {}{}",
                one.need.of,
                text::line(&one.need.what.to_string()),
                one.broker,
                one.state.shown(),
                one.findings
                    .iter()
                    .map(|why| format!("; {}", text::line(why)))
                    .collect::<String>()
            ))?;
        }
        Ok(())
    }
}

/// Looks for it at each of these brokers; what one of them has counts.
async fn look(need: Need, brokers: &[&Named], wanted: &str) -> Looked {
    let mut best: Option<(State, Vec<String>, &str)> = None;
    for (name, broker) in brokers {
        let (state, findings) = match broker.ensure(&need.topology, Ensure::Verify, ASK).await {
            Ok(findings) => judged(&findings),
            Err(why) => (State::Unverified, vec![why.to_string()]),
        };
        let is_better = match &best {
            None => true,
            Some((State::There | State::Bad, ..)) => false,
            Some((State::Missing, ..)) => matches!(state, State::There | State::Bad),
            Some(_) => true,
        };
        if is_better {
            best = Some((state, findings, name));
        }
    }
    let (state, findings, broker) = best.unwrap_or_else(|| {
        let why = format!("no broker {wanted} in this file");
        (State::Unverified, vec![why], wanted)
    });
    Looked {
        broker: broker.to_owned(),
        need,
        state,
        findings,
    }
}

/// What findings mean for whether it is there; and those that are bad.
fn judged(findings: &[Finding]) -> (State, Vec<String>) {
    let bad = findings
        .iter()
        .filter(|one| one.severity == Severity::Bad || one.missing);
    let said = bad.map(|one| format!("{}: {}", one.about, one.found));
    let is_bad = |one: &Finding| one.severity == Severity::Bad;
    let state = match () {
        () if findings.iter().any(|one| one.missing) => State::Missing,
        () if findings.iter().any(is_bad) => State::Bad,
        () => State::There,
    };
    (state, said.collect())
}

impl Looked {
    fn line(&self) -> Line<'_> {
        Line {
            of: &self.need.of,
            broker: &self.broker,
            what: &self.need.what,
            state: self.state,
            findings: self.findings.clone(),
        }
    }
}

fn table(out: Out, all: &[Looked]) -> Answer<()> {
    let mut table =
        Table::new(["FOR", "BROKER", "NEEDS", "STATE", ""]).whole(["FOR", "NEEDS", "STATE"]);
    for one in all {
        table.row([
            &one.need.of,
            &one.broker,
            &one.need.what.to_string(),
            one.state.shown(),
            &one.findings.join("; "),
        ]);
    }
    out.table(&table)
}

/// Written when it was made: the broker cannot be part of a transaction.
async fn audit(database: &Database, broker: &str, need: &Need) -> Answer<()> {
    let detail = serde_json::json!({ "for": need.of, "made": need.what });
    let given: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
        [(&broker, Type::TEXT), (&detail, Type::JSONB)];
    let sql = "select outlast._audited('broker.made', $1, $2)::text";
    database
        .rows("write the audit", sql, &given)
        .await
        .map(drop)
}
