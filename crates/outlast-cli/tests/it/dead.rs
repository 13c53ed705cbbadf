//! `outlast dead`, `outlast unreadable`: what a broker has given up on, and what is no event.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use outlast_core::broker::{Broker, Ensure, Envelope, Message, Subscription, Topology};
use outlast_nats::{Nats, NatsSettings};
use serde_json::json;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::{
    database, execute, number, outlast,
    relay::{WITHIN, World},
};

#[tokio::test]
async fn dead_letters_are_counted_asked_for_and_imported_once_under_their_own_ids() {
    let Some(world) = World::bare("deliveries = 1").await else {
        return;
    };
    world.topic().await;
    let register = "select outlast._register_delivered('mailer', '{booking.*}', 'nats', 'bookings', 'mailer', ack_ms => 60000)";
    execute(&world.sql, register).await;
    let mut settings = NatsSettings::at(world.server.url());
    settings.deliveries = 1;
    let nats = Nats::connect(settings).await.expect("settings that can be");
    let mailer = Subscription::new("mailer", "bookings");
    let topology = Topology::Subscription(mailer.clone());
    let made = nats.ensure(&topology, Ensure::Create, WITHIN);
    made.await.expect("the server makes it");
    let event = |id: u128| {
        let envelope = Envelope::new(Uuid::from_u128(id), "booking.made", SystemTime::now());
        Message::new("bookings", Arc::new(envelope), "{}".into())
    };
    let ids = [Uuid::now_v7(), Uuid::now_v7()];
    let messages: Vec<_> = ids.iter().map(|id| event(id.as_u128())).collect();
    let sent = nats.publish(&messages, WITHIN).await;
    assert!(
        sent.iter()
            .all(outlast_core::broker::Published::is_confirmed),
        "{sent:?}"
    );
    world.jetstream("bookings", "no event").await;
    // Delivered, let go, and delivered once too often.
    let mut reading = nats.subscribe(&mailer, WITHIN).await.expect("it reads");
    let mut let_go = 0;
    while let_go < 3 {
        for one in reading.next(10, WITHIN).await.expect("the server answers") {
            one.settle.release(Duration::ZERO).await;
            let_go += 1;
        }
    }
    assert!(
        reading
            .next(10, Duration::from_secs(1))
            .await
            .expect("it answers")
            .is_empty()
    );

    let import = async |args: &[&str]| {
        world
            .outlast(&[&["dead", "import", "mailer"], args].concat())
            .await
    };
    import(&["--dry-run"])
        .await
        .fine()
        .says("3 dead letters on main, 1 of them no events");
    import(&[]).await.with(2).says("nobody said yes");
    let incidents = "select count(*) from outlast.incident where consumer = 'mailer'";
    assert_eq!(number(&world.sql, incidents).await, 0);
    // What is no event is told in the log, too.
    let done = import(&["--yes", "--json"]).await.with(0);
    let done = &done.json()[0];
    assert_eq!(
        (&done["incidents"], &done["unreadable"]),
        (&json!(2), &json!(1)),
        "{done:#}"
    );
    let about =
        "select count(*) from outlast.incident where class = 'dead-letter' and about = any ($1)";
    let kept: i64 = world
        .sql
        .query_one(about, &[&&ids[..]])
        .await
        .expect("reads")
        .get(0);
    assert_eq!(kept, 2);
    import(&["--yes"])
        .await
        .fine()
        .says("0 dead letters on main");
    assert_eq!(number(&world.sql, incidents).await, 3);
    world
        .outlast(&["dead", "import", "nobody"])
        .await
        .with(2)
        .says("no consumer of this name reads a broker");
}

/// Keeps a message of the consumer `mailer`; answers its id.
async fn keep(
    sql: &tokio_postgres::Client,
    attributes: &[(String, String)],
    payload: &[u8],
) -> Uuid {
    let attributes = json!(attributes).to_string().into_bytes();
    let given: [&(dyn ToSql + Sync); 2] = [&attributes, &payload];
    let keep = "select outlast._keep_unreadable(c.id, '7', 'the attribute ce-id is missing', $1, $2) from outlast._consumer c where c.name = 'mailer'";
    sql.query_one(keep, &given).await.expect("kept").get(0)
}

