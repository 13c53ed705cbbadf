//! `outlast relay topics`, and what `outlast apply` says of routes that change.

use crate::{execute, number, relay::World};

#[tokio::test]
async fn what_is_missing_is_shown_asked_for_made_once_and_audited() {
    let Some(world) = World::bare("").await else {
        return;
    };
    world.outlast(&["apply", "--yes"]).await.fine();
    let register = "select outlast._register_delivered('mailer', '{booking.*}', 'nats', 'bookings', 'mailer', ack_ms => 30000)";
    execute(&world.sql, register).await;
    let topics = async |args: &[&str]| world.outlast(&[&["relay", "topics"], args].concat()).await;
    let state = |ran: &crate::Ran| -> Vec<String> {
        let all = ran.json();
        let states = all.iter().map(|line| {
            format!(
                "{} {}",
                line["of"].as_str().unwrap_or_default(),
                line["state"].as_str().unwrap_or_default()
            )
        });
        states.collect()
    };
    let looked = topics(&["--json"]).await.with(1);
    assert_eq!(
        state(&looked),
        ["route bookings missing", "consumer mailer missing"]
    );
    topics(&["--create"])
        .await
        .with(2)
        .says("nobody said yes")
        .says("topic bookings");
    assert_eq!(
        state(&topics(&["--json"]).await.with(1)),
        state(&looked),
        "nothing was made"
    );
    let made = topics(&["--create", "--yes", "--json"]).await.fine();
    assert_eq!(
        state(&made),
        ["route bookings made", "consumer mailer made"]
    );
    topics(&[])
        .await
        .fine()
        .says("subscription mailer of bookings");
    topics(&["--create", "--yes"])
        .await
        .fine()
        .says("nothing is missing");
    let audited =
        "select count(*) from outlast._audit where action = 'broker.made' and about = 'main'";
    assert_eq!(number(&world.sql, audited).await, 2);
    // What was made is what the consumer asks for.
    let doctor = world.outlast(&["doctor", "--json"]).await.with(1);
    let found = doctor.json();
    let reader = crate::doctor::about(&found, "consumer mailer", "subscription mailer");
    assert_eq!(reader["severity"], "good", "{reader:#}");
    assert!(
        reader["found"]
            .as_str()
            .is_some_and(|found| found.contains("to settle 30s")),
        "{reader:#}"
    );
    topics(&["nowhere"])
        .await
        .with(2)
        .says("there is no such route");
}

#[tokio::test]
async fn an_outbox_of_another_system_needs_its_topic_like_a_route() {
    let Some(world) = World::bare("").await else {
        return;
    };
    let table = "create table public.outbox (id bigserial primary key, topic text not null, data jsonb not null,
        inserted_at timestamptz not null)";
    execute(&world.sql, table).await;
    let path = world.folder.path().join("outlast.toml");
    let file = std::fs::read_to_string(&path).expect("the file");
    let routes = file.split("[cluster.route").next().expect("the rest");
    let outboxes = "[cluster.outbox.one]\nbroker = \"main\"\ntopic = \"shop\"\nsource = \"one\"\n";
    std::fs::write(&path, format!("{routes}{outboxes}")).expect("written");
    world.outlast(&["deployment", "set", "production"]).await;
    world.outlast(&["apply", "--yes"]).await.with(0);
    let doctor = async || world.outlast(&["doctor", "--json"]).await;
    let red = doctor().await.with(1).json();
    let missing = crate::doctor::about(&red, "outbox one (main: shop)", "topic shop");
    assert_eq!(missing["severity"], "bad", "{missing:#}");
    let made = ["relay", "topics", "--create", "--yes", "--json"];
    let made = world.outlast(&made).await.fine().json();
    assert_eq!(
        (&made[0]["of"], &made[0]["state"]),
        (&"outbox one".into(), &"made".into())
    );
    let green = doctor().await.fine().json();
    crate::doctor::about(&green, "outbox one", "state");
    // Where the rows name the topic they are asked; without any nobody knows which there will be.
    let named = outboxes.replace("\"shop\"", "\"shop.{topic}\"");
    std::fs::write(&path, format!("{routes}{named}")).expect("written");
    world.outlast(&["apply", "--yes"]).await.with(0);
    let unknown = doctor().await.fine().json();
    let topics = crate::doctor::about(&unknown, "outbox one", "topics");
    assert_eq!(topics["severity"], "unverified", "{topics:#}");
    let rows = "insert into public.outbox (topic, data, inserted_at)
        select t, '{}', now() from unnest(array['b', 'a', 'a', '']) t";
    execute(&world.sql, rows).await;
    // One whose row is gone already, because it is parked.
    let parked = "with c as (select id from outlast._register_delivered('outbox/one', '{*}', 'outbox', 'public.outbox', 'one'))
        insert into outlast._parked (consumer, event_id, log_id, state, class, parked_at, changed_at, schema_version, emitted_at, type,
          tenant, subject, content_type, payload)
        select id, gen_random_uuid(), 1, 'quarantined', 'permanent', now(), now(), 1, now(), 'c', '', 'c', 'application/json', '{}' from c";
    execute(&world.sql, parked).await;
    let needs = async || {
        let ran = world.outlast(&["relay", "topics", "--json"]).await;
        let lines = ran.json();
        let of = |line: &serde_json::Value| {
            format!(
                "{} {}",
                line["what"]["topic"].as_str().unwrap_or_default(),
                line["state"].as_str().unwrap_or_default()
            )
        };
        lines.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(
        needs().await,
        ["shop.a missing", "shop.b missing", "shop.c missing"]
    );
    let red = doctor().await.with(1).json();
    let missing = crate::doctor::about(&red, "outbox one", "topic shop.b");
    assert_eq!(missing["severity"], "bad", "{missing:#}");
    let made = ["relay", "topics", "--create", "--yes"];
    world.outlast(&made).await.fine().says("shop.a");
    assert_eq!(
        needs().await,
        ["shop.a there", "shop.b there", "shop.c there"]
    );
    doctor().await.fine();
    // A table that cannot be read is told, and what is known besides is looked at all the same.
    execute(&world.sql, "alter table public.outbox rename to away").await;
    let away = doctor().await.with(1).json();
    let topics = crate::doctor::about(&away, "outbox one", "topics");
    assert_eq!(topics["severity"], "unverified", "{topics:#}");
    assert!(
        topics["found"]
            .as_str()
            .is_some_and(|found| found.contains("no table public.outbox")),
        "{topics:#}"
    );
    assert_eq!(needs().await, ["shop.c there"]);
}

