//! What an error code of PostgreSQL means for the next try.

use crate::Class;

/// The class of a statement that failed with this SQLSTATE.
///
/// Retry: conflicts, locks, timeouts, a server that stops, is full or became read-only. Everything else may be a fault
/// of the statement or of the data, which nobody here can tell apart.
pub fn class(state: &str) -> Class {
    let retry = is_conflict(state)
        || is_lost(state)
        || matches!(state, "55P03" | "57014" | "25P03" | "25P04" | "25006")
        || state.starts_with("53");
    if retry {
        Class::Retry
    } else {
        Class::Unclassified
    }
}

/// PostgreSQL asks to run the transaction again: serialization failure or deadlock. Retried without charge.
pub fn is_conflict(state: &str) -> bool {
    matches!(state, "40001" | "40P01")
}

/// The session is gone (`08…`, shutdown, crash, start-up). If this answers a COMMIT, nobody knows how it ended.
pub fn is_lost(state: &str) -> bool {
    state.starts_with("08")
        || matches!(
            state,
            "57P01" | "57P02" | "57P03" | "57P04" | "57P05" | "40003"
        )
}

/// The SQLSTATE behind an error of diesel, which tells eight of them and hides the others.
///
/// Of the hidden ones these are known by PostgreSQL's text, if the server speaks English. An error that is not known has
/// no state, which is always safe: its try is charged, and the end of a COMMIT is looked for.
#[cfg(feature = "diesel")]
pub fn of_diesel(error: &diesel::result::Error) -> Option<&'static str> {
    use diesel::result::{DatabaseErrorKind as Kind, Error};
    let Error::DatabaseError(kind, sent) = error else {
        return None;
    };
    Some(match (kind, sent.message()) {
        (Kind::UniqueViolation, _) => "23505",
        (Kind::ForeignKeyViolation, _) => "23503",
        (Kind::NotNullViolation, _) => "23502",
        (Kind::CheckViolation, _) => "23514",
        (Kind::RestrictViolation, _) => "23001",
        (Kind::ExclusionViolation, _) => "23P01",
        (Kind::SerializationFailure, _) => "40001",
        (Kind::ReadOnlyTransaction, _) => "25006",
        (Kind::ClosedConnection | Kind::UnableToSendCommand, _) => return None,
        (_, "deadlock detected") => "40P01",
        (_, text) if text.starts_with("current transaction is aborted") => "25P02",
        (_, text) if text.starts_with("schema ") && text.ends_with("does not exist") => "3F000",
        (_, text) if text.starts_with("function ") && text.ends_with("does not exist") => "42883",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_work_later_is_a_retry_and_what_may_be_our_fault_is_not() {
        for state in [
            "40001", "40P01", "08006", "08003", "57P01", "57P03", "53300", "53100", "55P03",
            "57014", "25006",
        ] {
            assert_eq!(class(state), Class::Retry, "{state}");
        }
        for state in [
            "23505", "23503", "42P01", "22P02", "42501", "P0001", "XX000",
        ] {
            assert_eq!(class(state), Class::Unclassified, "{state}");
        }
    }

    #[test]
    fn only_conflicts_between_transactions_are_free() {
        assert!(is_conflict("40001") && is_conflict("40P01") && !is_conflict("53300"));
    }

    #[test]
    fn an_error_in_the_transaction_is_not_a_lost_session() {
        assert!(is_lost("57P01") && is_lost("08006") && !is_lost("23503") && !is_lost("40001"));
    }
}
