//! From a driver's error to ours: one mapping of SQLSTATEs for every adapter.

use super::{DatabaseError, Error, Source, rights};
use crate::schema::Schema;
use outlast_core::sqlstate;

impl Error {
    /// What an SQLSTATE of our own functions means; `None` when it is not one of ours.
    ///
    /// An adapter for another driver calls this with the state and the message that the server sent.
    pub fn from_state(state: &str, message: &str) -> Option<Self> {
        let text = || message.to_owned();
        let why = |kind| message.strip_prefix(kind).unwrap_or(message).to_owned();
        let numbers = || numbers(message);
        Some(match state {
            "OL001" => Self::LeaseLost,
            "OL002" => Self::AlreadySealed,
            "OL003" => Self::NotInClaim,
            "OL004" => Self::Stopped(why("stopped: ")),
            "OL005" => Self::BadName(text()),
            "OL006" => {
                let (bytes, limit) = numbers();
                Self::TooLarge { bytes, limit }
            }
            "OL007" => Self::BadPayload(text()),
            "OL008" => Self::BadId(text()),
            "OL009" => Self::Standby,
            "OL010" => Self::Isolation(text()),
            "OL011" => Self::Config(text()),
            "OL012" => Self::UnknownConsumer(text()),
            "OL014" => Self::ConsumerGone(text()),
            "OL020" => Self::Held(why("held: ")),
            "OL021" => Self::Unsendable(text()),
            "OL013" => {
                let (found, need) = numbers();
                Self::NotMigrated {
                    found: u32::try_from(found).unwrap_or(0),
                    need: u32::try_from(need).unwrap_or(0),
                }
            }
            state if is_missing(state, message, Schema::DEFAULT) => {
                Self::NotMigrated { found: 0, need: 1 }
            }
            "42501" => return rights::of_message(message, Schema::DEFAULT),
            _ => return None,
        })
    }

    /// The error of a statement that failed: ours if the state is one of ours.
    pub fn from_parts(state: Option<String>, message: &str, source: impl Into<Source>) -> Self {
        let ours = state
            .as_deref()
            .and_then(|state| Self::from_state(state, message));
        ours.unwrap_or_else(|| Self::Database(DatabaseError::new(state, source)))
    }

    /// The same error where the statement was one of this schema: an adapter knows only the default one.
    pub fn in_schema(self, schema: Schema) -> Self {
        match self {
            Self::Database(error)
                if error
                    .state()
                    .is_some_and(|state| is_missing(state, &error.to_string(), schema)) =>
            {
                Self::NotMigrated { found: 0, need: 1 }
            }
            Self::Database(error) if error.state() == Some("42501") => {
                rights::of_message(&error.to_string(), schema).unwrap_or(Self::Database(error))
            }
            Self::NotAllowed { what, grant } => Self::NotAllowed {
                what,
                grant: schema.text(&grant).into_owned(),
            },
            other => other,
        }
    }

    /// The error of a COMMIT: definite when the server answered with an error, unknown when the session was lost.
    pub fn from_commit(self) -> Self {
        match self {
            Self::Database(error) if error.state().is_none_or(sqlstate::is_lost) => {
                Self::CommitUnknown(error)
            }
            Self::Database(error) if error.state() == Some("25P02") => Self::RolledBack,
            definite => definite,
        }
    }
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        let state = error.code().map(|state| state.code().to_owned());
        let message = error
            .as_db_error()
            .map(|sent| sent.message().to_owned())
            .unwrap_or_default();
        Self::from_parts(state, &message, error)
    }
}

impl From<deadpool_postgres::PoolError> for Error {
    fn from(error: deadpool_postgres::PoolError) -> Self {
        match error {
            deadpool_postgres::PoolError::Backend(error) => error.into(),
            deadpool_postgres::PoolError::Timeout(_) => Self::PoolExhausted,
            other => Self::Database(DatabaseError::new(None, other)),
        }
    }
}

#[cfg(any(feature = "sqlx-0_8", feature = "sqlx-0_9"))]
macro_rules! from_sqlx {
    ($sqlx:ident) => {
        impl From<::$sqlx::Error> for Error {
            fn from(error: ::$sqlx::Error) -> Self {
                if matches!(error, ::$sqlx::Error::PoolTimedOut) {
                    return Self::PoolExhausted;
                }
                let sent = error.as_database_error();
                let state = sent.and_then(|sent| sent.code()).map(Into::into);
                let message = sent.map_or_else(String::new, |sent| sent.message().into());
                Self::from_parts(state, &message, error)
            }
        }
    };
}

#[cfg(feature = "sqlx-0_8")]
from_sqlx!(sqlx_0_8);
#[cfg(feature = "sqlx-0_9")]
from_sqlx!(sqlx);

