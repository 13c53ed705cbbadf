//! Who asked, what belongs together, what led to what: it goes on from an event to what its handlers emit.

use outlast_core::{Event, Failure};
use outlast_engine::{Attempt, Consumer, Outlast, Start};
use outlast_postgres::tx::{ClientTx, OwnedTx, Pool};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::given::{Ping, Told, given, next};

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[derive(Serialize, Deserialize)]
struct Pong {
    by: String,
}

impl Event for Pong {
    const NAME: &'static str = "pong";
}

async fn answer(told: Told, tx: &mut ClientTx, ping: Attempt<Ping>) -> Result<(), Failure> {
    let pong = |by: &str| Pong { by: by.into() };
    ping.outlast().emit(tx, &pong("attempt")).await?;
    ping.outlast()
        .emit_all(tx, &[pong("attempt, many")])
        .await?;
    Outlast::new()
        .emit(tx, &pong("another handle"))
        .caused_by(&ping)
        .await?;
    assert_eq!(
        (ping.actor(), ping.traceparent()),
        (Some("jane"), Some(TRACE))
    );
    assert_eq!(ping.causation_id(), None);
    let _ = told.send(ping.n);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_handler_emits_belongs_to_the_story_of_its_event() {
    let given = given().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let worker = given.start(
        told,
        Consumer::new("answers")
            .from(Start::Earliest)
            .on_tx(&given.pool, answer),
    );
    let story = Uuid::now_v7();
    let outlast = Outlast::new()
        .tenant("acme")
        .actor("jane")
        .correlation(story)
        .traceparent(TRACE);
    let mut tx = given.pool.begin().await.unwrap();
    let first = outlast.emit(&mut tx, &Ping { n: 1 }).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(next(&mut hears).await, 1);
    worker.stop().await.unwrap();

    let sql = "select convert_from(payload, 'UTF8')::json->>'by', tenant, actor, traceparent, correlation_id, causation_id
        from outlast.event where type = 'pong' order by log_id";
    let rows = given.sql.query(sql, &[]).await.unwrap();
    assert_eq!(rows.len(), 3);
    for row in rows {
        let by: String = row.get(0);
        // Another handle is another tenant's and somebody else's; the story is the same.
        let own = by != "another handle";
        assert_eq!(row.get::<_, &str>(1), if own { "acme" } else { "" }, "{by}");
        assert_eq!(row.get::<_, Option<&str>>(2), own.then_some("jane"), "{by}");
        assert_eq!(row.get::<_, Option<&str>>(3), Some(TRACE), "{by}");
        assert_eq!(row.get::<_, Option<Uuid>>(4), Some(story), "{by}");
        assert_eq!(row.get::<_, Option<Uuid>>(5), Some(first.id), "{by}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_without_a_story_begins_one_and_a_bad_trace_is_dropped() {
    let given = given().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    async fn begin(told: Told, tx: &mut ClientTx, ping: Attempt<Ping>) -> Result<(), Failure> {
        assert_eq!(ping.correlation_id(), ping.id());
        assert_eq!(ping.traceparent(), None);
        let pong = Pong { by: "x".into() };
        ping.outlast().emit(tx, &pong).await?;
        let _ = told.send(ping.n);
        Ok(())
    }
    let worker = given.start(
        told,
        Consumer::new("answers")
            .from(Start::Earliest)
            .on_tx(&given.pool, begin),
    );
    let outlast = Outlast::new().traceparent("00-not-a-trace-01");
    let mut tx = given.pool.begin().await.unwrap();
    let first = outlast.emit(&mut tx, &Ping { n: 1 }).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(next(&mut hears).await, 1);
    worker.stop().await.unwrap();
    let sql = "select correlation_id, causation_id from outlast.event where type = 'pong'";
    let row = given.sql.query_one(sql, &[]).await.unwrap();
    assert_eq!(
        (row.get::<_, Uuid>(0), row.get::<_, Uuid>(1)),
        (first.id, first.id)
    );
}
