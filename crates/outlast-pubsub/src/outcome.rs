//! What the codes of gRPC mean for us.

use outlast_core::broker::{BrokerError, Published, Why};
use tonic::Code;

use crate::rpc::Failed;

/// What came of the messages of a request that failed.
///
/// Not sent only where that is certain: nothing left us, or the server says that it took nothing. An error that a server
/// or a proxy may give after it has stored the messages is unknown.
pub(crate) fn published(failed: &Failed) -> Published {
    let reason = reason(failed);
    if !failed.tried {
        return Published::not_sent(Why::NotTried, reason);
    }
    match failed.code {
        Code::InvalidArgument => Published::not_sent(Why::Message, reason),
        Code::NotFound
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::AlreadyExists => Published::not_sent(why(failed), reason),
        _ if !failed.sent => Published::not_sent(why(failed), reason),
        _ => Published::unknown(reason),
    }
}

/// Why something other than publishing failed.
pub(crate) fn error(what: &str, failed: &Failed) -> BrokerError {
    BrokerError::new(why(failed), format!("{what}: {}", reason(failed)))
}

fn why(failed: &Failed) -> Why {
    if !failed.tried {
        return Why::NotTried;
    }
    match failed.code {
        Code::NotFound => Why::Missing,
        Code::PermissionDenied | Code::Unauthenticated => Why::Denied,
        Code::ResourceExhausted => Why::Throttled,
        Code::InvalidArgument
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::AlreadyExists => Why::Configuration,
        _ => Why::Unavailable,
    }
}

fn reason(failed: &Failed) -> String {
    format!("{} ({:?})", failed.reason, failed.code)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use outlast_core::broker::NotSent;

    use super::*;

    fn came_of(code: Code, sent: bool) -> Option<Why> {
        let (reason, details) = (String::new(), Bytes::new());
        let failed = Failed {
            sent,
            tried: true,
            code,
            reason,
            details,
        };
        match published(&failed) {
            Published::NotSent(NotSent { why, .. }) => Some(why),
            Published::Unknown(_) => None,
            Published::Confirmed => unreachable!("nothing that failed is confirmed"),
        }
    }

    #[test]
    fn only_what_certainly_was_not_taken_counts_as_not_sent() {
        use Code::*;
        for (code, why) in [
            (InvalidArgument, Why::Message),
            (NotFound, Why::Missing),
            (PermissionDenied, Why::Denied),
            (Unauthenticated, Why::Denied),
            (ResourceExhausted, Why::Throttled),
            (FailedPrecondition, Why::Configuration),
            (OutOfRange, Why::Configuration),
            (Unimplemented, Why::Configuration),
        ] {
            assert_eq!(came_of(code, true), Some(why), "{code:?}");
        }
        for code in [
            Cancelled,
            Unknown,
            DeadlineExceeded,
            Aborted,
            Internal,
            Unavailable,
            DataLoss,
            Ok,
        ] {
            assert_eq!(came_of(code, true), None, "{code:?}");
            assert_eq!(came_of(code, false), Some(Why::Unavailable), "{code:?}");
        }
        assert_eq!(
            published(&Failed::not_tried()),
            Published::not_sent(
                Why::NotTried,
                "the time was over before it was sent (DeadlineExceeded)"
            )
        );
    }
}
