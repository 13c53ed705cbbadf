//! Random tenants, keys, pages, claimers that hold batches for a while, and give some back: every event once, and in order
//! per tenant and key.

use std::collections::{HashMap, HashSet};

use fastrand::Rng;
use tokio_postgres::Client;
use uuid::Uuid;

use super::side_rows;
use crate::house::House;
use crate::seeds;
use crate::sql::{self, Claim, Event};

/// What is under way, and what is known from outside.
struct Play {
    rng: Rng,
    client: Client,
    consumer: i32,
    ordered: bool,
    /// Of each tenant and key, in the order of their emits.
    said: HashMap<(String, String), Vec<Uuid>>,
    of: HashMap<Uuid, (String, String)>,
    sealed: HashSet<Uuid>,
    held: Vec<Vec<Event>>,
    most_sides: i64,
}

impl Play {
    async fn emit(&mut self) {
        let tenant = match self.rng.u8(..10) {
            0..5 => "heavy".to_owned(),
            5..7 => "second".to_owned(),
            _ => format!("t{}", self.rng.u8(..8)),
        };
        let n = if tenant.starts_with('t') {
            self.rng.i32(1..5)
        } else {
            self.rng.i32(1..300)
        };
        let keys: Vec<String> = (0..n).map(|_| format!("k{}", self.rng.u8(..9))).collect();
        let sql = "select id from outlast.emit_all('a', array(select '{}' from unnest($2::text[])), $2::text[], $1) order by ord";
        let rows = self
            .client
            .query(sql, &[&tenant, &keys])
            .await
            .expect("emits");
        for (row, key) in rows.iter().zip(keys) {
            let of = (tenant.clone(), key);
            self.of.insert(row.get(0), of.clone());
            self.said.entry(of).or_default().push(row.get(0));
        }
    }

    async fn claim(&mut self) -> bool {
        let claim = Claim {
            lanes: self.rng.i32(0..4),
            sides: self.rng.i32(1..4),
            ..Claim::of(self.consumer).n(self.rng.i32(1..150))
        };
        let claimed = claim.run(&self.client).await.expect("claims");
        let mut batches: HashMap<Uuid, Vec<Event>> = HashMap::new();
        for event in claimed.events.iter().cloned() {
            batches.entry(event.token).or_default().push(event);
        }
        for batch in batches.into_values() {
            self.given(&batch);
            self.held.push(batch);
        }
        claimed.moved || !claimed.events.is_empty()
    }

    /// What is handed out was emitted, is not done, and nothing before it of its tenant and key is open elsewhere.
    fn given(&self, batch: &[Event]) {
        let mine: HashSet<Uuid> = batch.iter().map(|event| event.id).collect();
        for event in batch {
            let of = &self.of[&event.id];
            assert!(!self.sealed.contains(&event.id), "{of:?}: done already");
            let twice = self.held.iter().flatten().any(|held| held.id == event.id);
            assert!(!twice, "{of:?}: two hold it");
            if self.ordered {
                let before = self.said[of].iter().take_while(|id| **id != event.id);
                for id in before {
                    assert!(
                        self.sealed.contains(id) || mine.contains(id),
                        "{of:?}: out of order"
                    );
                }
            }
        }
    }

    async fn end_one(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let batch = self.held.swap_remove(self.rng.usize(..self.held.len()));
        let token = batch[0].token;
        let mut ids: Vec<Uuid> = batch.iter().map(|event| event.id).collect();
        if self.rng.u8(..8) == 0 {
            // Half of it is done when its worker gives up; somebody else takes the rest.
            ids.truncate(ids.len() / 2);
            sql::seal(&self.client, token, &ids).await.expect("seals");
            self.sealed.extend(ids);
            sql::hand_back(&self.client, token, &[])
                .await
                .expect("gives back");
            let rest = sql::reclaim(&self.client, self.consumer, 1)
                .await
                .expect("reclaims");
            self.given(&rest);
            if !rest.is_empty() {
                self.held.push(rest);
            }
            return;
        }
        sql::seal(&self.client, token, &ids).await.expect("seals");
        let left = sql::finish(&self.client, &[token]).await.expect("finishes");
        assert_eq!(left, [0]);
        self.sealed.extend(ids);
    }

    async fn run(&mut self) {
        for step in 0..200 {
            match self.rng.u8(..10) {
                0 if step < 150 => self.emit().await,
                1..5 => drop(self.claim().await),
                _ => self.end_one().await,
            }
            self.most_sides = self.most_sides.max(side_rows(&self.client).await);
        }
        // A claim that may take no main lane may have nothing to do when another one has.
        let mut idle = 0;
        while idle < 20 {
            idle = if self.claim().await || !self.held.is_empty() {
                0
            } else {
                idle + 1
            };
            self.end_one().await;
        }
    }
}

#[tokio::test]
async fn whoever_is_taken_apart_every_event_is_done_once_and_in_order_of_its_tenant_and_key() {
    for seed in seeds::seeds(1) {
        for lanes in [None, Some(1), Some(5)] {
            let house = House::new().await;
            let client = house.connect().await;
            let consumer = sql::register(&client, "c", &["a"], "now", lanes).await;
            let mut play = Play {
                rng: Rng::with_seed(seed),
                client,
                consumer,
                ordered: lanes.is_some(),
                said: HashMap::new(),
                of: HashMap::new(),
                sealed: HashSet::new(),
                held: Vec::new(),
                most_sides: 0,
            };
            play.run().await;
            let what = format!("seed {seed}, {lanes:?}");
            println!(
                "{what}: {} events, {} rows of side lanes at most",
                play.of.len(),
                play.most_sides
            );
            assert!(play.most_sides > 0, "{what}: nobody was taken apart");
            assert_eq!(play.sealed.len(), play.of.len(), "{what}");
            assert_eq!(side_rows(&play.client).await, 0, "{what}");
            assert_eq!(
                sql::broken(&play.client).await,
                Vec::<String>::new(),
                "{what}"
            );
        }
    }
}
