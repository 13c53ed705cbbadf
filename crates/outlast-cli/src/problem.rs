//! Why a command could not do its work: what was tried, what stood in the way, what to do next, and the exit code.

use std::{borrow::Cow, error::Error as _, io};

use outlast_postgres::{
    Error, cluster,
    error::{DatabaseError, Refused},
};
use serde::Serialize;

use crate::{exit::Exit, out::text};

/// What a command answers.
pub(crate) type Answer<T = Exit> = Result<T, Problem>;

/// Something that a person has to mend.
#[derive(Debug, Serialize)]
pub(crate) struct Problem {
    #[serde(skip)]
    pub(crate) exit: Exit,
    /// The page in `docs/errors/`.
    code: Option<&'static str>,
    /// A verb and on what: `list events`.
    tried: String,
    /// What stood in the way.
    message: String,
    /// The parts of the message, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
    /// What to do now.
    next: Option<Cow<'static, str>>,
    /// Nobody reads our output any more: no reason to complain.
    #[serde(skip)]
    pub(crate) silent: bool,
}

impl Problem {
    pub(crate) fn new(exit: Exit, tried: impl Into<String>, message: impl Into<String>) -> Self {
        let (tried, message) = (tried.into(), message.into());
        Self {
            exit,
            code: None,
            tried,
            message,
            problems: Vec::new(),
            next: None,
            silent: false,
        }
    }

    /// Everything that is wrong with the settings.
    pub(crate) fn of_configuration(problems: Vec<String>) -> Self {
        let code = Error::Config(String::new()).code();
        let message = text::count(problems.len(), "problem", "problems");
        let known = "`outlast config default` lists the settings, `outlast config show` says what is in force";
        Self {
            code,
            problems,
            ..Self::new(Exit::Usage, "read the configuration", message).next(known)
        }
    }

    /// What stood in the way.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// What to do now, if that is known better here.
    pub(crate) fn next(mut self, next: impl Into<Cow<'static, str>>) -> Self {
        self.next = Some(next.into());
        self
    }

    /// The text for a terminal.
    pub(crate) fn text(&self) -> String {
        // Our SQL functions say themselves what they were asked for.
        let said = self.message.starts_with(&format!("{}: ", self.tried));
        let tried = if said {
            String::new()
        } else {
            format!("{}: ", self.tried)
        };
        let mut text = format!("error: {tried}{}\n", self.message);
        for problem in &self.problems {
            text.push_str(&format!("  - {problem}\n"));
        }
        if let Some(next) = &self.next {
            text.push_str(&format!("  next: {next}\n"));
        }
        if let Some(code) = self.code {
            text.push_str(&format!(
                "  page: {}/blob/main/docs/errors/{code}.md\n",
                env!("CARGO_PKG_REPOSITORY")
            ));
        }
        // The server repeats what it was given.
        text::lines(&text)
    }

    /// One line for a program.
    pub(crate) fn json(&self) -> String {
        let line = serde_json::json!({ "error": self, "exit": self.exit.code() });
        text::plain_json(&line.to_string()) + "\n"
    }
}

/// Adds what was tried to an error.
pub(crate) trait Tried<T> {
    /// `read(..).tried("read the events")?`
    fn tried(self, what: impl Into<String>) -> Result<T, Problem>;
}

impl<T, E: Into<Why>> Tried<T> for Result<T, E> {
    fn tried(self, what: impl Into<String>) -> Result<T, Problem> {
        self.map_err(|error| error.into().problem(what.into()))
    }
}

/// The errors that a command meets.
#[derive(Debug)]
pub(crate) enum Why {
    Outlast(Error),
    Cluster(cluster::Error),
    System(io::Error),
}

impl From<Error> for Why {
    fn from(error: Error) -> Self {
        Self::Outlast(error)
    }
}

impl From<tokio_postgres::Error> for Why {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Outlast(error.into())
    }
}

impl From<cluster::Error> for Why {
    fn from(error: cluster::Error) -> Self {
        Self::Cluster(error)
    }
}

