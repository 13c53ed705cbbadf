//! `outlast doctor`: what the servers themselves have, told with its severity and what mends it. A run that must fail, and the
//! same one after what it said was done.

use outlast_core::broker::{Broker, Ensure, Subscription, Topology};
use outlast_pubsub::{Options, PubSub};
use outlast_testkit::broker::{conformance::Server, emulator};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

use crate::{
    Folder, Ran, command, database, execute, outlast,
    relay::{WITHIN, World},
    run,
};

/// The one finding about this, or a panic that shows all.
#[track_caller]
pub(crate) fn about<'a>(found: &'a [Value], of: &str, about: &str) -> &'a Value {
    let is = |one: &&Value| {
        let text = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
        text("of").contains(of) && text("about").contains(about)
    };
    found
        .iter()
        .find(is)
        .unwrap_or_else(|| panic!("nothing of {of} about {about}: {found:#?}"))
}

#[track_caller]
fn is(found: &[Value], (of, what): (&str, &str), severity: &str, says: &str) {
    let one = about(found, of, what);
    assert_eq!(one["severity"], severity, "{one:#}");
    let found = one["found"].as_str().unwrap_or_default();
    assert!(found.contains(says), "{says}: {one:#}");
    let mended = severity == "good" || one["mend"].as_str().is_some_and(|mend| !mend.is_empty());
    assert!(mended, "{one:#}");
}

impl World {
    async fn doctor(&self, args: &[&str]) -> Ran {
        self.outlast(&[&["doctor", "--json"], args].concat()).await
    }

    /// Asks JetStream by hand, as somebody with its command line does.
    pub(crate) async fn jetstream(&self, what: &str, body: &str) -> Value {
        let address = self.server.url().replace("nats://", "");
        let stream = TcpStream::connect(&address)
            .await
            .expect("the server listens");
        let mut stream = BufReader::new(stream);
        let said = format!(
            "CONNECT {{\"verbose\":false}}\r\nSUB me 1\r\nPUB {what} me {}\r\n{body}\r\n",
            body.len()
        );
        stream
            .get_mut()
            .write_all(said.as_bytes())
            .await
            .expect("it listens");
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await.expect("it answers");
            if line.starts_with("MSG ") {
                let bytes = line.trim().rsplit(' ').next().and_then(|n| n.parse().ok());
                let mut answer = vec![0; bytes.expect("a length")];
                stream.read_exact(&mut answer).await.expect("the answer");
                return serde_json::from_slice(&answer).expect("JSON");
            }
            assert!(!line.is_empty(), "the server has hung up");
        }
    }
}

#[tokio::test]
async fn what_is_red_is_told_with_what_mends_it_and_is_green_when_that_was_done() {
    let Some(world) = World::bare("").await else {
        return;
    };
    let bare = world.doctor(&[]).await.with(1);
    is(&bare.json(), ("database", "deployment"), "bad", "none");
    is(&bare.json(), ("broker main", "nats"), "good", "answers");
    world
        .outlast(&["deployment", "set", "production"])
        .await
        .fine();
    world.outlast(&["apply", "--yes"]).await.fine();

    let missing = world.doctor(&[]).await.with(1);
    is(
        &missing.json(),
        ("database", "deployment"),
        "good",
        "production",
    );
    is(
        &missing.json(),
        ("route bookings", "state"),
        "warning",
        "never served",
    );
    is(
        &missing.json(),
        ("route bookings", "topic bookings"),
        "bad",
        "no stream takes it",
    );
    let found = missing.json();
    let mend = &about(&found, "route", "topic bookings")["mend"];
    assert!(
        mend.as_str()
            .is_some_and(|mend| mend.contains("outlast relay topics --create"))
    );

    // Somebody makes it without a thought.
    let made = r#"{"name":"theirs","subjects":["bookings"],"retention":"limits","storage":"file","discard":"old","max_bytes":1000000}"#;
    let answer = world.jetstream("$JS.API.STREAM.CREATE.theirs", made).await;
    assert!(answer["error"].is_null(), "{answer}");
    let red = world.doctor(&[]).await.with(1);
    let discard = red.json();
    let discard = discard.iter().find(|one| one["found"] == "discard: old");
    let discard = discard.expect("it is told");
    assert_eq!(
        (&discard["severity"], &discard["about"]),
        (&"bad".into(), &"stream theirs".into())
    );
    let mend = discard["mend"].as_str().unwrap_or_default();
    assert!(
        mend.contains("nats stream edit theirs --discard new"),
        "{mend}"
    );
    let people = world.outlast(&["doctor"]).await.with(1);
    assert!(
        people
            .out
            .contains("BAD         stream theirs: discard: old"),
        "{people:#?}"
    );
    assert!(people.out.contains("\n1 bad, "), "{people:#?}");

    let mended = made.replace("\"old\"", "\"new\"");
    world
        .jetstream("$JS.API.STREAM.UPDATE.theirs", &mended)
        .await;
    let green = world.doctor(&[]).await.fine();
    is(
        &green.json(),
        ("route bookings", "sync_interval"),
        "unverified",
        "no client is told",
    );

    world.server.kill().await;
    let away = world.doctor(&[]).await.with(1);
    is(
        &away.json(),
        ("broker main", "nats"),
        "bad",
        "does not answer",
    );
    is(
        &away.json(),
        ("route bookings", "topic bookings"),
        "unverified",
        "does not answer",
    );
}

