//! What was written down about a worker: checked as far as that goes without a database, shown, and handed to the loops.

use std::{collections::HashSet, sync::Arc, time::Duration};

use outlast_core::{Broker, Codec, job::Options, name};
use outlast_postgres::{Error, connect::Target, schema::Schema};

use crate::{
    consumer::Consumer,
    handler::{Around, Handler, Kind},
    settings::Settings,
};

/// What was written down about a worker, for the loops.
pub(crate) struct Plan<S> {
    pub(crate) state: S,
    pub(crate) consumers: Vec<Consumer<S>>,
    /// Jobs, commands and entities.
    pub(crate) jobs: Vec<PlannedJob<S>>,
    /// Commands that are to be polled, and not sent here.
    pub(super) polls_nobody: Vec<&'static str>,
    /// By the name that routes use.
    pub(crate) relays: Vec<(String, Arc<dyn Broker>)>,
    pub(crate) around: Option<Around>,
    pub(crate) settings: Settings,
    /// The handle's, or what is wrong with it; the settings may name another.
    schema: Result<Schema, Arc<str>>,
    pub(crate) database: Option<String>,
    pub(crate) codec: Option<Arc<dyn Codec>>,
    pub(crate) maintenance_only: bool,
}

/// The jobs, commands or entities of one name: what runs them, and how the code wants it.
pub(crate) struct PlannedJob<S> {
    pub(crate) handler: Handler<S>,
    pub(crate) options: Options,
}

fn consumer<S>(consumer: &Consumer<S>) -> DescribedConsumer<'_> {
    let one = |handler: &Handler<S>| (handler.name.to_string(), handler.version);
    DescribedConsumer {
        name: &consumer.name,
        types: consumer.handlers.iter().map(one).collect(),
    }
}

impl<S> PlannedJob<S> {
    fn described(&self, settings: &Settings) -> DescribedJob<'_> {
        let (kind, name) = Kind::of_queue(&self.handler.name);
        DescribedJob {
            name,
            queue: &self.handler.name,
            is_command: kind == Kind::Command,
            version: self.handler.version,
            options: settings.options_of(name, &self.options),
        }
    }
}

/// What was written down about a [`Worker`](crate::Worker).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Described<'a> {
    /// Its times and bounds.
    pub settings: &'a Settings,
    /// Its schema: the settings', else the handle's.
    pub schema: &'a str,
    /// Its database, if the code names one.
    pub database: Option<&'a str>,
    /// Its consumers, in the order in which they were added.
    pub consumers: Vec<DescribedConsumer<'a>>,
    /// Its jobs, commands and entities, in the order in which they were added.
    pub jobs: Vec<DescribedJob<'a>>,
}

/// One consumer of a [`Worker`](crate::Worker).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DescribedConsumer<'a> {
    /// Its name.
    pub name: &'a str,
    /// The event types that it has a handler for, with the newest version that the handler reads.
    pub types: Vec<(String, u16)>,
}

/// The jobs, the commands or the entities of one name of a [`Worker`](crate::Worker).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DescribedJob<'a> {
    /// Their name.
    pub name: &'a str,
    /// Under which name they are claimed: a job, a command and an entity may be called alike.
    pub queue: &'a str,
    /// They are commands.
    pub is_command: bool,
    /// The newest version that the handler reads.
    pub version: u16,
    /// How they are run, by what the code and the settings say together.
    pub options: Options,
}

impl<S> Plan<S> {
    pub(super) fn new(schema: Result<Schema, Arc<str>>, state: S) -> Self {
        Self {
            state,
            consumers: Vec::new(),
            jobs: Vec::new(),
            polls_nobody: Vec::new(),
            relays: Vec::new(),
            around: None,
            settings: Settings::default(),
            schema,
            database: None,
            codec: None,
            maintenance_only: false,
        }
    }