impl From<io::Error> for Why {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl Why {
    fn problem(self, tried: String) -> Problem {
        match self {
            Self::Outlast(error) => {
                let (exit, next) = judge(&error);
                Problem {
                    code: error.code(),
                    next,
                    ..Problem::new(exit, tried, error.to_string())
                }
            }
            Self::Cluster(error) => {
                let exit = match error {
                    cluster::Error::InUse { .. } => Exit::InUse,
                    cluster::Error::NotOurs { .. } | cluster::Error::Override { .. } => Exit::Usage,
                    _ => Exit::Failed,
                };
                // Some of them leave the system's answer to the source.
                let source = error
                    .source()
                    .filter(|_| matches!(error, cluster::Error::Io { .. }));
                let message =
                    source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"));
                Problem::new(exit, tried, message)
            }
            Self::System(error) => {
                let silent = error.kind() == io::ErrorKind::BrokenPipe;
                let exit = if silent { Exit::Done } else { Exit::Failed };
                Problem {
                    silent,
                    ..Problem::new(exit, tried, error.to_string())
                }
            }
        }
    }
}

/// The exit code of an error, and what helps.
fn judge(error: &Error) -> (Exit, Option<Cow<'static, str>>) {
    let (exit, next) = match error {
        Error::Connect { why, .. } => return (Exit::Connect, connect(*why).map(Cow::from)),
        Error::NotMigrated { .. } => (
            Exit::Schema,
            "run `outlast migrate` on this database; `outlast migrate plan` shows what it would do",
        ),
        Error::NewerSchema { .. } => (
            Exit::Schema,
            "install the release that migrated it, or a later one",
        ),
        Error::NotAllowed { .. } => (
            Exit::Failed,
            "put your login for LOGIN; the page says which role is for what",
        ),
        Error::Standby => (
            Exit::Stopped,
            "connect to the primary; with several hosts in the URL, add target_session_attrs=read-write",
        ),
        Error::Stopped(_) => (
            Exit::Stopped,
            "look before anything is sent again: `outlast restore status` says what was found",
        ),
        Error::Held(_) => (
            Exit::Stopped,
            "`outlast restore status` says what was found, `outlast restore confirm` lets work go on",
        ),
        Error::Conflict { .. } => (
            Exit::Found,
            "nothing was written; what differs is another intent and needs another key",
        ),
        Error::Expired { .. } => (
            Exit::Found,
            "nothing was written; if it is a new intent, give it a new key",
        ),
        Error::UnknownConsumer(_) => (
            Exit::Usage,
            "`outlast consumers ls` lists those that have registered",
        ),
        Error::ConsumerGone(_) => (
            Exit::Usage,
            "`outlast consumers ls` lists names and states; the page says how to go on",
        ),
        Error::Codec { .. } => (
            Exit::Usage,
            "nothing was written; the page says what each reason means",
        ),
        Error::Stalled { .. } => (
            Exit::InUse,
            "see what the server waits for: select * from pg_stat_activity where wait_event_type = 'Lock'; then try again",
        ),
        Error::Unexpected(_) => (
            Exit::Failed,
            "run `outlast verify`, and report what it says together with this message",
        ),
        Error::Config(_) => (
            Exit::Usage,
            "`outlast config show` prints what is in force and where it comes from",
        ),
        Error::NoDeployment { .. } => (
            Exit::Usage,
            "`outlast deployment set NAME` names this database, `deployment = \"NAME\"` in outlast.toml or OUTLAST_DEPLOYMENT=NAME the worker",
        ),
        Error::Unsendable(_) => (
            Exit::Usage,
            "nothing was written; `outlast doctor` shows what each route takes",
        ),
        Error::BadName(_) | Error::BadId(_) | Error::BadPayload(_) | Error::TooLarge { .. } => {
            return (Exit::Usage, None);
        }
        Error::Database(error) | Error::CommitUnknown(error) => return database(error),
        _ => return (Exit::Failed, None),
    };
    (exit, Some(next.into()))
}

fn connect(why: Refused) -> Option<&'static str> {
    Some(match why {
        Refused::NoServer => {
            "start the server, or give its address with --database; `outlast dev` starts a private one"
        }
        Refused::Login => "check user and password: in the URL, in PGPASSWORD, or in ~/.pgpass",
        Refused::NoPassword => "give the password in the URL, in PGPASSWORD, or in ~/.pgpass",
        Refused::NoDatabase => {
            "create it, for instance with `createdb`, or correct its name in the URL"
        }
        Refused::NotReady => "wait until it accepts connections, and try again",
        Refused::Full => "end some of its sessions, raise max_connections, or go through a pooler",
        Refused::ReadOnly => "name the primary, or all servers of which one is it",
        Refused::Tls => "set sslmode and sslrootcert in the URL to what the server speaks",
        _ => return None,
    })
}

fn database(error: &DatabaseError) -> (Exit, Option<Cow<'static, str>>) {
    let (exit, next) = match error.state() {
        Some("55P03" | "57014" | "40P01") => (
            Exit::InUse,
            "see who holds the lock: select * from pg_locks join pg_stat_activity using (pid); then try again",
        ),
        Some("42501") => (
            Exit::Failed,
            "use a role that owns the schema outlast, or grant the rights that the message names",
        ),
        Some("25006") => (
            Exit::Stopped,
            "this session is read-only: connect to the primary, as a role that may write",
        ),
        Some("57P01" | "57P02" | "57P03") | None => (
            Exit::Connect,
            "the connection broke; what had been committed before stays. Try again",
        ),
        Some(_) => return (Exit::Failed, None),
    };
    (exit, Some(next.into()))
}
