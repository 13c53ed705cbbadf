//! `[broker.NAME]`, `[cluster.route.NAME]`, `outlast run --only relay`, `outlast relay`: events to a real NATS server, by
//! processes that are killed. What NATS has is read from NATS.

use std::{collections::HashMap, fs, time::Duration};

use outlast_core::broker::{Broker, Ensure, Envelope, Subscription, Topology};
use outlast_nats::{Nats, NatsSettings};
use outlast_testkit::{
    broker::{NatsServer, conformance::Server, nats_server},
    process::Process,
    wait_for,
};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::{Folder, PATIENCE, Ran, command, database, execute, number, outlast, run};

/// What one question to the server may take.
pub(crate) const WITHIN: Duration = Duration::from_secs(10);

pub(crate) struct World {
    pub(crate) folder: Folder,
    pub(crate) url: String,
    pub(crate) sql: Client,
    pub(crate) server: NatsServer,
    _database: outlast_testkit::pg::Database,
}

impl World {
    /// A database with one ordered route to a stream of a NATS server. None where there is no server, which was said.
    async fn new() -> Option<Self> {
        let world = Self::bare("").await?;
        world.topic().await;
        Some(world)
    }

    /// The same without the stream, and with these settings of the broker.
    pub(crate) async fn bare(broker: &str) -> Option<Self> {
        if !nats_server::is_installed() {
            return None;
        }
        let server = NatsServer::start().await.expect("a server");
        let (database, sql) = database().await;
        let folder = Folder::new();
        fs::create_dir(folder.path()).expect("a new folder");
        let file = format!(
            "lease = \"1s\"\nheartbeat = \"200ms\"\n[broker.main]\nkind = \"nats\"\nurls = [\"{}\"]\n{broker}\n\
             [cluster.route.bookings]\nbroker = \"main\"\ntopic = \"bookings\"\ntypes = [\"booking.*\"]\nordered = true\n",
            server.url()
        );
        fs::write(folder.path().join("outlast.toml"), file).expect("a file in it");
        Some(Self {
            folder,
            url: database.url().to_owned(),
            sql,
            server,
            _database: database,
        })
    }

    pub(crate) async fn nats(&self) -> Nats {
        let mut settings = NatsSettings::default();
        settings.urls = vec![self.server.url()];
        Nats::connect(settings).await.expect("settings that can be")
    }

    pub(crate) async fn topic(&self) {
        let topic = Topology::topic("bookings", true);
        let made = self.nats().await;
        let made = made.ensure(&topic, Ensure::Create, WITHIN).await;
        made.expect("the server makes a stream");
    }

    pub(crate) async fn outlast(&self, args: &[&str]) -> Ran {
        let mut command = command(args);
        command
            .current_dir(self.folder.path())
            .args(["--database", &self.url]);
        run(command, b"").await
    }

    pub(crate) fn relay(&self) -> Process {
        let mut command = command(&["run", "--only", "relay", "--database", &self.url]);
        command.current_dir(self.folder.path());
        Process::spawn(&mut command).expect("a process")
    }

    /// Emits bookings of these numbers, each in a transaction of its own, with one of so many keys.
    pub(crate) async fn emit(&self, numbers: std::ops::Range<i64>, keys: i64) {
        for n in numbers {
            let key = n % keys;
            let sql = format!(
                "select outlast.emit(type => 'booking.made', payload => '{{\"n\":{n}}}', key => 'k{key}')"
            );
            execute(&self.sql, &sql).await;
        }
    }

    async fn published(&self, n: i64) {
        let sql = "select count(*) from outlast.processed where consumer = 'relay/bookings'";
        wait_for("the bookings to be published", PATIENCE, async || {
            (number(&self.sql, sql).await == n).then_some(())
        })
        .await;
    }

    /// Everything in the stream, in its order: id, key, number.
    pub(crate) async fn stream(&self, reader: &str) -> Vec<(Uuid, String, i64)> {
        let nats = self.nats().await;
        let subscription = Subscription::new(reader, "bookings");
        let topology = Topology::Subscription(subscription.clone());
        let made = nats.ensure(&topology, Ensure::Create, WITHIN).await;
        made.expect("the server makes a consumer");
        let mut reading = nats.subscribe(&subscription, WITHIN).await.expect("reads");
        let mut all = Vec::new();
        loop {
            let some = reading.next(500, Duration::from_secs(1)).await;
            let some = some.expect("the server answers");
            if some.is_empty() {
                return all;
            }
            for delivered in some {
                let envelope = Envelope::from_attributes(&delivered.attributes).expect("is ours");
                let body: serde_json::Value =
                    serde_json::from_slice(&delivered.body).expect("JSON");
                let n = body["n"].as_i64().expect("a number");
                all.push((envelope.id, envelope.key.expect("a key"), n));
                let _ = delivered.settle.ack(WITHIN).await;
            }
        }
    }
}

