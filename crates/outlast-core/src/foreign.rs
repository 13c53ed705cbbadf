//! What class the errors of other crates have, where that is known.
//!
//! A database error says only that *its statement* had no effect, which in an event or job handler is a retry.
//! What is not known stays [`Class::Unclassified`]: guessing would turn an unknown send into a repeated one.

use crate::{Class, Classify, Unreadable};

impl Classify for Unreadable {
    fn class(&self) -> Class {
        Class::Permanent
    }
}

impl Classify for serde_json::Error {
    fn class(&self) -> Class {
        // The same bytes will not parse tomorrow; an error of the reader below says nothing about the bytes.
        if self.is_io() {
            Class::Unclassified
        } else {
            Class::Permanent
        }
    }
}

impl Classify for std::io::Error {
    fn class(&self) -> Class {
        Class::Unclassified
    }
}

#[cfg(feature = "tokio-postgres")]
impl Classify for tokio_postgres::Error {
    fn class(&self) -> Class {
        match self.code() {
            Some(state) => crate::sqlstate::class(state.code()),
            // Closed, or the socket broke, or no connection came about: the server rolls the transaction back.
            None if self.is_closed() || has_io_source(self) => Class::Retry,
            None => Class::Unclassified,
        }
    }

    fn charged(&self) -> bool {
        !self
            .code()
            .is_some_and(|state| crate::sqlstate::is_conflict(state.code()))
    }

    /// `Display` says only "db error". DETAIL stays out: it may quote the user's rows.
    fn reason(&self) -> String {
        match (self.as_db_error(), std::error::Error::source(self)) {
            (Some(sent), _) => format!("{} ({})", sent.message(), sent.code().code()),
            (None, Some(why)) => format!("{self}: {why}"),
            (None, None) => self.to_string(),
        }
    }
}

#[cfg(feature = "tokio-postgres")]
fn has_io_source(error: &tokio_postgres::Error) -> bool {
    let source = std::error::Error::source(error);
    source.is_some_and(|source| source.is::<std::io::Error>())
}

#[cfg(any(feature = "sqlx-0_8", feature = "sqlx-0_9"))]
macro_rules! classify_sqlx {
    ($sqlx:ident) => {
        impl Classify for ::$sqlx::Error {
            fn class(&self) -> Class {
                match self {
                    Self::Database(error) => error
                        .code()
                        .map_or(Class::Unclassified, |state| crate::sqlstate::class(&state)),
                    Self::Io(_)
                    | Self::PoolTimedOut
                    | Self::PoolClosed
                    | Self::WorkerCrashed
                    | Self::BeginFailed => Class::Retry,
                    _ => Class::Unclassified,
                }
            }

            fn charged(&self) -> bool {
                let state = self.as_database_error().and_then(|error| error.code());
                !state.is_some_and(|state| crate::sqlstate::is_conflict(&state))
            }
        }
    };
}

#[cfg(feature = "sqlx-0_8")]
classify_sqlx!(sqlx_0_8);
#[cfg(feature = "sqlx-0_9")]
classify_sqlx!(sqlx);

#[cfg(feature = "sea-orm")]
impl Classify for sea_orm::DbErr {
    fn class(&self) -> Class {
        match self {
            Self::ConnectionAcquire(_) => Class::Retry,
            _ => behind_sea_orm(self).map_or(Class::Unclassified, Classify::class),
        }
    }

    fn charged(&self) -> bool {
        behind_sea_orm(self).is_none_or(Classify::charged)
    }
}

/// The error of sqlx that sea-orm passes on.
#[cfg(feature = "sea-orm")]
pub fn behind_sea_orm(error: &sea_orm::DbErr) -> Option<&sea_orm::sqlx::Error> {
    use sea_orm::{DbErr, RuntimeErr};
    match error {
        DbErr::Conn(RuntimeErr::SqlxError(error))
        | DbErr::Exec(RuntimeErr::SqlxError(error))
        | DbErr::Query(RuntimeErr::SqlxError(error)) => Some(error),
        _ => None,
    }
}

#[cfg(feature = "diesel")]
impl Classify for diesel::result::Error {
    fn class(&self) -> Class {
        use diesel::result::{DatabaseErrorKind as Kind, Error};
        match self {
            // Closed, or the socket broke: the server rolls the transaction back.
            Error::DatabaseError(Kind::ClosedConnection | Kind::UnableToSendCommand, _)
            | Error::BrokenTransactionManager => Class::Retry,
            _ => {
                crate::sqlstate::of_diesel(self).map_or(Class::Unclassified, crate::sqlstate::class)
            }
        }
    }

    fn charged(&self) -> bool {
        !crate::sqlstate::of_diesel(self).is_some_and(crate::sqlstate::is_conflict)
    }
}

#[cfg(feature = "anyhow")]
impl Classify for anyhow::Error {
    fn class(&self) -> Class {
        known(self).map_or(Class::Unclassified, Classify::class)
    }

    fn charged(&self) -> bool {
        known(self).is_none_or(Classify::charged)
    }

    fn reason(&self) -> String {
        let mut reasons = Vec::new();
        for cause in self.chain() {
            match as_classify(cause) {
                Some(found) => {
                    reasons.push(found.reason());
                    break;
                }
                None => reasons.push(cause.to_string()),
            }
        }
        reasons.join(": ")
    }
}

/// The first error in the chain whose class is known: context added by the caller does not hide a serialization failure.
#[cfg(feature = "anyhow")]
fn known(error: &anyhow::Error) -> Option<&dyn Classify> {
    error.chain().find_map(as_classify)
}

/// An error of another crate whose class is known, if it is one.
pub fn as_classify<'a>(_cause: &'a (dyn std::error::Error + 'static)) -> Option<&'a dyn Classify> {
    macro_rules! known {
        ($($feature:literal => $error:ty,)*) => {$(
            #[cfg(feature = $feature)]
            if let Some(found) = _cause.downcast_ref::<$error>() {
                return Some(found);
            }
        )*};
    }
    known! {
        "tokio-postgres" => tokio_postgres::Error,
        "sqlx-0_9" => sqlx::Error,
        "sqlx-0_8" => sqlx_0_8::Error,
        "sea-orm" => sea_orm::DbErr,
        "diesel" => diesel::result::Error,
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_do_not_parse_are_permanent_but_a_broken_reader_is_not() {
        let syntax = serde_json::from_str::<u8>("{").unwrap_err();
        assert_eq!(syntax.class(), Class::Permanent);
        let reader = serde_json::from_reader::<_, u8>(Broken).unwrap_err();
        assert_eq!(reader.class(), Class::Unclassified);
    }

    struct Broken;
    impl std::io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("cut"))
        }
    }

    #[cfg(all(feature = "anyhow", feature = "sqlx-0_9"))]
    #[test]
    fn context_does_not_hide_what_is_known_about_an_error() {
        use anyhow::Context;
        let lost = Err::<(), _>(sqlx::Error::PoolTimedOut)
            .context("post the ledger row")
            .unwrap_err();
        let failure = crate::Failure::from(lost);
        assert_eq!(failure.class, Class::Retry);
        assert!(
            failure.reason.starts_with("post the ledger row: "),
            "{}",
            failure.reason
        );
        assert_eq!(anyhow::anyhow!("odd").class(), Class::Unclassified);
    }
}
