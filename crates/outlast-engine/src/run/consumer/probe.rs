//! While a destination is down: one event at a time, to see whether it is back.

use outlast_postgres::Error;
use tokio::time::Instant;

use super::{Look, Purpose, Room, Work, met};
use crate::crash::Point;

impl<S: Clone + Send + Sync + 'static> Work<S> {
    /// One event, to see whether the destination is back: in turns one that is parked already and a new one. Of the parked
    /// ones alone all might be poison; of new ones alone each try would park one more.
    pub(super) async fn probe(&mut self) -> Result<Look, Error> {
        if !self.is_idle() {
            return Ok(Look::Down);
        }
        let (asked, pause) = (Instant::now(), self.consumer.destination.pause());
        let due = *self.probe_at.get_or_insert(asked + pause);
        if asked < due {
            return Ok(Look::Down);
        }
        self.probe_at = None;
        self.probes = self.probes.wrapping_add(1);
        let new_first = self.probes.is_multiple_of(2);
        let mut found = new_first && self.probe_new(asked).await?;
        found = found || self.probe_parked(asked).await?;
        found = found || !new_first && self.probe_new(asked).await?;
        if !found {
            // There is nothing to try; the same pause again.
            self.probe_at = Some(asked + pause);
        }
        Ok(Look::Down)
    }

    async fn probe_parked(&mut self, asked: Instant) -> Result<bool, Error> {
        let consumer = &self.consumer;
        let (types, versions) = consumer.registry.takes();
        let lease = consumer.leases.length();
        let claim = consumer
            .store
            .claim_parked(consumer.id, 1, lease, types, versions)
            .await?;
        met(Point::ParkedClaimed, &claim);
        let found = !claim.events.is_empty();
        self.retry(claim, asked, Purpose::Probe);
        Ok(found)
    }

    async fn probe_new(&mut self, asked: Instant) -> Result<bool, Error> {
        let (store, id) = (self.consumer.store.clone(), self.consumer.id);
        let lease = self.consumer.leases.length();
        let claim = store.reclaim(id, 1, lease).await?;
        met(Point::Reclaimed, &claim);
        if self.start(claim, asked, Purpose::Probe) {
            return Ok(true);
        }
        let claim = store.claim(id, self.consumer.bounds(1, Room::ONE)).await?;
        met(Point::Claimed, &claim);
        Ok(self.start(claim, asked, Purpose::Probe))
    }
}
