//! How many events a batch has.

use outlast_core::Failure;
use outlast_engine::{Attempt, Consumer, Start};
use outlast_testkit::wait_for;

use crate::given::{Ping, SOON, given};

async fn nothing(_: (), _: Attempt<Ping>) -> Result<(), Failure> {
    Ok(())
}

/// With smaller ones it would have more to do: the slower it was, the smaller they would become, and so on.
#[tokio::test]
async fn a_slow_database_makes_no_batch_smaller() {
    let given = given().await;
    given
        .sql
        .batch_execute(
            "create function slow() returns trigger language plpgsql as 'begin perform pg_sleep(0.6); return null; end';
             create trigger slow after insert on outlast._processed_event for each statement execute function slow();
             select outlast.emit_all('ping', array(select '{\"n\":1}' from generate_series(1, 300)))",
        )
        .await
        .unwrap();
    let running = given.start((), Consumer::new("c").from(Start::Earliest).on(nothing));
    wait_for("a batch of twice as many as the first", SOON, async || {
        let most = "select coalesce(max(events), 0)::bigint from outlast._batch";
        (given.count(most).await >= 64).then_some(())
    })
    .await;
    running.stop().await.unwrap();
}
