//! Maintenance: one elected process of the database folds, empties and forgets, a bounded piece about once a minute.
//!
//! Never on the connections of claims: a pass opens one of its own and closes it. Another process takes over when the
//! lease of the elected one has lapsed; two at once would only do the same work twice.

use std::time::Duration;

use outlast_postgres::{
    Error,
    connect::{self, Target},
    retention::{self, Bounds, Step},
    store::Store,
};
use uuid::Uuid;

/// Between two passes.
const EVERY: Duration = Duration::from_secs(60);
/// When a pass has left work behind.
const SOON: Duration = Duration::from_secs(5);
/// How long the election holds.
const ELECTED: Duration = Duration::from_secs(150);

/// Does its share until the process ends.
pub(crate) async fn keep(store: Store, target: Target) {
    let mut elected: Option<Uuid> = None;
    let mut pause = EVERY;
    loop {
        // The jitter keeps a crowd of processes apart.
        tokio::time::sleep(pause.mul_f64(0.75 + fastrand::f64() / 2.0)).await;
        pause = EVERY;
        match store.elect_maintenance(elected, ELECTED).await {
            Ok(token) => elected = token,
            Err(error) => {
                tracing::debug!(%error, "no election for maintenance");
                continue;
            }
        }
        if elected.is_none() {
            continue;
        }
        match pass(&target).await {
            Ok(true) => pause = SOON,
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "a pass of maintenance failed; tried again"),
        }
    }
}

async fn pass(target: &Target) -> Result<bool, Error> {
    let (mut client, _driver) = connect::connect(target).await?;
    let schema = target.in_schema();
    retention::pass(&mut client, schema, Bounds::default(), |step| told(&step)).await
}

fn told(step: &Step) {
    match step {
        Step::Contradiction(problems) => {
            tracing::error!(problems = %problems.join("; "), "nothing is removed: the cluster settings contradict each other");
        }
        Step::Emptied { ring, slot, how } => {
            tracing::info!(ring, slot, how, "slot {slot} of the {ring} was emptied");
        }
        Step::Kept { ring, slot, why } => {
            tracing::info!(
                ring,
                slot,
                why,
                "slot {slot} of the {ring} could not be emptied yet"
            );
        }
        other => tracing::debug!(step = ?other, "maintenance"),
    }
}