#[cfg(feature = "sea-orm")]
impl From<sea_orm::DbErr> for Error {
    fn from(error: sea_orm::DbErr) -> Self {
        use sea_orm::{ConnAcquireErr, DbErr};
        if matches!(error, DbErr::ConnectionAcquire(ConnAcquireErr::Timeout)) {
            return Self::PoolExhausted;
        }
        let sent = outlast_core::foreign::behind_sea_orm(&error)
            .and_then(|error| error.as_database_error());
        let state = sent.and_then(|sent| sent.code()).map(Into::into);
        let message = sent.map_or_else(String::new, |sent| sent.message().into());
        Self::from_parts(state, &message, error)
    }
}

#[cfg(feature = "diesel-async")]
impl From<diesel::result::Error> for Error {
    fn from(error: diesel::result::Error) -> Self {
        use diesel::result::Error;
        let message = match &error {
            Error::NotInTransaction => return Self::NoTransaction,
            Error::DatabaseError(_, sent) => sent.message().to_owned(),
            _ => String::new(),
        };
        let state = sqlstate::of_diesel(&error).or_else(|| super::hidden::state(&message));
        Self::from_parts(state.map(str::to_owned), &message, error)
    }
}

#[cfg(feature = "diesel-async")]
impl From<diesel_async::pooled_connection::deadpool::PoolError> for Error {
    fn from(error: diesel_async::pooled_connection::deadpool::PoolError) -> Self {
        use diesel_async::pooled_connection::{PoolError as Backend, deadpool::PoolError};
        match error {
            PoolError::Timeout(_) => Self::PoolExhausted,
            PoolError::Backend(Backend::QueryError(error)) => error.into(),
            other => Self::Database(DatabaseError::new(None, other)),
        }
    }
}

/// The schema or a function of it does not exist: `outlast migrate` never ran, or long ago.
fn is_missing(state: &str, message: &str, schema: Schema) -> bool {
    let name = schema.name();
    matches!(state, "3F000" | "42883" | "42P01")
        && (message.contains(&format!("\"{name}\"")) || message.contains(&format!("{name}.")))
}

/// The first two numbers of a message such as "payload of 300000 bytes is over the limit of 262144".
fn numbers(message: &str) -> (usize, usize) {
    // Names may hold digits (`emit order2: …`), so only words that are numbers count.
    let mut found = message
        .split([' ', ',', ';', ':'])
        .filter_map(|word| word.parse().ok());
    (found.next().unwrap_or(0), found.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_of_our_functions_has_its_error() {
        let text = |state| Error::from_state(state, "why").map(|error| format!("{error:?}"));
        let table = [
            ("OL001", "LeaseLost"),
            ("OL002", "AlreadySealed"),
            ("OL003", "NotInClaim"),
            ("OL004", "Stopped(\"why\")"),
            ("OL005", "BadName(\"why\")"),
            ("OL007", "BadPayload(\"why\")"),
            ("OL008", "BadId(\"why\")"),
            ("OL009", "Standby"),
            ("OL010", "Isolation(\"why\")"),
            ("OL011", "Config(\"why\")"),
            ("OL012", "UnknownConsumer(\"why\")"),
            ("OL014", "ConsumerGone(\"why\")"),
            ("OL020", "Held(\"why\")"),
            ("OL021", "Unsendable(\"why\")"),
        ];
        for (state, expected) in table {
            assert_eq!(text(state).as_deref(), Some(expected), "{state}");
        }
        assert_eq!(text("23505"), None);
    }

    #[test]
    fn numbers_are_read_from_the_message() {
        let message = "emit order2: payload of 300000 bytes is over the limit of 262144";
        let error = Error::from_state("OL006", message);
        assert!(
            matches!(
                error,
                Some(Error::TooLarge {
                    bytes: 300_000,
                    limit: 262_144
                })
            ),
            "{error:?}"
        );
        let error = Error::from_state("OL013", "schema version 3, needed 5");
        assert!(
            matches!(error, Some(Error::NotMigrated { found: 3, need: 5 })),
            "{error:?}"
        );
    }

    #[test]
    fn a_missing_schema_is_not_migrated_but_the_users_missing_table_is_theirs() {
        let missing = Error::from_state("3F000", "schema \"outlast\" does not exist");
        assert!(matches!(missing, Some(Error::NotMigrated { found: 0, .. })));
        assert!(Error::from_state("42P01", "relation \"booking\" does not exist").is_none());
    }

    #[test]
    fn only_a_lost_session_leaves_a_commit_unknown() {
        let commit = |state: Option<&str>| {
            Error::Database(DatabaseError::new(state.map(str::to_owned), "x")).from_commit()
        };
        assert!(matches!(commit(None), Error::CommitUnknown(_)));
        assert!(matches!(commit(Some("57P01")), Error::CommitUnknown(_)));
        assert!(matches!(commit(Some("25P02")), Error::RolledBack));
        assert!(matches!(commit(Some("40001")), Error::Database(_)));
        assert!(matches!(commit(Some("23503")), Error::Database(_)));
    }
}
