//! `[cluster.outbox.NAME]` and `outlast run --only relay`: another system's outbox table to a real NATS server, by processes that are
//! killed.

use std::{collections::BTreeMap, fs, time::Duration};

use outlast_core::broker::{Broker, Ensure, Envelope, Subscription, Topology};
use outlast_nats::{Nats, NatsSettings};
use outlast_testkit::{
    broker::{NatsServer, conformance::Server, nats_server},
    process::Process,
    wait_for,
};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::{Folder, PATIENCE, Ran, command, database, execute, number, run};

/// What one question to the server may take.
const WITHIN: Duration = Duration::from_secs(10);

/// As Encore makes it.
const TABLE: &str =
    "create table public.outbox (id bigserial primary key, topic text not null, data jsonb not null, inserted_at timestamptz not null);
     create index outbox_topic_idx on public.outbox (topic, id)";

struct World {
    folder: Folder,
    url: String,
    sql: Client,
    _database: outlast_testkit::pg::Database,
}

impl World {
    async fn new(file: &str) -> Self {
        let (database, sql) = database().await;
        let folder = Folder::new();
        fs::create_dir(folder.path()).expect("a new folder");
        fs::write(folder.path().join("outlast.toml"), file).expect("a file in it");
        execute(&sql, TABLE).await;
        Self {
            folder,
            url: database.url().to_owned(),
            sql,
            _database: database,
        }
    }

    async fn outlast(&self, args: &[&str]) -> Ran {
        let mut command = command(args);
        command
            .current_dir(self.folder.path())
            .args(["--database", &self.url]);
        run(command, b"").await
    }

    fn relay(&self) -> Process {
        let mut command = command(&["run", "--only", "relay", "--database", &self.url]);
        command.current_dir(self.folder.path());
        Process::spawn(&mut command).expect("a process")
    }

    async fn write(&self, numbers: std::ops::Range<i64>) {
        for n in numbers {
            let sql = format!(
                "insert into public.outbox (topic, data, inserted_at) values ('bookings', '{{\"n\":{n}}}', now())"
            );
            execute(&self.sql, &sql).await;
        }
    }

    async fn until(&self, what: &str, sql: &str, is: i64) {
        wait_for(what, PATIENCE, async || {
            (number(&self.sql, sql).await == is).then_some(())
        })
        .await;
    }
}

async fn nats(server: &NatsServer) -> Nats {
    let mut settings = NatsSettings::default();
    settings.urls = vec![server.url()];
    Nats::connect(settings).await.expect("settings that can be")
}

/// Everything in the stream, in its order: the number and the id of each.
async fn stream(server: &NatsServer) -> Vec<(i64, Uuid)> {
    let nats = nats(server).await;
    let subscription = Subscription::new("check", "bookings");
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
            let body: serde_json::Value = serde_json::from_slice(&delivered.body).expect("JSON");
            all.push((body["n"].as_i64().expect("a number"), envelope.id));
            let _ = delivered.settle.ack(WITHIN).await;
        }
    }
}

