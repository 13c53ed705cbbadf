//! What the tests begin with: a migrated database, a worker whose handler is an endpoint.

use std::time::Duration;

use outlast_core::endpoint::Endpoint;
use outlast_engine::{Consumer, Outlast, Settings, Start};
use outlast_http::{
    HttpEndpoint,
    egress::{Client, Egress, Net, Rules},
    signature::{Keys, Verifier},
};
use outlast_postgres::{
    Error,
    connect::{self, Target},
};
use outlast_testkit::{
    pg::{self, Database},
    wait_for,
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};
use tokio_postgres::Client as Sql;
use uuid::Uuid;

use crate::server::Got;

/// No test waits longer than this for what it is about.
pub(crate) const SOON: Duration = Duration::from_secs(20);

const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

pub(crate) struct Given {
    pub(crate) database: Database,
    pub(crate) sql: Sql,
    pub(crate) pool: deadpool_postgres::Pool,
}

pub(crate) fn keys() -> Keys {
    KEY.parse().unwrap()
}

pub(crate) fn verifier() -> Verifier {
    Verifier::new(keys())
}

/// May reach loopback.
pub(crate) fn client() -> Client {
    let rules = Rules::new().allow("127.0.0.1".parse::<Net>().unwrap());
    Egress::new(rules).client().unwrap()
}

pub(crate) fn endpoint(url: &str) -> HttpEndpoint {
    HttpEndpoint::new(&client(), url, keys()).unwrap()
}

/// The consumer `shop`, which pushes pings there.
pub(crate) fn shop(endpoint: impl Endpoint) -> Consumer<()> {
    Consumer::new("shop")
        .from(Start::Earliest)
        .push("ping*", endpoint)
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
    }
}

pub(crate) struct Running {
    stop: Option<oneshot::Sender<()>>,
    pub(crate) worker: JoinHandle<Result<(), Error>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.worker.abort();
    }
}

impl Running {
    /// Stops the worker and waits for its drain.
    pub(crate) async fn stop(mut self) {
        let _ = self.stop.take().map(|stop| stop.send(()));
        let ended = tokio::time::timeout(SOON, &mut self.worker).await;
        ended.expect("a worker drains").unwrap().unwrap();
    }
}

impl Given {
    /// Emits pings with these numbers.
    pub(crate) async fn emit(&self, numbers: std::ops::Range<i64>) {
        for n in numbers {
            let payload = format!("{{\"n\":{n}}}");
            self.sql
                .execute("select outlast.emit('ping', $1::text)", &[&payload])
                .await
                .unwrap();
        }
    }

    /// Runs these consumers until the test is done with them.
    pub(crate) fn start(&self, consumers: impl IntoIterator<Item = Consumer<()>>) -> Running {
        let settings = Settings {
            lease: Duration::from_secs(1),
            heartbeat: Duration::from_millis(200),
            ..Settings::default()
        };
        let mut worker = Outlast::new()
            .worker(())
            .database(self.database.url())
            .settings(settings);
        for consumer in consumers {
            worker = worker.consumer(consumer);
        }
        let (stop, stopped) = oneshot::channel();
        let worker = tokio::spawn(worker.run_until(async { _ = stopped.await }));
        Running {
            stop: Some(stop),
            worker,
        }
    }

    pub(crate) async fn count(&self, sql: &str) -> i64 {
        self.sql.query_one(sql, &[]).await.unwrap().get(0)
    }

    /// The first column of every row, as text.
    pub(crate) async fn texts(&self, sql: &str) -> Vec<String> {
        let rows = self.sql.query(sql, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
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
            "select count(*) from outlast.lease where room = any ('{batch,parked}')",
            0,
        )
        .await;
        let sql = "select invariant || ': ' || coalesce(example, '') from outlast._verify() where violations > 0";
        assert_eq!(self.texts(sql).await, Vec::<String>::new());
    }

    /// The class, the charged failures and the reason of the one parked event, once it is in this state.
    pub(crate) async fn parked(&self, state: &str) -> (String, i32, String) {
        let sql = "select class, failures, reason from outlast._parked where state = $1 and token is null";
        wait_for(
            &format!("an event is parked as {state}"),
            SOON,
            async || {
                let row = self.sql.query_opt(sql, &[&state]).await.unwrap()?;
                Some((row.get(0), row.get(1), row.get(2)))
            },
        )
        .await
    }

    /// Completes an event as an endpoint does: with an effect of its own in one transaction.
    pub(crate) async fn complete(&self, got: &Got) -> Result<(), Error> {
        complete(&self.pool, got).await
    }
}

/// The token and the id of what came.
pub(crate) fn ids(got: &Got) -> (Uuid, Uuid) {
    let of = |name| got.header(name).parse().unwrap();
    (of("outlast-token"), of("webhook-id"))
}

pub(crate) async fn complete(pool: &deadpool_postgres::Pool, got: &Got) -> Result<(), Error> {
    let (token, id) = ids(got);
    let mut client = pool.get().await.unwrap();
    let tx = client.transaction().await?;
    tx.execute(
        "insert into effect (event, n) values ($1, $2)",
        &[&id, &got.n()],
    )
    .await?;
    tx.execute("select outlast.complete($1, $2)", &[&token, &id])
        .await?;
    tx.commit().await?;
    Ok(())
}

/// The next request that came.
pub(crate) async fn next(heard: &mut mpsc::UnboundedReceiver<Got>) -> Got {
    let next = tokio::time::timeout(SOON, heard.recv()).await;
    next.expect("a request comes").expect("the server lives")
}

/// A JSON payload of another spelling than ours.
pub(crate) const ODD: &str = "{ \"n\" :7 ,\"big\":3889108265204450030,\"e\":\"\\u20ac\"} ";
