//! Telling somebody of the end of an order: again and again, until it is taken.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;

use super::{Entry, What};
use crate::provider::http::request;

/// How long it is tried.
const TRIES: u32 = 300;
const PAUSE: Duration = Duration::from_millis(200);

/// Tells the end of this order; answers when it was taken, or given up. `address` is `http://HOST:PORT/PATH`.
pub(super) async fn tell(entry: Entry, address: String) {
    let Some((host, path)) = parse(&address) else {
        return;
    };
    let body = json!({
        "order": entry.number, "kind": entry.kind, "reference": entry.reference,
        "state": if entry.what == What::Refused { "refused" } else { "settled" }, "body": entry.body,
    })
    .to_string();
    for _ in 0..TRIES {
        let answer = request(host, "POST", path, &[], &body);
        let answer = tokio::time::timeout(Duration::from_secs(5), answer).await;
        if matches!(answer, Ok(Ok(answer)) if answer.status / 100 == 2) {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn parse(address: &str) -> Option<(SocketAddr, &str)> {
    let rest = address.strip_prefix("http://")?;
    let slash = rest.find('/').unwrap_or(rest.len());
    let path = if slash == rest.len() {
        "/"
    } else {
        &rest[slash..]
    };
    Some((rest[..slash].parse().ok()?, path))
}
