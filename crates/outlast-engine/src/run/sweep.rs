//! The sweep: what waits for the consumers of this process, whether the bell has rung for it or not.
//!
//! One statement for all of them: their times are the same, the first who comes asks, the others read what he was told.

use std::{collections::HashMap, time::Duration};

use outlast_postgres::{
    Error,
    store::{Due, Store},
};
use tokio::{sync::Mutex, time::Instant};

/// Without any news, everything is looked at this often at least: a bell that never rings loses nothing.
const EVERY: Duration = Duration::from_secs(5);

/// The sweep of one process.
pub(crate) struct Sweep {
    store: Store,
    consumers: Vec<i32>,
    began: Instant,
    every: Duration,
    told: Mutex<Option<(Instant, HashMap<i32, Due>)>>,
}

impl Sweep {
    /// `lease`: its lapse is noticed within a third of it.
    pub(crate) fn new(store: Store, consumers: Vec<i32>, lease: Duration) -> Self {
        Self {
            store,
            consumers,
            began: Instant::now(),
            every: EVERY.min(lease / 3),
            told: Mutex::new(None),
        }
    }

    /// The next sweep after a time.
    pub(crate) fn after(&self, time: Instant) -> Instant {
        let since = time.saturating_duration_since(self.began);
        let nth = since.as_nanos() / self.every.as_nanos().max(1) + 1;
        self.began
            + self
                .every
                .saturating_mul(u32::try_from(nth).unwrap_or(u32::MAX))
    }

    /// What the sweep of this time has found for a consumer.
    pub(crate) async fn of(&self, time: Instant, consumer: i32) -> Result<Due, Error> {
        let mut told = self.told.lock().await;
        if let Some((asked, due)) = told.as_ref()
            && *asked >= time
        {
            return Ok(due.get(&consumer).copied().unwrap_or(Due::ALL));
        }
        let asked = Instant::now();
        let due = self.store.due(&self.consumers).await?;
        let ours = due.get(&consumer).copied().unwrap_or(Due::ALL);
        *told = Some((asked, due));
        Ok(ours)
    }
}
