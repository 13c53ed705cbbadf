//! Random failures on ordered keys, against core's own rule of a key: the tables say what the model says, each key is
//! completed in the order of the log, and at the end nobody is behind anybody.

use std::collections::{BTreeMap, VecDeque};

use outlast_core::parked::{Key, State};
use uuid::Uuid;

use super::Yard;
use crate::seeds;
use crate::sql::{self, Claim, Event};

struct Play {
    yard: Yard,
    dice: fastrand::Rng,
    /// Who leads and who is behind, by log id.
    keys: BTreeMap<String, Key>,
    /// What is in work: batches of lanes, and tries of parked events.
    batches: Vec<VecDeque<Event>>,
    tries: Vec<Event>,
    /// All that was emitted: log id and key of each id.
    emitted: BTreeMap<Uuid, (i64, String)>,
    /// What was completed or skipped, in this order.
    ended: Vec<Uuid>,
    /// Skipped by a person while it was behind another: out of its turn by intent.
    skipped: Vec<Uuid>,
}

impl Play {
    fn key(&mut self, id: Uuid) -> (i64, &mut Key) {
        let (log_id, key) = self.emitted[&id].clone();
        (log_id, self.keys.entry(key).or_default())
    }

    async fn emit(&mut self) {
        let key = ["i", "j", "k"][self.dice.usize(0..3)];
        let id = sql::emit(&self.yard.client, "a", Some(key)).await;
        let log_id = "select log_id from outlast.event where id = $1";
        let log_id: i64 = sql::one(&self.yard.client, log_id, &[&id]).await;
        self.emitted.insert(id, (log_id, key.to_owned()));
    }

    async fn claim(&mut self) {
        let known: Vec<Uuid> = self.parked_ids().await;
        let lanes = self.dice.i32(1..=3);
        let claim = Claim {
            lanes,
            ..Claim::of(self.yard.consumer)
        };
        let events = claim.next(&self.yard.client).await.expect("claims");
        for id in self.parked_ids().await {
            if !known.contains(&id) {
                let (log_id, key) = self.key(id);
                assert_eq!(key.park(log_id), State::Behind, "a claim parks only behind");
            }
        }
        for event in events {
            let (_, key) = self.key(event.id);
            assert_eq!(key.leader, None, "nothing of a parked key is handed out");
            let same = |batch: &&mut VecDeque<Event>| batch[0].token == event.token;
            match self.batches.iter_mut().find(same) {
                Some(batch) => batch.push_back(event),
                None => self.batches.push(VecDeque::from([event])),
            }
        }
    }

    async fn parked_ids(&self) -> Vec<Uuid> {
        let rows = self
            .yard
            .client
            .query("select id from outlast.parked order by log_id", &[])
            .await;
        rows.expect("looks").iter().map(|row| row.get(0)).collect()
    }

    /// The next event of a batch: done, or failed with all that is left of its key.
    async fn work(&mut self) {
        if self.batches.is_empty() {
            return;
        }
        let nth = self.dice.usize(0..self.batches.len());
        let event = self.batches[nth].pop_front().expect("no batch is empty");
        match self.dice.u8(0..10) {
            0..7 => {
                self.yard.complete(&event).await;
                self.ended.push(event.id);
            }
            class => {
                let class = if class == 7 { "permanent" } else { "retry" };
                self.yard.fail(&event, class).await;
                let (log_id, key) = self.key(event.id);
                assert_ne!(key.park(log_id), State::Behind);
                let rest = std::mem::take(&mut self.batches[nth]);
                for later in rest {
                    if later.key == event.key {
                        let (log_id, key) = self.key(later.id);
                        assert_eq!(key.park(log_id), State::Behind);
                    } else {
                        self.batches[nth].push_back(later);
                    }
                }
            }
        }
        if self.batches[nth].is_empty() {
            self.batches.swap_remove(nth);
            assert_eq!(self.yard.finish(&event).await, 0);
        }
    }

    async fn retry(&mut self) {
        let events = self.yard.due().await;
        for event in &events {
            let (log_id, key) = self.key(event.id);
            assert_eq!(key.leader, Some(log_id), "only who leads runs");
        }
        self.tries.extend(events);
    }

