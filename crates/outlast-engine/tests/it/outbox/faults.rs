//! Faults planted on purpose, each of which the tests beside this one would have to find.

use outlast_postgres::migrate;
use outlast_testkit::broker::memory::{Fault, Memory};
use uuid::Uuid;

use super::{Given, at_rest, numbers, relaying, with_encore, write};

/// Replaces a function of this database by its own text with one piece exchanged.
async fn plant(given: &Given, function: &str, old: &str, new: &str) {
    let head = format!("create or replace function outlast.{function}(");
    let texts = migrate::FUNCTIONS.iter().map(|(_, text)| *text);
    let file = texts.into_iter().find(|text| text.contains(&head));
    let file = file.unwrap_or_else(|| panic!("no function {function}"));
    let from = file.find(&head).unwrap();
    let text = &file[from..from + file[from..].find("$$;").unwrap() + 3];
    assert_eq!(
        text.matches(old).count(),
        1,
        "{function} must hold once: {old}"
    );
    let planted = text.replacen(old, new, 1);
    given.sql.batch_execute(&planted).await.unwrap();
}

/// What came through of ten rows whose first request is lost.
async fn through(given: &Given) -> Vec<i64> {
    let broker = Memory::new().with_topic("pings");
    broker.then(Fault::RequestLost);
    write(&given.sql, 0..10).await;
    let relay = relaying(given, &broker, Given::settings());
    given.until("select count(*) from public.outbox", 0).await;
    at_rest(given).await;
    relay.stop().await.unwrap();
    numbers(&broker)
}

#[tokio::test]
async fn rows_that_are_deleted_before_the_confirmation_are_lost() {
    let given = with_encore().await;
    assert_eq!(through(&given).await, (0..10).collect::<Vec<_>>());
    plant(
        &given,
        "_outbox_read",
        "  using token, m.identity, m.content_type, null::text, 2147483647;\n",
        "  using token, m.identity, m.content_type, null::text, 2147483647;
          execute m.done using array(select r.row_id from outlast._outbox_row r where r.token = $2),
            array(select r.row_at from outlast._outbox_row r where r.token = $2);\n",
    )
    .await;
    given
        .sql
        .batch_execute("alter function outlast._outbox_read volatile")
        .await
        .unwrap();
    assert_eq!(through(&given).await, [0_i64; 0], "all of them are lost");
}

#[tokio::test]
async fn an_id_without_the_time_of_its_row_takes_a_new_event_for_an_old_one() {
    let given = with_encore().await;
    let id = async |row: &str, at: i64| {
        let sql = "select outlast._outbox_event_id('shop', $1, $2)";
        let row = given.sql.query_one(sql, &[&row, &at]).await;
        row.unwrap().get::<_, Uuid>(0)
    };
    let (old, new) = (id("1", 5).await, id("1", 6).await);
    assert_ne!(old, new);
    assert_ne!(id("11", 5).await, id("1", 51).await, "no two read as one");
    plant(&given, "_outbox_event_id", "row_at || ' ' || ", "").await;
    assert_eq!(id("1", 5).await, id("1", 6).await);
}

#[tokio::test]
async fn without_its_lease_nobody_deletes_or_parks_anything() {
    let given = with_encore().await;
    let sql = &given.sql;
    sql.batch_execute(
        "select outlast._register_delivered('outbox/shop', array['*'], 'outbox', 'outbox', 'shop')",
    )
    .await
    .unwrap();
    write(sql, 0..3).await;
    let claim = "select token::text from outlast._outbox_claim((select id from outlast._consumer), 'shop', 10, 1000, 1000, 5000, 0)";
    let token = given.count_text(claim).await;
    // It sleeps past its lease; somebody newer takes the rows.
    sql.batch_execute("update outlast._lease set expires_at = 'epoch'")
        .await
        .unwrap();
    let newer = given.count_text(claim).await;
    assert_ne!(token, newer);
    let rows = "select count(*) from outlast._outbox_row where lapses = 1";
    assert_eq!(given.count(rows).await, 3);
    let done = |token: &str| {
        format!(
            "select outlast._outbox_done('shop', '{token}', array(select event_id from outlast._outbox_row))"
        )
    };
    let failed = |token: &str| {
        format!(
            "select outlast._outbox_failed('shop', '{token}', (select event_id from outlast._outbox_row limit 1), 'permanent', 'x', null, true)"
        )
    };
    for stale in [done(&token), failed(&token)] {
        let refused = sql.batch_execute(&stale).await.unwrap_err();
        assert_eq!(
            refused.code().map(|state| state.code()),
            Some("OL001"),
            "{stale}"
        );
    }
    assert_eq!(given.count("select count(*) from public.outbox").await, 3);
    sql.batch_execute(&done(&newer)).await.unwrap();
    assert_eq!(given.count("select count(*) from public.outbox").await, 0);
}