#[tokio::test]
async fn unreadable_messages_are_listed_shown_read_again_and_discarded_by_somebody_for_a_reason() {
    let (database, sql) = database().await;
    let url = database.url();
    execute(
        &sql,
        "select outlast._register_delivered('mailer', '{booking.*}', 'nats', 'bookings', 'mailer')",
    )
    .await;
    outlast(url, &["unreadable", "ls"])
        .await
        .fine()
        .says("every message could be read");
    let odd = vec![("x\u{1b}[2J".to_owned(), "\u{202e}evil".to_owned())];
    let odd = keep(&sql, &odd, b"\xff\x00").await.to_string();
    let event = Uuid::now_v7();
    let mut envelope = Envelope::new(event, "booking.made", SystemTime::now());
    envelope.key = Some("k".into());
    let good = keep(&sql, &envelope.to_attributes(), b"{\"n\":1}")
        .await
        .to_string();
    envelope.id = Uuid::now_v7();
    envelope.name = "refund.made".into();
    let other = keep(&sql, &envelope.to_attributes(), b"{}")
        .await
        .to_string();

    let listed = outlast(url, &["unreadable", "ls", "--json"]).await.fine();
    assert_eq!(listed.json().len(), 3);
    let shown = outlast(url, &["unreadable", "show", &odd]).await.fine();
    assert!(
        shown.out.contains("\nff00\n") && !shown.out.contains('\u{1b}'),
        "{shown:#?}"
    );
    let shown = outlast(url, &["unreadable", "show", &good, "--json"])
        .await
        .fine();
    assert_eq!(shown.json()[0]["payload"], "{\"n\":1}");

    let each = async |args: &[&str]| {
        outlast(
            url,
            &[&["unreadable"], args, &["--consumer", "mailer"]].concat(),
        )
        .await
    };
    each(&["retry", &good])
        .await
        .with(2)
        .says("nobody said yes");
    let ran = each(&["retry", "--all", "--yes", "--json"]).await.with(1);
    let outcome = |id: &str| {
        let all = ran.json();
        let one = all.iter().find(|one| one["id"] == id).cloned();
        one.unwrap_or_else(|| panic!("{id} is not in {ran:#?}"))
    };
    assert_eq!(outcome(&odd)["outcome"], "unreadable");
    assert_eq!(
        outcome(&odd)["why"],
        "the attribute ce-specversion is missing"
    );
    assert_eq!(
        (&outcome(&good)["outcome"], &outcome(&good)["event"]),
        (&json!("retry"), &json!(event))
    );
    assert_eq!(outcome(&other)["outcome"], "other");
    let due = format!(
        "select count(*) from outlast.parked where id = '{event}' and state = 'retry' and payload = '{{\"n\":1}}'"
    );
    assert_eq!(number(&sql, &due).await, 1);
    each(&["retry", &good, "--yes"])
        .await
        .with(1)
        .says("absent");

    each(&["discard", &odd, "--yes"])
        .await
        .with(2)
        .says("--reason");
    each(&["discard", &odd, "--reason", "a probe"])
        .await
        .with(2)
        .says("1 message would be concerned");
    each(&[
        "discard", &odd, "--reason", "a probe", "--actor", "jane", "--yes",
    ])
    .await
    .fine()
    .says("discarded");
    each(&["discard", &odd, "--reason", "a probe", "--yes"])
        .await
        .with(1)
        .says("absent");
    assert_eq!(
        number(&sql, "select count(*) from outlast.unreadable").await,
        0
    );
    let audited = "select count(*) from outlast._audit
        where action = 'unreadable.discarded' and actor = 'jane' and detail ->> 'reason' = 'a probe' or action = 'unreadable.read'";
    assert_eq!(number(&sql, audited).await, 3);
}
