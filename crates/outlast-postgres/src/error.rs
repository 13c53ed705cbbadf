//! What can go wrong between us and PostgreSQL, as one enum for every crate of Outlast.
//!
//! A handler's failure is not here: that is data (`outlast_core::Failure`). What an operator may meet carries a code
//! with a page in `docs/errors/`.

mod classify;
#[cfg(feature = "diesel-async")]
mod hidden;
mod rights;
mod state;

use outlast_core::Classify;
use std::fmt;
use uuid::Uuid;

/// The error of another crate, kept as the source.
pub type Source = Box<dyn std::error::Error + Send + Sync>;

/// Why Outlast could not do what was asked.
///
/// Bad input is found before a statement is sent, so it leaves your transaction usable. [`Error::Database`] means that
/// a statement failed: PostgreSQL then refuses everything but a rollback.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The connection has no open transaction, so the intent would be a second, separate write.
    #[error(
        "no transaction is open on this connection: begin one, write your rows in it, then emit"
    )]
    NoTransaction,

    /// The same key was accepted before with other content. Nothing was written.
    #[error(
        "{kind} {key}: accepted before with other content, as {first}; give another intent another key"
    )]
    Conflict {
        /// What kind of intent: `event`, `job`.
        kind: &'static str,
        /// The key that both have.
        key: String,
        /// The id of the one that was accepted.
        first: Uuid,
    },

    /// The same key was accepted so long ago that its content cannot be compared any more. Nothing was written.
    #[error(
        "{kind} {key}: accepted before, longer ago than keys are compared; give a new intent a new key"
    )]
    Expired {
        /// What kind of intent: `event`, `job`.
        kind: &'static str,
        /// The key that both have.
        key: String,
    },

    /// The codec could not encode the payload, or not say what it is. Nothing was written.
    #[error("encode {name}: {why} (OUT-0010)")]
    Codec {
        /// The event type, or the name of the job.
        name: String,
        /// What the codec said.
        why: outlast_core::CodecError,
    },

    /// The payload is too large. Store the content elsewhere and emit a reference to it.
    #[error(
        "payload of {bytes} bytes is over the limit of {limit}: store the content elsewhere and emit a reference to it"
    )]
    TooLarge {
        /// How large it is.
        bytes: usize,
        /// How large it may be.
        limit: usize,
    },

    /// A route of this event's type could never send it: its broker takes no such message. Nothing was written.
    #[error("{0} (OUT-0023)")]
    Unsendable(String),

    /// A name, key, tenant or other argument that cannot be stored.
    #[error("{0}")]
    BadName(String),

    /// A payload that no reader could be trusted with: NUL, not UTF-8, too deep, not JSON though it says so.
    #[error("{0}")]
    BadPayload(String),

    /// An event id that is not a version 7 UUID of the last days.
    #[error("{0}")]
    BadId(String),

    /// The database has no Outlast schema, or an older one than this program needs.
    #[error(
        "the database has schema version {found} of Outlast, this program needs {need}: run `outlast migrate` (OUT-0002)"
    )]
    NotMigrated {
        /// The version it has; 0 is none.
        found: u32,
        /// The version it should have.
        need: u32,
    },

    /// The schema is newer than this program can work with.
    #[error(
        "the database has schema version {found} of Outlast, this program knows {known}: run a newer program (OUT-0003)"
    )]
    NewerSchema {
        /// The version it has.
        found: u32,
        /// The newest that this program knows.
        known: u32,
    },

    /// This login has no role of the schema that would let it do this. Nothing was written.
    #[error("{what}: this login may not do that; an administrator runs: {grant} (OUT-0020)")]
    NotAllowed {
        /// What the server refused.
        what: String,
        /// The statement that helps.
        grant: String,
    },

    /// The server is a standby; Outlast works on the primary only.
    #[error("this server is a standby: connect to the primary (OUT-0004)")]
    Standby,

    /// Somebody newer owns this work; nothing more may be written for it.
    #[error("the lease is lost: somebody newer owns this work (OUT-0005)")]
    LeaseLost,

    /// This event was completed before; your transaction must not commit its effects again.
    #[error(
        "already sealed: this event was completed before, so nothing of this transaction is kept (OUT-0005)"
    )]
    AlreadySealed,

    /// The event is not in this claim, or was given to a later try.
    #[error("not in this claim: a later try owns this event (OUT-0005)")]
    NotInClaim,

    /// The database may have been restored or copied; a person must confirm before work goes on.
    #[error("stopped: {0} (OUT-0006)")]
    Stopped(String),

    /// History was rewound or may have been: what leaves the database waits until a person has confirmed. Consumers whose
    /// effects are rows of this database go on.
    #[error("held: {0} (OUT-0021)")]
    Held(String),

    /// The transaction has the wrong isolation level, or wrote something before it may.
    #[error("wrong transaction: {0} (OUT-0015)")]
    Isolation(String),

    /// No such consumer is registered in this database.
    #[error("unknown consumer: {0} (OUT-0007)")]
    UnknownConsumer(String),

    /// A consumer of this name was here and is no more: it is retired, or has another name now. Registering it again would
    /// begin a second one.
    #[error("no consumer any more: {0} (OUT-0022)")]
    ConsumerGone(String),

    /// The configuration cannot work; every problem is listed.
    #[error("configuration: {0} (OUT-0008)")]
    Config(String),

    /// A worker that sends commands was not told what its database is called: a copy of it would send them once more. Nothing was
    /// started.
    #[error(
        "a worker with the command {command} does not start without a deployment: name the database with `outlast deployment set \
         NAME`, and say `deployment = \"NAME\"` in its settings (OUT-0024)"
    )]
    NoDeployment {
        /// One of its commands.
        command: String,
    },

    /// No connection to the server came about.
    #[error("cannot connect to {target}: {why} (OUT-0001)")]
    Connect {
        /// Where to, without the password.
        target: String,
        /// What stood in the way.
        why: Refused,
        /// What the driver said.
        source: Source,
    },

    /// No connection of the pool became free in time.
    #[error("no connection of the pool became free in time (OUT-0009)")]
    PoolExhausted,

    /// COMMIT was answered by ROLLBACK: a statement had failed before and its error was swallowed.
    #[error(
        "rolled back instead of committed: a statement of this transaction had failed before (OUT-0013)"
    )]
    RolledBack,

    /// The connection broke while COMMIT was on its way: nobody knows yet whether it committed.
    #[error("no answer to commit, so nobody knows yet whether it took place: {0} (OUT-0011)")]
    CommitUnknown(#[source] DatabaseError),

    /// A statement failed.
    #[error("{0}")]
    Database(#[source] DatabaseError),

    /// The database did not answer in time; its connection was given up.
    #[error("no answer after {after:?}: {what} (OUT-0012)")]
    Stalled {
        /// What was asked.
        what: String,
        /// How long it was waited for.
        after: std::time::Duration,
    },

    /// Something that cannot be; a bug of ours.
    #[error("unexpected: {0} (OUT-0014)")]
    Unexpected(String),
}

/// What stood in the way of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// Nothing listens there, or it cannot be reached.
    NoServer,
    /// User or password are wrong, or this user may not connect from here.
    Login,
    /// The server asks for a password and none was given.
    NoPassword,
    /// There is no database of that name.
    NoDatabase,
    /// The server is starting, stopping or recovering.
    NotReady,
    /// All connections are taken.
    Full,
    /// No server of those that were named takes writes, as `target_session_attrs` asks.
    ReadOnly,
    /// TLS could not be agreed on, or the certificate was refused.
    Tls,
    /// Something else; see the source.
    Other,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoServer => {
                "no server answers there; is PostgreSQL running, and are host and port right?"
            }
            Self::Login => "the server refuses this user or password",
            Self::NoPassword => "the server asks for a password and none was given",
            Self::NoDatabase => "there is no such database; create it first",
            Self::NotReady => "the server is starting, stopping or recovering",
            Self::Full => "all connections of the server are taken",
            Self::ReadOnly => "no server there takes writes; is one of them the primary?",
            Self::Tls => "TLS could not be agreed on, or the server's certificate was refused",
            Self::Other => "the server or the network refused",
        })
    }
}