    /// A try of a parked event: done, failed, lost, given back.
    async fn try_one(&mut self) {
        if self.tries.is_empty() {
            return;
        }
        let nth = self.dice.usize(0..self.tries.len());
        let event = self.tries.swap_remove(nth);
        match self.dice.u8(0..10) {
            0..5 => {
                self.yard.done(&event).await;
                self.let_go(event.id);
            }
            5..8 => {
                self.yard.fail(&event, "retry").await;
                self.yard.finish(&event).await;
            }
            8 => {
                let lapse = "update outlast._lease set expires_at = outlast.clock() - interval '1 s' where token = $1";
                let lapsed = self.yard.client.execute(lapse, &[&event.token]).await;
                lapsed.expect("lapses");
            }
            _ => sql::hand_back(&self.yard.client, event.token, &[])
                .await
                .expect("gives back"),
        }
    }

    fn let_go(&mut self, id: Uuid) {
        self.ended.push(id);
        let (log_id, key) = self.key(id);
        key.release(log_id);
    }

    /// A person skips something, or tries again what is quarantined.
    async fn decide(&mut self) {
        let parked = self.parked_ids().await;
        if parked.is_empty() {
            return;
        }
        let id = parked[self.dice.usize(0..parked.len())];
        if self.dice.bool() {
            let skip = "select outcome from outlast.skip('c', $1, 'x')";
            let outcome: String = sql::one(&self.yard.client, skip, &[&id]).await;
            if outcome == "skipped" {
                let (log_id, key) = self.key(id);
                if key.leader != Some(log_id) {
                    self.skipped.push(id);
                }
                self.let_go(id);
            }
        } else {
            let retry = "select outcome from outlast.retry('c', $1)";
            let _: String = sql::one(&self.yard.client, retry, &[&id]).await;
        }
    }

    /// The tables hold what the model holds.
    async fn compare(&self) {
        let sql = "select k.key, e.log_id, array(select p.log_id from outlast.parked p
              where p.key = k.key and p.state = 'behind' order by 1)
            from outlast.parked_key k join outlast.event e on e.id = k.leader order by 1";
        let rows = self.yard.client.query(sql, &[]).await.expect("looks");
        let tables: BTreeMap<String, Key> = rows
            .iter()
            .map(|row| {
                let key = Key {
                    leader: Some(row.get(1)),
                    behind: row.get::<_, Vec<i64>>(2).into_iter().collect(),
                };
                (row.get(0), key)
            })
            .collect();
        let mut model = self.keys.clone();
        model.retain(|_, key| key.leader.is_some());
        assert_eq!(tables, model);
        self.yard.must_be_sound().await;
    }
}

#[tokio::test]
async fn random_failures_keep_the_order_of_every_key_and_leave_nobody_behind() {
    for seed in seeds::seeds(1) {
        println!("seed {seed}");
        let yard = Yard::new(3).await;
        sql::run(&yard.client, "update outlast._consumer set attempts = 3").await;
        let mut play = Play {
            yard,
            dice: fastrand::Rng::with_seed(seed),
            keys: BTreeMap::new(),
            batches: Vec::new(),
            tries: Vec::new(),
            emitted: BTreeMap::new(),
            ended: Vec::new(),
            skipped: Vec::new(),
        };
        for step in 0..200 {
            match play.dice.u8(0..20) {
                0..5 => play.emit().await,
                5..8 => play.claim().await,
                8..14 => play.work().await,
                14..16 => play.retry().await,
                16..19 => play.try_one().await,
                _ => play.decide().await,
            }
            if step % 20 == 0 {
                play.compare().await;
            }
        }
        // Everything heals: whatever a person has to look at is given another chance until all is done.
        while play.ended.len() < play.emitted.len() {
            play.claim().await;
            while !play.batches.is_empty() {
                play.work().await;
            }
            for id in play.parked_ids().await {
                let retry = "select outcome from outlast.retry('c', $1)";
                let _: String = sql::one(&play.yard.client, retry, &[&id]).await;
            }
            play.yard.lapse().await;
            play.tries.clear();
            let swept = sql::reclaim(&play.yard.client, play.yard.consumer, 10).await;
            assert!(swept.expect("sweeps").is_empty(), "no batch is in work");
            play.retry().await;
            for event in std::mem::take(&mut play.tries) {
                play.yard.done(&event).await;
                play.let_go(event.id);
            }
        }
        play.compare().await;
        assert!(play.keys.values().all(|key| *key == Key::default()));
        assert_eq!(play.yard.parked().await, Vec::<String>::new());

        let mut last: BTreeMap<&str, i64> = BTreeMap::new();
        for id in play.ended.iter().filter(|id| !play.skipped.contains(id)) {
            let (log_id, key) = &play.emitted[id];
            let before = last.insert(key, *log_id);
            assert!(
                before < Some(*log_id),
                "seed {seed}: {key} {before:?} {log_id}"
            );
        }
        assert_eq!(play.ended.len(), play.emitted.len(), "each once");
    }
}
