//! What a broker delivers: who owns it, when it may be acked, what becomes of it when its owner is gone.
//!
//! A test plays the broker: it delivers what it likes as often as it likes, and may ack only what it was told to.

mod claim;
mod faults;
mod foreign;
mod handed;
mod life;
mod lost;
mod order;
mod random;
mod seal;

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use outlast_core::broker::{Envelope, LogPlace};
use outlast_postgres::{
    connect::{self, Target},
    store::{Claimed, Judged, Place, Reads, Registration, Store, Verdict},
};
use serde_json::json;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::house::House;
use crate::sql;

pub(crate) const LEASE: Duration = Duration::from_secs(60);

/// A consumer `c` of the type `a` on a broker, and two processes that work for it.
pub(crate) struct Dock {
    pub(crate) house: House,
    pub(crate) client: Client,
    pub(crate) one: Store,
    pub(crate) two: Store,
    pub(crate) consumer: i32,
}

pub(crate) fn registration(name: &str, ordered: bool) -> Registration {
    Registration {
        name: name.into(),
        types: vec!["a".into()],
        tenants: Vec::new(),
        sources: Vec::new(),
        earliest: false,
        ordered,
        lanes: 16,
        owner: Some("team".into()),
        attempts: 8,
        local: false,
    }
}

pub(crate) fn reads(broker: &str) -> Reads {
    Reads {
        broker: broker.into(),
        topic: "orders".into(),
        subscription: "c".into(),
        ack_within: std::time::Duration::from_secs(60),
    }
}

pub(crate) fn store(house: &House) -> Store {
    let target = Target::parse(house.url()).expect("a URL");
    let pool = connect::pool(&target, 2).expect("a pool");
    Store::new(pool, Place::new(None))
}

impl Dock {
    pub(crate) async fn new() -> Self {
        Self::of(false).await
    }

    pub(crate) async fn ordered() -> Self {
        Self::of(true).await
    }

    async fn of(ordered: bool) -> Self {
        let house = House::new().await;
        let (client, one, two) = (house.connect().await, store(&house), store(&house));
        let registered = one
            .register_delivered(&registration("c", ordered), &reads("memory"))
            .await
            .expect("registers");
        Self {
            house,
            client,
            one,
            two,
            consumer: registered.id,
        }
    }

    /// The broker delivers these to a process.
    pub(crate) async fn deliver(&self, to: &Store, events: &[&Claimed]) -> Vec<Judged> {
        to.claim_delivered(self.consumer, events, LEASE)
            .await
            .expect("judges")
    }

    /// Delivers one event that is to run, and answers its token.
    pub(crate) async fn run(&self, to: &Store, event: &Claimed) -> Uuid {
        let judged = self.deliver(to, &[event]).await;
        match verdicts(&judged)[..] {
            [Verdict::Run(token)] => token,
            _ => panic!("it does not run: {judged:?}"),
        }
    }

    pub(crate) async fn seal(&self, token: Uuid, events: &[&Claimed]) {
        let ids: Vec<_> = events.iter().map(|event| event.event_id).collect();
        sql::seal(&self.client, token, &ids).await.expect("seals");
    }

    pub(crate) async fn finish(&self, token: Uuid) -> i32 {
        let ended = sql::finish(&self.client, &[token]).await.expect("ends");
        ended[0]
    }

    /// Whoever holds a lease is gone.
    pub(crate) async fn lapse(&self) {
        let lapse = "update outlast._lease set expires_at = outlast.clock() - interval '1 second'";
        sql::run(&self.client, lapse).await;
    }

    /// What is parked and due, tried again.
    pub(crate) async fn retry(&self) -> Vec<Claimed> {
        let due = "update outlast._parked set next_at = outlast.clock() where state = 'retry'";
        sql::run(&self.client, due).await;
        let types = ["a".to_owned()];
        let claim = self
            .one
            .claim_parked(self.consumer, 10, LEASE, &types, &[9])
            .await;
        claim.expect("claims what is parked").events
    }

    pub(crate) async fn count(&self, sql: &str) -> i64 {
        sql::one(&self.client, sql, &[]).await
    }

    pub(crate) async fn done(&self) -> i64 {
        self.count("select count(*) from outlast.processed").await
    }

    pub(crate) async fn must_be_sound(&self) {
        assert_eq!(sql::broken(&self.client).await, Vec::<String>::new());
    }

    /// Nothing is in work or parked any more.
    pub(crate) async fn must_be_empty(&self) {
        let left = "select (select count(*) from outlast._delivered) + (select count(*) from outlast._lease)
            + (select count(*) from outlast._parked) + (select count(*) from outlast._parked_key)";
        assert_eq!(self.count(left).await, 0);
        self.must_be_sound().await;
    }
}

/// An event as the relay sends it: its place in the log, its payload.
pub(crate) fn event(key: Option<&str>, log_id: i64) -> Claimed {
    let mut envelope = envelope(Uuid::now_v7());
    envelope.key = key.map(str::to_owned);
    envelope.log = Some(LogPlace {
        log: "shop".into(),
        id: log_id,
    });
    claimed(envelope)
}

pub(crate) fn envelope(id: Uuid) -> Envelope {
    Envelope::new(id, "a", SystemTime::now())
}

pub(crate) fn claimed(envelope: Envelope) -> Claimed {
    let payload = Bytes::from(format!("{{\"of\":\"{}\"}}", envelope.id));
    Claimed::delivered(envelope, &payload).expect("a good envelope")
}

pub(crate) fn verdicts(judged: &[Judged]) -> Vec<Verdict> {
    judged.iter().map(|one| one.verdict).collect()
}

/// The claim of one event in a transaction that somebody else has begun.
pub(crate) async fn claim_on(client: &Client, consumer: i32, event: &Claimed) -> String {
    let envelope = json!([{
        "id": event.event_id, "type": event.kind, "version": 1, "content_type": "application/json",
        "emitted_at": "2026-11-30T00:00:00Z", "key": event.key, "log_id": event.log_id,
    }]);
    let sql = "select verdict from outlast._claim_delivered($1, $2, $3, 60000)";
    sql::one(client, sql, &[&consumer, &envelope, &vec![&*event.payload]]).await
}
