//! What the tests begin with: a migrated database, an event type, a worker that runs until the test is done with it.

use std::time::Duration;

use outlast_core::Event;
use outlast_engine::{Consumer, Outlast, Settings, Worker};
use outlast_postgres::{
    Error,
    connect::{self, Target},
};
use outlast_testkit::{
    pg::{self, Database},
    wait_for,
};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};
use tokio_postgres::Client;

/// No test waits longer than this for what it is about.
pub(crate) const SOON: Duration = Duration::from_secs(20);

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ping {
    pub(crate) n: i64,
}

impl Event for Ping {
    const NAME: &'static str = "ping";
}

/// What the handlers of a test get: a way to tell it what they did.
pub(crate) type Told = mpsc::UnboundedSender<i64>;

pub(crate) struct Given {
    pub(crate) database: Database,
    pub(crate) sql: Client,
    pub(crate) pool: deadpool_postgres::Pool,
    /// What the database is called, where it is called something.
    pub(crate) deployment: Option<String>,
}

pub(crate) async fn given() -> Given {
    let database = pg::outlast().await;
    let sql = database.connect().await;
    sql.batch_execute("create table effect (event uuid not null, n bigint not null)")
        .await
        .unwrap();
    let pool = connect::pool(&Target::parse(database.url()).unwrap(), 8).unwrap();
    Given {
        database,
        sql,
        pool,
        deployment: None,
    }
}

/// The same, with a name: what workers with commands ask for.
pub(crate) async fn named() -> Given {
    let given = given().await;
    let name = "select outlast._name_deployment('tests')";
    given.sql.batch_execute(name).await.unwrap();
    Given {
        deployment: Some("tests".into()),
        ..given
    }
}

pub(crate) struct Running {
    stop: Option<oneshot::Sender<()>>,
    pub(crate) worker: JoinHandle<Result<(), Error>>,
}

impl Given {
    /// Emits pings with these numbers, each in a transaction of its own.
    pub(crate) async fn emit(&self, numbers: std::ops::Range<i64>) {
        for n in numbers {
            let payload = format!("{{\"n\":{n}}}");
            self.sql
                .execute("select outlast.emit('ping', $1::text)", &[&payload])
                .await
                .unwrap();
        }
    }

    /// Times that let a test see a lease lapse.
    pub(crate) fn settings() -> Settings {
        Settings {
            lease: Duration::from_secs(1),
            heartbeat: Duration::from_millis(200),
            ..Settings::default()
        }
    }

    pub(crate) fn start<S: Clone + Send + Sync + 'static>(
        &self,
        state: S,
        consumer: Consumer<S>,
    ) -> Running {
        self.start_with(state, consumer, Self::settings())
    }

    pub(crate) fn start_with<S: Clone + Send + Sync + 'static>(
        &self,
        state: S,
        consumer: Consumer<S>,
        settings: Settings,
    ) -> Running {
        self.start_at(self.database.url(), state, consumer, settings)
    }

    /// Through a proxy, say.
    pub(crate) fn start_at<S: Clone + Send + Sync + 'static>(
        &self,
        url: &str,
        state: S,
        consumer: Consumer<S>,
        settings: Settings,
    ) -> Running {
        let settings = Settings {
            deployment: settings.deployment.or_else(|| self.deployment.clone()),
            ..settings
        };
        let worker = Outlast::new()
            .worker(state)
            .database(url)
            .settings(settings)
            .consumer(consumer);
        Self::run(worker)
    }

    /// Whatever it does.
    pub(crate) fn run<S: Clone + Send + Sync + 'static>(worker: Worker<S>) -> Running {
        let (stop, stopped) = oneshot::channel();
        let worker = tokio::spawn(async move {
            let ended = worker.run_until(async { _ = stopped.await }).await;
            if let Err(error) = &ended {
                eprintln!("the worker ended: {error}");
            }
            ended
        });
        Running {
            stop: Some(stop),
            worker,
        }
    }

    /// One number of a query, such as a count.
    pub(crate) async fn count(&self, sql: &str) -> i64 {
        self.sql.query_one(sql, &[]).await.unwrap().get(0)
    }

    /// Waits until a count is what it should be.
    pub(crate) async fn until(&self, sql: &str, is: i64) {
        wait_for(&format!("{is} = {sql}"), SOON, async || {
            (self.count(sql).await == is).then_some(())
        })
        .await;
    }

    /// Waits until this many events are processed and nothing is in flight.
    pub(crate) async fn processed(&self, n: i64) {
        self.until("select count(*) from outlast.processed", n)
            .await;
        self.until(
            "select count(*) from outlast.lease where room <> 'poller'",
            0,
        )
        .await;
        self.verified().await;
    }

    /// Waits until what leaves the database waits for a person.
    pub(crate) async fn held(&self) {
        let held = "select count(*) from outlast._house where held is not null";
        self.until(held, 1).await;
    }

    /// The person.
    pub(crate) async fn confirm(&self) {
        let sql = "select outlast._confirm('a test')";
        self.sql.batch_execute(sql).await.unwrap();
    }

    /// All invariants hold.
    pub(crate) async fn verified(&self) {
        let sql = "select invariant || ': ' || coalesce(example, '') from outlast._verify() where violations > 0";
        let broken: Vec<String> = self
            .sql
            .query(sql, &[])
            .await
            .unwrap()
            .iter()
            .map(|row| row.get(0))
            .collect();
        assert_eq!(broken, Vec::<String>::new());
    }
}

impl Running {
    /// Waits until the consumer is registered, so that what is emitted from now on is its.
    pub(crate) async fn registered(&self, given: &Given) {
        given
            .until("select count(*) from outlast.consumer", 1)
            .await;
    }

    /// The same, where there are several.
    pub(crate) async fn registered_as(&self, given: &Given, name: &str) {
        let sql = format!("select count(*) from outlast.consumer where name = '{name}'");
        given.until(&sql, 1).await;
    }

    /// Stops the worker and waits for its drain.
    pub(crate) async fn stop(mut self) -> Result<(), Error> {
        self.ask_to_stop();
        tokio::time::timeout(SOON, &mut self.worker)
            .await
            .expect("a worker drains")
            .unwrap()
    }

    pub(crate) fn ask_to_stop(&mut self) {
        let _ = self.stop.take().map(|stop| stop.send(()));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.worker.abort();
    }
}

/// The next thing that a handler told.
pub(crate) async fn next(told: &mut mpsc::UnboundedReceiver<i64>) -> i64 {
    tokio::time::timeout(SOON, told.recv())
        .await
        .expect("a handler runs")
        .expect("the worker lives")
}
