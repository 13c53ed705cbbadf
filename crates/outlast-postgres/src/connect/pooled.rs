//! Is there a transaction pooler (PgBouncer, RDS Proxy, Supavisor) between us and the server?
//!
//! No pooler says so. But behind one two connections of ours share connections of the server, which they never do
//! without one; whoever has seen that knows what will not work: LISTEN, session settings, prepared statements.

use super::{Target, connect};
use crate::Error;
use std::collections::BTreeSet;

/// What is off behind one, for a log and for `check`.
pub const POOLED: &str = "a transaction pooler is between this process and PostgreSQL: LISTEN is off behind it, so each \
    process looks for news by itself, at least twice a second; connect to the server directly for faster wake-ups";

/// How often both are asked. An idle pooler shows itself the first time; a busy one changes servers all the time.
const ROUNDS: usize = 4;

/// Asks with two connections, which are closed afterwards.
///
/// # Errors
/// As [`connect`].
pub async fn is_pooled(target: &Target) -> Result<bool, Error> {
    let ((one, _driver), (other, _other)) = (connect(target).await?, connect(target).await?);
    let mut seen = [BTreeSet::new(), BTreeSet::new()];
    for _ in 0..ROUNDS {
        for (client, seen) in [&one, &other].into_iter().zip(&mut seen) {
            let rows = client.query_typed("select pg_backend_pid()", &[]).await?;
            seen.extend(rows.first().map(|row| row.get::<_, i32>(0)));
        }
    }
    let [one, other] = seen;
    Ok(one.len() > 1 || other.len() > 1 || !one.is_disjoint(&other))
}
