//! The worker for tests.

use std::time::Duration;

use outlast_core::{Failure, Job};
use outlast_engine::{Attempt, Consumer, Outlast, Start, testing::TestWorker};
use outlast_postgres::tx::{OwnedTx, Pool};

use crate::given::{Ping, given};
use serde::{Deserialize, Serialize};

#[tokio::test]
async fn it_runs_until_idle_and_its_clock_makes_retries_due() {
    async fn second_time(_: (), ping: Attempt<Ping>) -> Result<(), Failure> {
        match (ping.n, ping.number()) {
            (1, _) => Err(Failure::permanent("one")),
            (2, 1) => Err(Failure::retry("not yet").after(Duration::from_secs(3600))),
            _ => Ok(()),
        }
    }
    let given = given().await;
    let worker = Outlast::new()
        .worker(())
        .database(given.database.url())
        .consumer(
            Consumer::new("mailer")
                .from(Start::Earliest)
                .on(second_time),
        );
    let test = TestWorker::new(&given.pool, worker).await.unwrap();
    for n in 0..3 {
        let mut tx = given.pool.begin().await.unwrap();
        Outlast::new().emit(&mut tx, &Ping { n }).await.unwrap();
        tx.commit().await.unwrap();
    }
    assert_eq!(test.emitted::<Ping>().await.len(), 3);
    let idle = test.run_until_idle().await;
    assert_eq!(idle.handled, 1);
    assert_eq!(idle.incidents.len(), 1);
    assert_eq!(idle.incidents[0].reason, "one");
    assert_eq!(test.run_until_idle().await.handled, 0);
    test.advance(Duration::from_secs(3601)).await;
    assert_eq!(test.run_until_idle().await.handled, 1);
}

#[derive(Serialize, Deserialize)]
struct Remind {
    n: i64,
}
impl Job for Remind {
    const NAME: &'static str = "remind";
}

#[tokio::test]
async fn it_runs_jobs_and_its_clock_makes_delayed_and_failed_ones_due() {
    async fn remind(_: (), job: Attempt<Remind>) -> Result<(), Failure> {
        match (job.n, job.number()) {
            (1, _) => Err(Failure::permanent("one")),
            (2, 1) => Err(Failure::retry("not yet").after(Duration::from_secs(3600))),
            _ => Ok(()),
        }
    }
    let given = given().await;
    let worker = Outlast::new()
        .worker(())
        .database(given.database.url())
        .job(remind);
    let test = TestWorker::new(&given.pool, worker).await.unwrap();
    let outlast = Outlast::new();
    let mut tx = given.pool.begin().await.unwrap();
    for n in 0..3 {
        outlast.enqueue(&mut tx, &Remind { n }).await.unwrap();
    }
    let day = Duration::from_secs(24 * 3600);
    let later = Remind { n: 3 };
    outlast.enqueue(&mut tx, &later).after(day).await.unwrap();
    tx.commit().await.unwrap();
    let idle = test.run_until_idle().await;
    assert_eq!((idle.handled, idle.incidents.len()), (1, 1));
    assert_eq!(
        (&*idle.incidents[0].kind, &*idle.incidents[0].reason),
        ("stopped job", "one")
    );
    test.advance(Duration::from_secs(3601)).await;
    assert_eq!(test.run_until_idle().await.handled, 1);
    test.advance(day).await;
    assert_eq!(test.run_until_idle().await.handled, 1);
    assert_eq!(test.run_until_idle().await.handled, 0);
}

#[tokio::test]
async fn a_consumer_on_a_broker_handles_there_what_is_emitted_without_one() {
    async fn any(_: (), _: Attempt<Ping>) -> Result<(), Failure> {
        Ok(())
    }
    let given = given().await;
    let broker = std::sync::Arc::new(outlast_testkit::broker::Memory::new());
    let subscription = outlast_core::broker::Subscription::new("mailer", "orders");
    let consumer = Consumer::new("mailer")
        .from(Start::Earliest)
        .from_broker(broker, subscription)
        .on(any);
    let worker = Outlast::new()
        .worker(())
        .database(given.database.url())
        .consumer(consumer);
    let test = TestWorker::new(&given.pool, worker).await.unwrap();
    given.emit(0..2).await;
    assert_eq!(test.run_until_idle().await.handled, 2);
}
