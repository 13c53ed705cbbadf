//! An event is there exactly if its transaction committed, in the order in which it was said.

use uuid::Uuid;

use crate::house::House;
use crate::sql::{self, Claim};

async fn got(client: &tokio_postgres::Client, consumer: i32) -> Vec<Uuid> {
    let mut all = Vec::new();
    loop {
        let events = Claim::of(consumer).next(client).await.expect("claims");
        let Some(first) = events.first() else {
            return all;
        };
        let ids: Vec<_> = events.iter().map(|event| event.id).collect();
        sql::seal(client, first.token, &ids).await.expect("seals");
        sql::finish(client, &[first.token]).await.expect("finishes");
        all.extend(ids);
    }
}

#[tokio::test]
async fn an_event_follows_its_transaction_its_savepoint_and_its_two_phases() {
    let house = House::new().await;
    let (client, reader) = (house.connect().await, house.connect().await);
    let consumer = sql::register(&reader, "c", &["a"], "now", None).await;

    sql::run(&client, "begin").await;
    sql::emit(&client, "a", None).await;
    sql::run(&client, "rollback").await;

    sql::run(&client, "begin; savepoint s").await;
    sql::emit(&client, "a", None).await;
    sql::run(&client, "rollback to s").await;
    let kept = sql::emit(&client, "a", None).await;
    sql::run(&client, "savepoint t").await;
    let released = sql::emit(&client, "a", None).await;
    sql::run(&client, "release t").await;
    assert!(
        got(&reader, consumer).await.is_empty(),
        "not before it commits"
    );
    sql::run(&client, "commit").await;
    assert_eq!(got(&reader, consumer).await, [kept, released]);

    let (gone, late) = (format!("{}-1", house.name()), format!("{}-2", house.name()));
    sql::run(&client, "begin").await;
    sql::emit(&client, "a", None).await;
    sql::run(&client, &format!("prepare transaction '{gone}'; begin")).await;
    let prepared = sql::emit(&client, "a", None).await;
    sql::run(&client, &format!("prepare transaction '{late}'")).await;
    let meanwhile = sql::emit(&client, "a", None).await;
    assert_eq!(
        got(&reader, consumer).await,
        [meanwhile],
        "a prepared transaction stops nobody"
    );
    sql::run(&client, &format!("rollback prepared '{gone}'")).await;
    sql::run(&client, &format!("commit prepared '{late}'")).await;
    assert_eq!(got(&reader, consumer).await, [prepared]);
}

#[tokio::test]
async fn many_events_in_one_statement_keep_their_order_and_their_keys() {
    let house = House::new().await;
    let client = house.connect().await;
    let consumer = sql::register(&client, "c", &["a"], "now", None).await;
    let rows = client
        .query(
            "select ord, id from outlast.emit_all('a', array(select n::text from generate_series(1, 3000) n),
                array(select case when n % 3 > 0 then 'k' || n end from generate_series(1, 3000) n))",
            &[],
        )
        .await
        .expect("emits");
    let said: Vec<Uuid> = rows.iter().map(|row| row.get(1)).collect();
    assert!(
        rows.iter()
            .enumerate()
            .all(|(n, row)| row.get::<_, i32>(0) == n as i32 + 1)
    );
    let mut all = Vec::new();
    while all.len() < said.len() {
        let events = Claim::of(consumer)
            .n(1000)
            .next(&client)
            .await
            .expect("claims");
        assert!(!events.is_empty());
        all.extend(events);
    }
    for (n, event) in all.iter().enumerate() {
        let n = n + 1;
        assert_eq!(event.id, said[n - 1]);
        assert_eq!(event.payload, n.to_string().as_bytes());
        assert_eq!(event.key, (n % 3 > 0).then(|| format!("k{n}")));
    }
}

/// The documented trap: PostgreSQL does not run a SELECT in WITH that nobody reads, whatever it calls.
#[tokio::test]
async fn an_emit_in_a_with_that_nobody_reads_is_not_executed() {
    let house = House::new().await;
    let client = house.connect().await;
    let count = async || sql::one::<i64>(&client, "select count(*) from outlast._event", &[]).await;
    sql::run(
        &client,
        "with e as (select outlast.emit(type => 'a', payload => '1'::text)) select 1",
    )
    .await;
    assert_eq!(count().await, 0);
    let safe = "create table business (id int);
        with b as (insert into business values (1) returning id)
        select e.id from b, outlast.emit(type => 'a', payload => to_json(b.id)::text) e";
    sql::run(&client, safe).await;
    assert_eq!(count().await, 1);
}

#[tokio::test]
async fn a_transaction_above_read_committed_emits_like_any_other() {
    let house = House::new().await;
    for isolation in ["repeatable read", "serializable"] {
        let (client, other) = (house.connect().await, house.connect().await);
        let consumer =
            sql::register(&other, &isolation.replace(' ', "-"), &["a"], "now", None).await;
        sql::run(
            &client,
            &format!("begin isolation level {isolation}; select 1"),
        )
        .await;
        let early = sql::emit(&other, "a", None).await;
        let event = sql::emit(&client, "a", None).await;
        sql::run(&client, "commit").await;
        assert_eq!(got(&other, consumer).await, [early, event]);
    }
}