#[tokio::test]
async fn two_relays_lose_nothing_and_keep_order_and_ids_while_one_and_the_server_are_killed() {
    if !nats_server::is_installed() {
        return;
    }
    let server = NatsServer::start().await.expect("a server");
    let topic = Topology::topic("bookings", true);
    let made = nats(&server).await;
    made.ensure(&topic, Ensure::Create, WITHIN)
        .await
        .expect("the server makes a stream");
    let world = World::new(&format!(
        "lease = \"1s\"\nheartbeat = \"200ms\"\n[broker.main]\nkind = \"nats\"\nurls = [\"{}\"]\n\
         [cluster.outbox.shop]\nbroker = \"main\"\nordered = true\npoll = \"20ms\"\n\
         columns = {{ id = \"id\", topic = \"topic\", payload = \"data\", time = \"inserted_at\", key = \"topic\" }}\n",
        server.url()
    ))
    .await;
    world
        .outlast(&["apply", "--yes"])
        .await
        .fine()
        .says("outbox.shop");
    let mut relays = [world.relay(), world.relay()];
    let served = "select count(*) from outlast.consumer where name = 'outbox/shop'";
    world.until("the outbox to be served", served, 1).await;
    let mut n = 0;
    for round in 0..6_usize {
        world.write(n..n + 50).await;
        n += 50;
        let one = &mut relays[round % 2];
        one.kill();
        one.exit(PATIENCE).await;
        *one = world.relay();
        if round == 3 {
            server.kill().await;
            world.write(n..n + 20).await;
            n += 20;
            server.start().await;
        }
    }
    let left = "select count(*) from public.outbox";
    world.until("the rows to be published", left, 0).await;
    world
        .until(
            "nothing to be parked",
            "select count(*) from outlast.parked",
            0,
        )
        .await;
    let mut ids: BTreeMap<i64, Vec<Uuid>> = BTreeMap::new();
    let mut last = -1;
    for (n, id) in stream(&server).await {
        let seen = ids.entry(n).or_default();
        if seen.is_empty() {
            assert!(n > last, "{n} after {last}: all are of one key");
            last = n;
        }
        seen.push(id);
    }
    assert!(ids.keys().copied().eq(0..n), "nothing is lost");
    for (n, ids) in &ids {
        assert!(ids.iter().all(|id| *id == ids[0]), "{n}: {ids:?}");
    }
    for relay in &relays {
        relay.terminate();
    }
    for relay in &relays {
        assert!(relay.exit(PATIENCE).await.success(), "it drains");
    }
}

#[tokio::test]
async fn an_outbox_is_applied_like_a_route_and_shown_with_its_backlog_and_age() {
    let world = World::new(
        "[cluster.outbox.shop]\nbroker = \"main\"\n\
         [cluster.outbox.gone]\nbroker = \"main\"\ntable = \"not_yet\"\n",
    )
    .await;
    world
        .outlast(&["apply", "--yes"])
        .await
        .with(0)
        .says("public.outbox to main {topic}")
        .says("warning: outbox.gone: there is no table public.not_yet");
    world.write(0..3).await;
    let old = "update public.outbox set inserted_at = now() - interval '90 s' where id = 1";
    execute(&world.sql, old).await;
    let status = world.outlast(&["relay", "status", "--json"]).await.fine();
    let shown = status.json();
    let of = |name: &str| {
        let one = shown.iter().find(|one| one["outbox"] == name);
        one.unwrap_or_else(|| panic!("{name} is not in {shown:?}"))
    };
    let shop = of("shop");
    assert_eq!(
        (&shop["waiting"], &shop["more"]),
        (&3.into(), &false.into())
    );
    assert!(shop["oldest_seconds"].as_i64() >= Some(90), "{shop}");
    assert_eq!(shop["state"], "not served yet");
    let why = of("gone")["problem"].as_str().map(str::to_owned);
    assert!(why.is_some_and(|why| why.contains("no table public.not_yet")));
    world
        .outlast(&["relay", "status", "outbox/shop"])
        .await
        .fine()
        .says("public.outbox");
    world
        .outlast(&["relay", "status", "outbox/nowhere"])
        .await
        .with(1)
        .says("there is no such outbox");

    // Nothing left to say about it: it goes, and what that means is told.
    fs::write(world.folder.path().join("outlast.toml"), "[cluster]\n").expect("writes");
    world
        .outlast(&["apply", "--yes"])
        .await
        .with(0)
        .says("retire outbox/shop");
}

#[tokio::test]
async fn what_an_outbox_cannot_be_is_refused_with_all_that_is_wrong() {
    let world = World::new(
        "[cluster.outbox.shop]\nbroker = \"a/b\"\nordered = true\npoll = \"0s\"\n\
         [cluster.outbox.typo]\nbroker = \"main\"\ntabel = \"x\"\n[cluster]\nroute = \"x\"\n",
    )
    .await;
    world
        .outlast(&["apply", "--yes"])
        .await
        .with(2)
        .says("broker `a/b`")
        .says("ordered, and columns.key names no column")
        .says("poll is 0s")
        .says("unknown field `tabel`")
        .says("tables [cluster.route.NAME] are expected");
    let none = "select count(*) from outlast.outbox";
    assert_eq!(number(&world.sql, none).await, 0);
}

