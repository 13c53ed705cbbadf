//! A worker whose consumer reads a real server: the same handlers, once each, whatever is delivered twice.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use outlast_core::{
    Event, Failure,
    broker::{Broker, Envelope, LogPlace, Message, Published},
};
use outlast_engine::{Attempt, Consumer, Outlast, Settings};
use outlast_testkit::{
    broker::{NatsServer, nats_server::is_installed},
    pg, wait_for,
};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use uuid::Uuid;

use crate::{PATIENCE, nats, scene_in_order};

#[derive(Serialize, Deserialize)]
struct Booked {
    n: i64,
}

impl Event for Booked {
    const NAME: &'static str = "booked";
}

/// What was handled, in this order: key and number. Each eleventh fails at its first try.
type Done = Arc<Mutex<Vec<(String, i64)>>>;

async fn note(done: Done, event: Attempt<Booked>) -> Result<(), Failure> {
    if event.n % 11 == 5 && event.number() == 1 {
        return Err(Failure::retry("the eleventh"));
    }
    let key = event.key().unwrap_or_default().to_owned();
    done.lock().expect("a test").push((key, event.n));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_workers_of_one_subscription_do_each_event_once_and_each_key_in_its_order() {
    if !is_installed() {
        return;
    }
    let (server, database) = (
        NatsServer::start().await.expect("a server"),
        pg::outlast().await,
    );
    let broker = nats(&server).await;
    let subscription = scene_in_order(&broker, "bookings").await;
    let done = Done::default();
    let (stop, stopped) = watch::channel(false);
    let mut workers = Vec::new();
    for _ in 0..2 {
        let reader: Arc<dyn Broker> = Arc::new(nats(&server).await);
        let consumer = Consumer::new("bookings")
            .ordered()
            .from_broker(reader, subscription.clone())
            .on(note);
        let settings = Settings {
            lease: Duration::from_secs(2),
            ..Settings::default()
        };
        let worker = Outlast::new().worker(done.clone()).database(database.url());
        let worker = worker.settings(settings).consumer(consumer);
        let mut stopped = stopped.clone();
        workers.push(tokio::spawn(worker.run_until(async move {
            _ = stopped.wait_for(|stop| *stop).await;
        })));
    }
    let message = |n: i64, round| {
        let id = Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0000 + n as u128);
        let mut envelope = Envelope::new(id, "booked", SystemTime::now());
        envelope.key = Some(format!("k{}", n % 7));
        envelope.log = Some(LogPlace {
            log: "shop".into(),
            id: n + 1,
        });
        let body = format!("{{\"n\":{n}}}").into();
        let mut message = Message::new("bookings", Arc::new(envelope), body);
        message.ordering_key = Some(format!("k{}", n % 7));
        message.round = round;
        message
    };
    // Each of them once more, under another message id.
    for n in 0..200 {
        for round in [0, 1] {
            let said = broker.publish(&[message(n, round)], PATIENCE).await;
            assert!(said.iter().all(Published::is_confirmed), "{said:?}");
        }
    }
    let sql = database.connect().await;
    wait_for("200 completions and nothing in work", Duration::from_secs(60), async || {
        let count = "select (select count(*) from outlast.processed), (select count(*) from outlast._delivered) + (select count(*) from outlast._parked)";
        let row = sql.query_one(count, &[]).await.expect("counts");
        ((row.get::<_, i64>(0), row.get::<_, i64>(1)) == (200, 0)).then_some(())
    })
    .await;
    let _ = stop.send(true);
    for worker in workers {
        worker.await.expect("ends").expect("drains");
    }
    let mut by_key: HashMap<String, Vec<i64>> = HashMap::new();
    for (key, n) in done.lock().expect("a test").drain(..) {
        by_key.entry(key).or_default().push(n);
    }
    assert_eq!(by_key.values().map(Vec::len).sum::<usize>(), 200);
    for (key, numbers) in by_key {
        assert!(numbers.is_sorted(), "{key}: {numbers:?}");
    }
}