/// An hour passes for all that waits.
const AN_HOUR_LATER: &str = "update outlast._job set accepted_at = accepted_at - interval '1 hour';
    update outlast._entity_mark set marked_at = marked_at - interval '1 hour'";

#[tokio::test]
async fn what_is_due_and_taken_by_no_worker_is_told_with_what_mends_it() {
    let (database, sql) = database().await;
    let doctor = async || outlast(database.url(), &["doctor", "--json"]).await.json();
    let all = "jobs, commands and entities";
    is(
        &doctor().await,
        ("work", all),
        "good",
        "nothing that is due",
    );
    let accept = "select outlast.enqueue('greet', '{}'), outlast.command('charge', '{}', 'k');
        select outlast.changed('crm', 'a'), outlast.changed('crm', 'b')";
    execute(&sql, accept).await;
    // It has only just come.
    is(
        &doctor().await,
        ("work", all),
        "good",
        "nothing that is due",
    );
    execute(&sql, AN_HOUR_LATER).await;
    let red = doctor().await;
    for (about, many) in [
        ("job greet", "jobs"),
        ("command charge", "commands"),
        ("entity crm", "entities"),
    ] {
        is(&red, ("work", about), "warning", "no worker takes it");
        let mend = self::about(&red, "work", about)["mend"].to_string();
        assert!(
            mend.contains(&format!("outlast {many} ls --name")),
            "{mend}"
        );
    }
    // Marks that were taken wait as well. A name that is worked on is left out, one that is paused says why.
    for claim in ["claim('entity', 'other')", "claim('job', 'greet')"] {
        execute(&sql, &format!("select * from outlast.{claim}")).await;
    }
    execute(&sql, AN_HOUR_LATER).await;
    let pause = ["commands", "pause", "charge", "--reason", "their incident"];
    outlast(database.url(), &pause).await.fine();
    let now = doctor().await;
    is(
        &now,
        ("work", "entity crm"),
        "warning",
        "no worker takes it",
    );
    is(
        &now,
        ("work", "command charge"),
        "warning",
        "paused: their incident",
    );
    let mend = self::about(&now, "work", "command charge")["mend"].to_string();
    assert!(mend.contains("outlast commands resume charge"), "{mend}");
    assert!(
        !now.iter().any(|one| one["about"] == "job greet"),
        "{now:#?}"
    );
    // What an account must wait for is no lack of workers, and what waits for a person neither.
    for change in [
        "select outlast.cancel_key('charge', 'k', 'ordered twice', kind => 'command')",
        "select outlast.resume_job('command:charge')",
        "select outlast.pause_account('acme', 'their incident')",
        "select outlast.command('charge', '{}', 'l', account => 'acme')",
    ] {
        execute(&sql, change).await;
    }
    for _ in ["a", "b"] {
        let claim = "select token::text, id::text from outlast.claim('entity', 'crm')";
        let row = sql.query_one(claim, &[]).await.expect("one is due");
        let (token, id): (&str, &str) = (row.get(0), row.get(1));
        execute(
            &sql,
            &format!("select outlast.fail('{token}', '{id}', 'permanent', 'x')"),
        )
        .await;
    }
    execute(&sql, AN_HOUR_LATER).await;
    is(
        &doctor().await,
        ("work", all),
        "good",
        "nothing that is due",
    );
}