/// The blocks of this language on the page, in their order.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let mut all = Vec::new();
    let mut rest = page;
    while let Some((_, after)) = rest.split_once(&fence) {
        let (block, after) = after.split_once("```").expect("a block ends");
        all.push(block.to_owned());
        rest = after;
    }
    all
}

#[tokio::test]
async fn the_page_can_be_followed_from_the_old_table_to_events() {
    if !nats_server::is_installed() {
        return;
    }
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/existing-outbox.md");
    let page = fs::read_to_string(page).expect("the page is there");
    let (tomls, sqls) = (blocks(&page, "toml"), blocks(&page, "sql"));
    assert_eq!(
        (tomls.len(), sqls.len()),
        (3, 2),
        "file, other tables, route; table, trigger"
    );
    let server = NatsServer::start().await.expect("a server");
    let topic = Topology::topic("bookings", true);
    let made = nats(&server).await;
    made.ensure(&topic, Ensure::Create, WITHIN)
        .await
        .expect("the server makes a stream");
    let file = tomls[0].replace("nats://127.0.0.1:4222", &server.url());
    let file = format!("heartbeat = \"200ms\"\n{file}\n{}", tomls[1]);
    let world = World::new(&file).await;
    execute(&world.sql, "drop table outbox").await;
    execute(&world.sql, &sqls[0]).await;
    world
        .outlast(&["apply", "--yes"])
        .await
        .with(0)
        .says("there is no table billing.outboxevent");
    let relay = world.relay();
    let left = "select count(*) from outbox";
    world.until("the two rows", left, 0).await;
    world
        .outlast(&["relay", "status"])
        .await
        .fine()
        .says("public.outbox");

    // The route, paused; then the trigger; then the last rows are out, and the route goes on.
    fs::write(
        world.folder.path().join("outlast.toml"),
        format!("{file}\n{}", tomls[2]),
    )
    .expect("writes");
    world.outlast(&["apply", "--yes"]).await.with(0);
    let served = "select count(*) from outlast.consumer where name = 'relay/bookings'";
    world.until("the route", served, 1).await;
    let pause = ["relay", "pause", "bookings", "--reason", "moving"];
    world.outlast(&pause).await.fine();
    execute(&world.sql, &sqls[1]).await;
    let insert = "insert into outbox (topic, data, inserted_at) values ('bookings', '{\"booking\": 3}', now())";
    execute(&world.sql, insert).await;
    assert_eq!(number(&world.sql, left).await, 0, "it is an event now");
    world.outlast(&["relay", "resume", "bookings"]).await.fine();
    let done = "select count(*) from outlast.processed where consumer = 'relay/bookings'";
    world.until("the event", done, 1).await;
    let nats = nats(&server).await;
    let subscription = Subscription::new("check", "bookings");
    let topology = Topology::Subscription(subscription.clone());
    nats.ensure(&topology, Ensure::Create, WITHIN)
        .await
        .expect("a consumer");
    let mut reading = nats.subscribe(&subscription, WITHIN).await.expect("reads");
    let mut bodies = Vec::new();
    while bodies.len() < 3 {
        let some = reading.next(3, WITHIN).await.expect("the server answers");
        assert!(!some.is_empty(), "only {bodies:?}");
        bodies.extend(
            some.iter()
                .map(|one| String::from_utf8_lossy(&one.body).into_owned()),
        );
    }
    assert_eq!(bodies, [1, 2, 3].map(|n| format!("{{\"booking\": {n}}}")));
    relay.terminate();
    assert!(relay.exit(PATIENCE).await.success(), "it drains");
}
