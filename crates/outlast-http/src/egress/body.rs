//! The body of an answer, to its end or to where it must end.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::time::Instant;

/// How it ended.
pub(super) enum Ended {
    Whole,
    TooLarge,
    Cut,
    Late,
}

/// Reads it, at most this many bytes, and not longer than until then. What has come is answered in any case.
pub(super) async fn to_its_end(mut body: Incoming, limit: usize, until: Instant) -> (Bytes, Ended) {
    let mut kept = BytesMut::new();
    // One that says how long it is need not be read to be known as too long.
    if body.size_hint().lower() > limit as u64 {
        return (Bytes::new(), Ended::TooLarge);
    }
    let ended = loop {
        match tokio::time::timeout_at(until, body.frame()).await {
            Ok(None) => break Ended::Whole,
            Ok(Some(Ok(frame))) => {
                let data = frame.into_data().unwrap_or_default();
                if kept.len() + data.len() > limit {
                    break Ended::TooLarge;
                }
                kept.extend_from_slice(&data);
            }
            Ok(Some(Err(_))) => break Ended::Cut,
            Err(_) => break Ended::Late,
        }
    };
    (kept.freeze(), ended)
}
