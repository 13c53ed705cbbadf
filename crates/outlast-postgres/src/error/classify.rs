//! What class of failure our own errors are, when a handler passes them on with `?`.

use super::{DatabaseError, Error};
use outlast_core::{Class, Classify, sqlstate};

impl Classify for Error {
    fn class(&self) -> Class {
        match self {
            // The caller's mistake: it will be the same next time.
            Self::NoTransaction
            | Self::Conflict { .. }
            | Self::Expired { .. }
            | Self::TooLarge { .. }
            | Self::Unsendable(_)
            | Self::BadName(_)
            | Self::BadPayload(_)
            | Self::BadId(_)
            | Self::Isolation(_) => Class::Permanent,
            // A deploy, a failover, a restart or a newer owner is on its way; the transaction is not committed.
            Self::NotMigrated { .. }
            | Self::NewerSchema { .. }
            | Self::NotAllowed { .. }
            | Self::Standby
            | Self::LeaseLost
            | Self::AlreadySealed
            | Self::NotInClaim
            | Self::Stopped(_)
            | Self::Held(_)
            | Self::Connect { .. }
            | Self::Stalled { .. }
            | Self::PoolExhausted => Class::Retry,
            Self::Codec { .. } if self.is_transient() => Class::Retry,
            Self::Codec { .. } => Class::Permanent,
            Self::CommitUnknown(_) => Class::Unknown,
            Self::UnknownConsumer(_)
            | Self::ConsumerGone(_)
            | Self::NoDeployment { .. }
            | Self::Config(_)
            | Self::RolledBack
            | Self::Unexpected(_) => Class::Unclassified,
            Self::Database(error) => error.class(),
        }
    }

    fn charged(&self) -> bool {
        !self.state().is_some_and(sqlstate::is_conflict)
    }
}

impl Classify for DatabaseError {
    fn class(&self) -> Class {
        match self.state() {
            Some(state) => sqlstate::class(state),
            None => self.driver().map_or(Class::Unclassified, Classify::class),
        }
    }

    fn charged(&self) -> bool {
        !self.state().is_some_and(sqlstate::is_conflict)
    }
}

impl DatabaseError {
    /// The driver's own error, which tells a broken connection from a value that could not be read.
    fn driver(&self) -> Option<&dyn Classify> {
        outlast_core::foreign::as_classify(self.source.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_core::Failure;

    fn database(state: &str) -> Failure {
        Error::Database(DatabaseError::new(
            Some(state.into()),
            "could not serialize access",
        ))
        .into()
    }

    #[test]
    fn a_conflict_between_transactions_is_retried_without_charge() {
        let failure = database("40001");
        assert_eq!((failure.class, failure.is_charged()), (Class::Retry, false));
        assert_eq!(failure.reason, "could not serialize access (40001)");
        assert!(database("55P03").is_charged());
    }

    #[test]
    fn the_callers_mistake_is_permanent_and_a_failover_is_not() {
        assert_eq!(
            Error::TooLarge { bytes: 2, limit: 1 }.class(),
            Class::Permanent
        );
        assert_eq!(Error::Standby.class(), Class::Retry);
        assert_eq!(database("23505").class, Class::Unclassified);
    }
}