/// Every event is in the stream under its own id, and of each key the first copies come in order.
async fn exact(world: &World, stream: &[(Uuid, String, i64)], events: i64) {
    let rows = world.sql.query("select id from outlast.event", &[]).await;
    let mut committed: Vec<Uuid> = rows.expect("reads").iter().map(|row| row.get(0)).collect();
    let mut ids: Vec<Uuid> = stream.iter().map(|(id, ..)| *id).collect();
    for list in [&mut committed, &mut ids] {
        list.sort_unstable();
        list.dedup();
    }
    assert_eq!(i64::try_from(ids.len()), Ok(events));
    assert!(ids == committed, "the ids are those of the log");
    let mut last: HashMap<&str, i64> = HashMap::new();
    let mut seen = std::collections::HashSet::new();
    for (id, key, n) in stream {
        if seen.insert(id) {
            let before = last.insert(key, *n);
            assert!(before < Some(*n), "{key}: {n} after {before:?}");
        }
    }
}

#[tokio::test]
async fn three_relays_lose_nothing_and_keep_order_while_they_and_the_server_are_killed() {
    let Some(world) = World::new().await else {
        return;
    };
    world.outlast(&["apply", "--yes"]).await.fine();
    let mut relays = [world.relay(), world.relay(), world.relay()];
    let served = "select count(*) from outlast.consumer where name = 'relay/bookings'";
    wait_for("the route to be served", PATIENCE, async || {
        (number(&world.sql, served).await == 1).then_some(())
    })
    .await;
    let mut n = 0;
    for round in 0..9_usize {
        world.emit(n..n + 60, 13).await;
        n += 60;
        let one = &mut relays[round % 3];
        one.kill();
        one.exit(PATIENCE).await;
        *one = world.relay();
        if round == 4 {
            world.server.kill().await;
            world.emit(n..n + 20, 13).await;
            n += 20;
            world.server.start().await;
        }
    }
    world.published(560).await;
    exact(&world, &world.stream("check").await, 560).await;
    world
        .outlast(&["relay", "status"])
        .await
        .fine()
        .says("bookings");
    for relay in &relays {
        relay.terminate();
    }
    for relay in &relays {
        assert!(relay.exit(PATIENCE).await.success(), "it drains");
    }
}

#[tokio::test]
async fn a_wiped_server_is_refilled_by_one_rewind_that_shows_what_it_will_do() {
    let Some(world) = World::new().await else {
        return;
    };
    world
        .outlast(&["apply", "--yes"])
        .await
        .fine()
        .says("route.bookings");
    let relay = world.relay();
    let served = "select count(*) from outlast.consumer where name = 'relay/bookings'";
    wait_for("the route to be served", PATIENCE, async || {
        (number(&world.sql, served).await == 1).then_some(())
    })
    .await;
    world.emit(0..120, 7).await;
    world.published(120).await;
    world.server.kill().await;
    world.server.wipe();
    world.server.start().await;
    world.topic().await;
    assert_eq!(world.stream("before").await, []);

    let rewind = [
        "relay", "rewind", "bookings", "--to", "1h", "--reason", "wiped",
    ];
    world
        .outlast(&[&rewind[..], &["--dry-run"]].concat())
        .await
        .fine()
        .says("120 events would be published once more");
    world.outlast(&rewind).await.with(2).says("nobody said yes");
    let done = [&rewind[..], &["--yes", "--wait", "--json"]].concat();
    let done = world.outlast(&done).await.fine();
    assert_eq!(done.json()[0]["state"], "done");
    assert_eq!(done.json()[0]["sent"], 120);
    exact(&world, &world.stream("after").await, 120).await;
    relay.terminate();
    relay.exit(PATIENCE).await;
}

#[tokio::test]
async fn what_cannot_relay_says_what_to_do() {
    let (database, _sql) = database().await;
    outlast(database.url(), &["run", "--only", "relay"])
        .await
        .with(2)
        .says("[broker.NAME]");
    outlast(database.url(), &["relay", "status", "nowhere"])
        .await
        .says("there is no such route");
    outlast(
        database.url(),
        &[
            "relay", "rewind", "nowhere", "--to", "1h", "--reason", "x", "--yes",
        ],
    )
    .await
    .says("not registered");
    outlast(database.url(), &["relay", "status"])
        .await
        .fine()
        .says("there is no route");
}