#[tokio::test]
async fn a_topic_for_each_type_is_one_for_those_that_are_named_seen_or_said() {
    let Some(world) = World::bare("").await else {
        return;
    };
    let path = world.folder.path().join("outlast.toml");
    let file = std::fs::read_to_string(&path).expect("the file");
    let file = file
        .replace("topic = \"bookings\"", "topic = \"b.{type}\"")
        .replace("[\"booking.*\"]", "[\"booking.*\", \"refund.made\"]");
    std::fs::write(&path, file).expect("written");
    world.outlast(&["apply", "--yes"]).await.fine();
    world.emit(0..1, 1).await;
    execute(&world.sql, "select outlast.emit('other', '{}')").await;
    let ran = world
        .outlast(&[
            "relay",
            "topics",
            "--type",
            "booking.gone",
            "--create",
            "--yes",
            "--json",
        ])
        .await
        .fine();
    let made: Vec<_> = ran
        .json()
        .iter()
        .map(|line| line["what"]["topic"].clone())
        .collect();
    assert_eq!(made, ["b.booking.gone", "b.booking.made", "b.refund.made"]);
    // What no broker can be asked for is not known.
    let file = std::fs::read_to_string(&path).expect("the file");
    std::fs::write(&path, file.replace("[broker.main]", "[broker.another]")).expect("written");
    let ran = world.outlast(&["relay", "topics", "--json"]).await.with(1);
    assert_eq!(ran.json()[0]["state"], "unverified");
}

#[tokio::test]
async fn who_takes_a_type_out_of_a_route_is_told_what_waits() {
    let Some(world) = World::bare("").await else {
        return;
    };
    let path = world.folder.path().join("outlast.toml");
    let file = std::fs::read_to_string(&path).expect("the file");
    let apply = async |types: &str, more: &str| {
        let file = file
            .replace("[\"booking.*\"]", types)
            .replace("ordered = true", more);
        std::fs::write(&path, file).expect("written");
        world.outlast(&["apply", "--yes", "--json"]).await.fine()
    };
    let warnings = |ran: &crate::Ran| ran.json()[0]["warnings"].to_string();
    apply("[\"booking.*\", \"refund.*\"]", "ordered = true").await;
    // Never served: nothing waits for it.
    let unserved = apply("[\"booking.*\"]", "ordered = true").await;
    assert_eq!(warnings(&unserved), "[]");
    apply("[\"booking.*\", \"refund.*\"]", "ordered = true").await;
    let register =
        "select outlast._register('relay/bookings', '{booking.*,refund.*}', ordered => true)";
    execute(&world.sql, register).await;
    world.emit(0..3, 2).await;
    let none = apply("[\"booking.*\"]", "ordered = true").await;
    assert!(warnings(&none).contains("none waits now"), "{none:#?}");
    let some = apply("[\"refund.*\"]", "ordered = true").await;
    let told = warnings(&some);
    assert!(
        told.contains("events of booking.* are not published any more"),
        "{told}"
    );
    assert!(
        told.contains("3 wait now")
            && told.contains("consumers remove-type relay/bookings booking.*"),
        "{told}"
    );
    // What another entry takes does not wait.
    apply("[\"booking.*\"]", "ordered = true").await;
    let wider = apply("[\"*\"]", "ordered = true").await;
    assert!(warnings(&wider).contains("none waits now"), "{wider:#?}");
    let late = apply("[\"*\"]", "ordered = true\nstart = \"earliest\"").await;
    assert!(
        warnings(&late).contains("it was served before"),
        "{late:#?}"
    );
    let gone = file.split("[cluster.route").next().expect("the rest");
    std::fs::write(&path, format!("{gone}\n[cluster]\n")).expect("written");
    let removed = world.outlast(&["apply", "--yes", "--json"]).await.fine();
    assert!(
        warnings(&removed).contains("consumers retire relay/bookings"),
        "{removed:#?}"
    );
}
