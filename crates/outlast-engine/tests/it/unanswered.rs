//! A COMMIT without an answer: the worker finds out what became of it, and nobody is charged.

use outlast_core::Failure;
use outlast_engine::{Attempt, Consumer, Start};
use outlast_postgres::{
    connect::{self, Target},
    tx::{Pool, Tx},
};
use outlast_testkit::proxy::{Fault, Proxy, When};

use crate::given::{Ping, given};

async fn row<T: Tx>(_: (), tx: &mut T, ping: Attempt<Ping>) -> Result<(), Failure> {
    let (id, n) = (ping.id().to_string(), ping.n.to_string());
    let sql = "insert into effect values ($1::text::uuid, $2::text::bigint)";
    tx.call(sql, &[id.as_str().into(), n.as_str().into()])
        .await?;
    Ok(())
}

/// Goal: of an event whose COMMIT was not answered there is one completion and one effect, whether it took place or not.
/// Method: each third COMMIT of the handler's own pool loses its request or its reply.
async fn every_third_is_unanswered<P: Pool>(pool: impl AsyncFn(&str) -> P, ordered: bool) {
    for fault in [Fault::DropRequest, Fault::DropReply] {
        let given = given().await;
        let proxy = Proxy::before(given.database.url()).await;
        let pool = pool(proxy.url()).await;
        let consumer = Consumer::new("ledger").from(Start::Earliest);
        let consumer = if ordered {
            consumer.ordered()
        } else {
            consumer
        };
        let worker = given.start((), consumer.on_tx(&pool, row::<P::Tx>));
        worker.registered(&given).await;
        for n in 0..5 {
            let armed = proxy.arm_after(2, When::Commit, fault);
            given.emit(3 * n..3 * n + 3).await;
            armed.fired().await;
        }
        given.processed(15).await;
        let effects = "select count(distinct event) * 1000 + count(*) from effect";
        assert_eq!(given.count(effects).await, 15_015, "{fault:?}");
        assert_eq!(
            given.count("select count(*) from outlast.parked").await,
            0,
            "{fault:?}"
        );
        worker.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seal_without_an_answer_is_looked_for_by_its_lease_and_its_event_runs_again_only_if_it_is_not_there()
 {
    let pool = async |url: &str| connect::pool(&Target::parse(url).unwrap(), 4).unwrap();
    every_third_is_unanswered::<deadpool_postgres::Pool>(pool, false).await;
    every_third_is_unanswered::<deadpool_postgres::Pool>(pool, true).await;
}