#[tokio::test]
async fn what_a_relay_writes_down_and_what_a_monitor_tells_is_shown() {
    let Some(world) = World::bare("").await else {
        return;
    };
    let path = world.folder.path().join("outlast.toml");
    let file = std::fs::read_to_string(&path).expect("the file");
    let monitor = format!(
        "kind = \"nats\"\nmonitor = \"{}\"\n",
        world.server.monitor()
    );
    std::fs::write(&path, file.replace("kind = \"nats\"\n", &monitor)).expect("written");
    world.topic().await;
    world
        .outlast(&["deployment", "set", "production"])
        .await
        .fine();
    let file = std::fs::read_to_string(&path).expect("the file");
    std::fs::write(&path, format!("deployment = \"production\"\n{file}")).expect("written");
    world.outlast(&["apply", "--yes"]).await.fine();
    let before = world.doctor(&[]).await.fine();
    is(
        &before.json(),
        ("route bookings", "largest message"),
        "warning",
        "emit knows of nothing",
    );
    is(
        &before.json(),
        ("route bookings", "sync_interval"),
        "warning",
        "2m",
    );
    let relay = world.relay();
    let known = "select count(*) from outlast.route where limits ->> 'message_bytes' = '1048576'";
    outlast_testkit::wait_for("the relay to write it down", crate::PATIENCE, async || {
        (crate::number(&world.sql, known).await == 1).then_some(())
    })
    .await;
    let after = world.doctor(&[]).await.fine();
    is(
        &after.json(),
        ("route bookings", "largest message"),
        "good",
        "1048576 bytes",
    );
    world
        .outlast(&["relay", "pause", "bookings", "--reason", "a test"])
        .await
        .fine();
    let paused = world.doctor(&[]).await.fine();
    is(
        &paused.json(),
        ("route bookings", "state"),
        "warning",
        "paused: a test",
    );
    relay.terminate();
    relay.exit(crate::PATIENCE).await;
}

/// As routes were registered before a relay made fewer lanes of them.
#[tokio::test]
async fn a_route_with_many_lanes_is_told_and_has_fewer_as_soon_as_somebody_says_so() {
    let Some(world) = World::bare("").await else {
        return;
    };
    world.topic().await;
    world
        .outlast(&["deployment", "set", "production"])
        .await
        .fine();
    let path = world.folder.path().join("outlast.toml");
    let file = std::fs::read_to_string(&path).expect("the file");
    std::fs::write(&path, format!("deployment = \"production\"\n{file}")).expect("written");
    world.outlast(&["apply", "--yes"]).await.fine();
    let early = "select outlast.register('relay/bookings', '{booking.*}', 'now', true, 16)";
    execute(&world.sql, early).await;
    let relay = world.relay();
    let status = ["relay", "status", "bookings"];
    let says = "outlast consumers lanes relay/bookings 4";
    world.outlast(&status).await.fine().says(says);
    let many = world.doctor(&[]).await.fine();
    is(&many.json(), ("route bookings", "lanes"), "warning", "16");
    world.emit(0..20, 5).await;
    world
        .outlast(&["consumers", "lanes", "relay/bookings", "4"])
        .await
        .fine();
    let few = world.outlast(&status).await.fine();
    assert!(!few.out.contains("lanes"), "{few:#?}");
    let few = world.doctor(&[]).await.fine().json();
    let lanes = few.iter().find(|one| one["about"] == "lanes");
    assert_eq!(lanes, None);
    let done = "select count(*) from outlast.processed where consumer = 'relay/bookings'";
    outlast_testkit::wait_for(
        "the bookings to be published",
        crate::PATIENCE,
        async || (crate::number(&world.sql, done).await == 20).then_some(()),
    )
    .await;
    relay.terminate();
    relay.exit(crate::PATIENCE).await;
}

#[tokio::test]
async fn for_how_long_a_lost_worker_holds_up_an_ordered_subscription_is_told() {
    let Some(world) = World::bare("").await else {
        return;
    };
    for (ack_ms, severity, says) in [
        (30_000, "good", "30 seconds"),
        (300_000, "warning", "5 minutes"),
    ] {
        let sql = format!(
            "select outlast._register_delivered('mailer', '{{booking.made}}', 'nats', 'bookings', 'mailer', true, ack_ms => {ack_ms})::text"
        );
        execute(&world.sql, &sql).await;
        let found = world.doctor(&[]).await.with(1).json();
        is(&found, ("consumer mailer", "a lost worker"), severity, says);
    }
}