    /// For a command line that shows or changes it.
    pub(super) fn described(&self) -> Described<'_> {
        Described {
            settings: &self.settings,
            schema: self.schema_name(),
            database: self.database.as_deref(),
            consumers: self.consumers.iter().map(consumer).collect(),
            jobs: self
                .jobs
                .iter()
                .map(|job| job.described(&self.settings))
                .collect(),
        }
    }

    fn schema_name(&self) -> &str {
        match (&self.settings.schema, &self.schema) {
            (Some(name), _) => name,
            (None, Ok(schema)) => schema.name(),
            (None, Err(_)) => Schema::DEFAULT.name(),
        }
    }

    /// The schema to work in.
    fn schema(&self) -> Result<Schema, String> {
        match &self.settings.schema {
            // Judged with the other settings.
            Some(name) => Ok(Schema::named(name).unwrap_or_default()),
            None => self.schema.clone().map_err(|why| why.to_string()),
        }
    }

    /// The database to work for, if everything that can be checked without it is right.
    pub(crate) fn target(&self) -> Result<Target, Error> {
        let mut problems = self.settings.problems();
        problems.extend(self.problems());
        let schema = self.schema().unwrap_or_else(|why| {
            problems.push(why);
            Schema::DEFAULT
        });
        let target = match &self.database {
            Some(url) => Target::parse(url),
            None => Target::from_env(),
        };
        let target = target.map_err(|error| match error {
            Error::Config(why) => problems.push(why),
            other => problems.push(other.to_string()),
        });
        match target {
            Ok(target) if problems.is_empty() => Ok(target.schema(schema)),
            _ => Err(Error::Config(problems.join("; "))),
        }
    }

    /// Whoever sends commands must know that its database is the one it should be: a copy of production, a restored one, or one of
    /// another environment would send them once more. Tests need none: they are the only ones on a database of their own.
    pub(crate) fn is_named(&self) -> Result<(), Error> {
        let command = |job: &PlannedJob<S>| match Kind::of_queue(&job.handler.name) {
            (Kind::Command, name) => Some(name.to_owned()),
            _ => None,
        };
        match (
            &self.settings.deployment,
            self.jobs.iter().find_map(command),
        ) {
            (None, Some(command)) => Err(Error::NoDeployment { command }),
            _ => Ok(()),
        }
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut names = HashSet::new();
        for consumer in &self.consumers {
            let name = &consumer.name;
            if let Err(bad) = name::check(name) {
                problems.push(format!("consumer {bad}"));
            }
            if !names.insert(name) {
                problems.push(format!(
                    "consumer {name} is there twice: give it all its handlers in one place"
                ));
            }
            if consumer.handlers.is_empty() {
                problems.push(format!("consumer {name} has no handler"));
            }
            if let Some(source) = &consumer.source {
                let (subscription, within) = (&source.subscription, source.subscription.ack_within);
                if subscription.name.is_empty() || subscription.topic.is_empty() {
                    problems.push(format!(
                        "consumer {name}: its subscription has no name or no topic"
                    ));
                }
                if within < Duration::from_secs(1) {
                    problems.push(format!(
                        "consumer {name}: ack_within is {within:?}, under 1s: what runs would be delivered to others"
                    ));
                }
            }
            if consumer.concurrency == Some(0) {
                problems.push(format!("consumer {name}: concurrency is 0"));
            }
            for (prefix, whose) in [("relay/", "routes"), ("outbox/", "outboxes")] {
                if name.starts_with(prefix) {
                    problems.push(format!(
                        "consumer {name}: names that begin with {prefix} are those of {whose}"
                    ));
                }
            }
            if consumer.deadline.is_some_and(|deadline| deadline.is_zero()) {
                problems.push(format!("consumer {name}: deadline is 0"));
            }
            let mut types = HashSet::new();
            for handler in &consumer.handlers {
                if let Err(bad) = name::check_types(&handler.name) {
                    problems.push(format!("consumer {name}: event type {bad}"));
                }
                if !types.insert(&handler.name) {
                    problems.push(format!(
                        "consumer {name} has two handlers for {}",
                        handler.name
                    ));
                }
            }
        }
        let mut jobs = HashSet::new();
        for name in &self.polls_nobody {
            problems.push(format!(
                "command {name} is polled, and before that it is not sent here: say .command(..) first"
            ));
        }
        for job in &self.jobs {
            let (kind, name) = Kind::of_queue(&job.handler.name);
            let kind = kind.as_str();
            if let Err(bad) = name::check(name) {
                problems.push(format!("{kind} {bad}"));
            }
            if !jobs.insert(&job.handler.name) {
                problems.push(format!("{kind} {name} has two handlers"));
            }
            let told = job.options.problems();
            problems.extend(told.into_iter().map(|why| format!("{kind} {name}: {why}")));
        }
        let mut brokers = HashSet::new();
        for (name, _) in &self.relays {
            if let Err(bad) = name::check(name) {
                problems.push(format!("broker {bad}"));
            }
            if !brokers.insert(name) {
                problems.push(format!("broker {name} is there twice"));
            }
        }
        problems
    }
}
