//! Tenants side by side: a backlog of one delays no other, and nothing is lost, doubled or out of order for it.

mod filters;
mod lanes;
mod life;
mod property;
mod tenants;

use std::collections::HashMap;

use tokio_postgres::Client;
use uuid::Uuid;

use crate::house::House;
use crate::sql::{self, Claim, Event};

/// Emits events of one tenant, in one transaction, with keys that come round.
pub(crate) async fn emit(client: &Client, tenant: &str, n: i32, keys: i32) {
    let sql = "select count(*) from outlast.emit_all('a', array(select '{}' from generate_series(1, $2::int)),
        array(select 'k' || i % $3::int from generate_series(1, $2::int) i), $1)";
    client
        .execute(sql, &[&tenant, &n, &keys])
        .await
        .expect("emits");
}

/// Workers that take turns, as the engine's do: in a turn each ends what it holds and claims a batch of a main lane and one
/// of a side lane.
pub(crate) struct Workers {
    consumer: i32,
    clients: Vec<Client>,
    held: Vec<Vec<Event>>,
}

impl Workers {
    pub(crate) async fn new(house: &House, consumer: i32, workers: usize) -> Self {
        let mut clients = Vec::new();
        for _ in 0..workers {
            clients.push(house.connect().await);
        }
        Self {
            consumer,
            held: vec![Vec::new(); workers],
            clients,
        }
    }

    /// One turn of each; whether there was anything to do.
    pub(crate) async fn turn(&mut self) -> bool {
        let mut busy = false;
        for (client, held) in self.clients.iter().zip(&mut self.held) {
            busy |= !held.is_empty();
            done(client, held).await;
            held.clear();
            for (lanes, sides) in [(1, 0), (0, 1)] {
                let claim = Claim {
                    lanes,
                    sides,
                    ..Claim::of(self.consumer)
                };
                let claimed = claim.run(client).await.expect("claims");
                busy |= claimed.moved || !claimed.events.is_empty();
                held.extend(claimed.events);
            }
        }
        busy
    }

    pub(crate) async fn until_idle(&mut self) {
        while self.turn().await {}
        assert!(!self.turn().await, "idle stays idle");
    }
}

/// Seals these events and ends their batches.
pub(crate) async fn done(client: &Client, events: &[Event]) {
    let mut by_token: HashMap<Uuid, Vec<Uuid>> = HashMap::new();
    for event in events {
        by_token.entry(event.token).or_default().push(event.id);
    }
    for (token, ids) in by_token {
        sql::seal(client, token, &ids).await.expect("seals");
        let left = sql::finish(client, &[token]).await.expect("finishes");
        assert_eq!(left, [0]);
    }
}

/// How many events of this tenant the consumer has completed.
pub(crate) async fn completed(client: &Client, consumer: i32, tenant: &str) -> i64 {
    sql::one(
        client,
        "select count(*) from outlast._processed_event p join outlast._event e on e.event_id = p.event_id
         where p.consumer = $1 and e.tenant = $2",
        &[&consumer, &tenant],
    )
    .await
}

/// The rows of side lanes, whatever they are.
pub(crate) async fn side_rows(client: &Client) -> i64 {
    sql::one(
        client,
        "select count(*) from outlast._batch where lane >= 1024 or sides is not null",
        &[],
    )
    .await
}