#[tokio::test]
async fn the_canary_goes_round_and_no_consumer_gets_it() {
    let Some(world) = World::bare("").await else {
        return;
    };
    world.topic().await;
    world
        .outlast(&["deployment", "set", "production"])
        .await
        .fine();
    let before = world.stream("watching").await;
    assert_eq!(before, []);
    for _ in 0..2 {
        let ran = world.doctor(&["--canary"]).await.fine();
        is(&ran.json(), ("broker main", "canary"), "good", "back after");
    }
    assert_eq!(world.stream("watching").await, []);
    // Two at once do not take each other's away.
    let both = tokio::join!(world.doctor(&["--canary"]), world.doctor(&["--canary"]));
    for ran in [both.0, both.1] {
        is(
            &ran.fine().json(),
            ("broker main", "canary"),
            "good",
            "acked after",
        );
    }
}

#[tokio::test]
async fn a_subscription_at_google_is_told_setting_by_setting() {
    let Some((address, project)) = emulator::shared().await else {
        return;
    };
    let endpoint = format!("http://{address}");
    let (database, sql) = database().await;
    outlast(database.url(), &["deployment", "set", "production"])
        .await
        .fine();
    let folder = Folder::new();
    std::fs::create_dir(folder.path()).expect("a new folder");
    let file = format!(
        "[broker.cloud]\nkind = \"pubsub\"\nproject = \"{project}\"\nendpoint = \"{endpoint}\"\n"
    );
    std::fs::write(folder.path().join("outlast.toml"), file).expect("a file in it");
    let doctor = async |args: &[&str]| {
        let mut command = command(&[&["doctor", "--json"], args].concat());
        command
            .current_dir(folder.path())
            .args(["--database", database.url()]);
        run(command, b"").await
    };
    // What the consumer needs, and what somebody made: without order.
    let register = "select outlast._register_delivered('mailer', '{booking.*}', 'pubsub', 'bookings', 'mailer', ordered => true, ack_ms => 60000)";
    execute(&sql, register).await;
    let missing = doctor(&[]).await.with(1);
    is(
        &missing.json(),
        ("consumer mailer", "subscription mailer"),
        "bad",
        "is missing",
    );
    let mut options = Options::new(&project);
    options.endpoint = Some(endpoint);
    let pubsub = PubSub::new(options).expect("an emulator");
    let theirs = Topology::Subscription(Subscription::new("mailer", "bookings"));
    let made = pubsub.ensure(&theirs, Ensure::Create, WITHIN).await;
    made.expect("the emulator makes it");
    let red = doctor(&[]).await.with(1);
    let red = red.json();
    for (what, severity, says) in [
        ("mailer: order", "bad", "not kept"),
        ("mailer: ack deadline", "good", "1m"),
        ("mailer: retry policy", "good", "1s to 10m"),
        ("mailer: retention", "good", "7d"),
        ("mailer: expiration", "good", "never"),
        ("mailer: exactly-once", "good", "off"),
        ("mailer: dead letters", "good", "mailer-dead"),
        ("dead-letter subscription mailer-dead", "good", "keeps them"),
        ("rights of the service agent", "unverified", "unverified"),
    ] {
        is(&red, ("consumer mailer", what), severity, says);
    }
    // A log that is kept for longer than the subscription keeps messages.
    execute(
        &sql,
        "update outlast._consumer set ordered = false where name = 'mailer'",
    )
    .await;
    execute(
        &sql,
        "insert into outlast._setting (name, value) values ('retention.log', '8d')",
    )
    .await;
    let ran = doctor(&["--canary"]).await.with(1);
    is(
        &ran.json(),
        ("consumer mailer", "mailer: retention"),
        "warning",
        "7d, and the log keeps events for 8d",
    );
    is(
        &ran.json(),
        ("database", "settings of the cluster"),
        "bad",
        "retention.log",
    );
    is(
        &ran.json(),
        ("broker cloud", "canary"),
        "good",
        "confirmed after",
    );
}