/// An error of the database driver, and its SQLSTATE if the server sent one.
pub struct DatabaseError {
    state: Option<String>,
    source: Source,
}

impl DatabaseError {
    /// The error of a driver that has no adapter here.
    pub fn new(state: Option<String>, source: impl Into<Source>) -> Self {
        Self {
            state,
            source: source.into(),
        }
    }

    /// The five characters that say what happened, such as `40001`; none when the connection broke.
    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }
}

impl fmt::Debug for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({:?})", self.source)
    }
}

impl fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (
            self.source.downcast_ref::<tokio_postgres::Error>(),
            &self.state,
        ) {
            (Some(driver), _) => f.write_str(&driver.reason()),
            (None, Some(state)) => write!(f, "{} ({state})", self.source),
            (None, None) => self.source.fmt(f),
        }
    }
}

impl std::error::Error for DatabaseError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.source.as_ref())
    }
}

impl Error {
    /// The code of the page in `docs/errors/` that tells an operator what to do.
    pub fn code(&self) -> Option<&'static str> {
        match self {
            Self::Connect { .. } => Some("OUT-0001"),
            Self::NotMigrated { .. } => Some("OUT-0002"),
            Self::NewerSchema { .. } => Some("OUT-0003"),
            Self::Standby => Some("OUT-0004"),
            Self::LeaseLost | Self::AlreadySealed | Self::NotInClaim => Some("OUT-0005"),
            Self::Stopped(_) => Some("OUT-0006"),
            Self::Held(_) => Some("OUT-0021"),
            Self::UnknownConsumer(_) => Some("OUT-0007"),
            Self::ConsumerGone(_) => Some("OUT-0022"),
            Self::Config(_) => Some("OUT-0008"),
            Self::NoDeployment { .. } => Some("OUT-0024"),
            Self::PoolExhausted => Some("OUT-0009"),
            Self::NotAllowed { .. } => Some("OUT-0020"),
            Self::Codec { .. } => Some("OUT-0010"),
            Self::Unsendable(_) => Some("OUT-0023"),
            Self::CommitUnknown(_) => Some("OUT-0011"),
            Self::Stalled { .. } => Some("OUT-0012"),
            Self::RolledBack => Some("OUT-0013"),
            Self::Unexpected(_) => Some("OUT-0014"),
            Self::Isolation(_) => Some("OUT-0015"),
            _ => None,
        }
    }

    /// Whether the same call can succeed a little later without anybody changing anything.
    pub fn is_transient(&self) -> bool {
        use outlast_core::{Class, Classify};
        match self {
            // A person's word: nothing has to be started anew after it.
            Self::Held(_) => true,
            Self::Stalled { .. } | Self::PoolExhausted | Self::Standby | Self::CommitUnknown(_) => {
                true
            }
            Self::Codec { why, .. } => matches!(why, outlast_core::CodecError::Unavailable(_)),
            Self::Connect { why, .. } => {
                matches!(
                    why,
                    Refused::NoServer
                        | Refused::NotReady
                        | Refused::Full
                        | Refused::ReadOnly
                        | Refused::Other
                )
            }
            Self::Database(error) => error.state().is_none() || error.class() == Class::Retry,
            _ => false,
        }
    }

    /// The SQLSTATE behind it, if the server sent one.
    pub fn state(&self) -> Option<&str> {
        match self {
            Self::Database(error) | Self::CommitUnknown(error) => error.state(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_ends_with_a_code_that_has_a_page() {
        let met = [
            Error::Connect {
                target: "db".into(),
                why: Refused::Login,
                source: "x".into(),
            },
            Error::NotMigrated { found: 0, need: 1 },
            Error::NewerSchema { found: 2, known: 1 },
            Error::Standby,
            Error::LeaseLost,
            Error::AlreadySealed,
            Error::NotInClaim,
            Error::CommitUnknown(DatabaseError::new(None, "x")),
            Error::Stalled {
                what: "x".into(),
                after: std::time::Duration::ZERO,
            },
            Error::RolledBack,
            Error::Unexpected("x".into()),
            Error::Isolation("x".into()),
            Error::Stopped("x".into()),
            Error::Held("x".into()),
            Error::UnknownConsumer("x".into()),
            Error::Unsendable("x".into()),
            Error::ConsumerGone("x".into()),
            Error::Config("x".into()),
            Error::PoolExhausted,
            Error::NotAllowed {
                what: "x".into(),
                grant: "y".into(),
            },
            Error::Codec {
                name: "x".into(),
                why: outlast_core::CodecError::Erased,
            },
        ];
        for error in met {
            let code = error.code().expect("an operator may meet it");
            let pages = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors");
            let page = std::fs::read_to_string(format!("{pages}/{code}.md")).unwrap_or_default();
            assert!(
                page.starts_with(&format!("# {code}: ")),
                "{code} has a page"
            );
            let index = std::fs::read_to_string(format!("{pages}/README.md")).unwrap_or_default();
            assert!(
                index.contains(&format!("[{code}]({code}.md)")),
                "{code} is in the index"
            );
            assert!(
                error.to_string().ends_with(&format!(" ({code})")),
                "{error}"
            );
        }
    }

    #[test]
    fn results_stay_small() {
        assert!(
            size_of::<Error>() <= 72,
            "{} bytes in every Result",
            size_of::<Error>()
        );
    }
}
