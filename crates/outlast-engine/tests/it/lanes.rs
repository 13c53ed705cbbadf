//! Another number of lanes for a consumer whose workers claim and complete meanwhile.
//!
//! Goal: at no change is an event lost, done twice, or handled before an earlier one of its key. Method: two workers, two
//! tenants with eleven keys each, a backlog that is kept up through every change, and before each change a transaction that
//! has emitted and commits only after it was asked for. Handlers write down in which order they ran.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use outlast_core::Failure;
use outlast_engine::{Attempt, Consumer, Settings, Start};
use outlast_postgres::tx::ClientTx;
use tokio::{sync::mpsc, time::timeout};
use tokio_postgres::Client;

use crate::given::{Given, Ping, Running, SOON, Told, given};

const KEYS: i64 = 11;
/// What is emitted and not completed while lanes change: two workers are never without work.
const BACKLOG: i64 = 150;

fn ordered<S: Clone + Send + Sync + 'static>() -> Consumer<S> {
    Consumer::new("ledger")
        .from(Start::Earliest)
        .ordered()
        .concurrency(4)
}

/// What is emitted, and how much.
struct Load<'a> {
    given: &'a Given,
    emitted: i64,
}

impl Load<'_> {
    /// So many events, numbered on, of this tenant and the keys of the number.
    async fn emit(&mut self, client: &Client, tenant: &str, n: i64) {
        let sql = "select count(*) from outlast.emit_all('ping',
              array(select format('{\"n\":%s}', i) from generate_series($2::bigint, $3::bigint) i),
              array(select 'k' || i % $4 from generate_series($2::bigint, $3::bigint) i), $1)";
        let (first, last) = (self.emitted, self.emitted + n - 1);
        client
            .execute(sql, &[&tenant, &first, &last, &KEYS])
            .await
            .unwrap();
        self.emitted += n;
    }

    async fn done(&self) -> i64 {
        self.given
            .count("select count(*) from outlast._processed_event")
            .await
    }

    /// Emits whenever the backlog shrinks, until a question about the consumer is answered with yes.
    async fn kept_up_until(&mut self, question: &str) {
        let began = Instant::now();
        while self.given.count(question).await == 0 {
            if self.emitted - self.done().await < BACKLOG {
                let tenant = ["one", "two"][(self.emitted / 30 % 2) as usize];
                self.emit(&self.given.sql, tenant, 30).await;
            }
            let waited = began.elapsed();
            assert!(waited < 2 * SOON, "waited {waited:?} for {question}");
            tokio::task::yield_now().await;
        }
    }

    /// Other numbers of lanes, one after the other, up and down.
    async fn change(&mut self, lanes: &[i32]) {
        let late = self.given.database.connect().await;
        self.kept_up_until("select (count(*) > 50)::int::bigint from outlast._processed_event")
            .await;
        for lanes in lanes {
            late.batch_execute("begin").await.unwrap();
            self.emit(&late, "late", 20).await;
            let before = self.done().await;
            let ask = "select outlast.change_lanes('ledger', $1)";
            self.given.sql.execute(ask, &[lanes]).await.unwrap();
            late.batch_execute("commit").await.unwrap();
            // The workers make the change: nobody else claims.
            let there = format!(
                "select count(*) from outlast._consumer where lanes = {lanes} and lanes_wanted is null"
            );
            self.kept_up_until(&there).await;
            let meanwhile = self.done().await - before;
            assert!(
                meanwhile > 0,
                "nothing was completed while lanes changed to {lanes}"
            );
            let more = before + meanwhile + 50;
            self.kept_up_until(&format!(
                "select (count(*) > {more})::int::bigint from outlast._processed_event"
            ))
            .await;
        }
    }
}

async fn stop(workers: Vec<Running>) {
    for worker in workers {
        worker.stop().await.unwrap();
    }
}

/// Writes into the transaction of the completion in which order handlers ran; some first tries fail.
async fn row(_: (), tx: &mut ClientTx, ping: Attempt<Ping>) -> Result<(), Failure> {
    tx.execute("insert into effect values ($1, $2)", &[&ping.id(), &ping.n])
        .await?;
    match ping.n % 101 {
        7 if ping.number() == 1 => Err(Failure::retry("not yet")),
        _ => Ok(()),
    }
}

/// Effects of an event before an earlier one of its tenant and key.
const OUT_OF_ORDER: &str = "select count(*) from (
    select e.id, lag(e.id) over (partition by e.tenant, e.key order by f.nth) as before
    from effect f join outlast._event e on e.event_id = f.event) e where before > id";

#[tokio::test(flavor = "multi_thread")]
async fn lanes_change_up_and_down_under_load_and_transactions_of_two_workers_stay_exact_and_in_order()
 {
    let given = given().await;
    let nth = "alter table effect add column nth bigserial";
    given.sql.batch_execute(nth).await.unwrap();
    let workers = (0..2)
        .map(|_| given.start_with((), ordered().on_tx(&given.pool, row), Settings::default()))
        .collect();
    let mut load = Load {
        given: &given,
        emitted: 0,
    };
    load.change(&[3, 24, 1, 16]).await;
    let emitted = load.emitted;
    given.processed(emitted).await;
    stop(workers).await;
    for (what, sql, is) in [
        ("effects", "select count(*) from effect", emitted),
        ("events", "select count(distinct n) from effect", emitted),
        ("out of order", OUT_OF_ORDER, 0),
        ("parked", "select count(*) from outlast.parked", 0),
        (
            "changes",
            "select count(*) from outlast._audit where action = 'consumer.lanes_changed'",
            4,
        ),
        (
            "deadlocks",
            "select deadlocks from pg_stat_database where datname = current_database()",
            0,
        ),
    ] {
        assert_eq!(given.count(sql).await, is, "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lanes_change_up_and_down_under_load_and_outside_effects_of_two_workers_keep_their_order() {
    async fn tell(told: Told, ping: Attempt<Ping>) -> Result<(), Failure> {
        // Long enough that a change finds lanes with handlers in them.
        tokio::time::sleep(Duration::from_millis(2)).await;
        let _ = told.send(ping.n);
        Ok(())
    }
    let given = given().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let workers = (0..2)
        .map(|_| given.start_with(told.clone(), ordered().on(tell), Settings::default()))
        .collect();
    drop(told);
    let mut load = Load {
        given: &given,
        emitted: 0,
    };
    load.change(&[2, 20, 5]).await;
    let emitted = load.emitted;
    given.processed(emitted).await;
    stop(workers).await;
    let mut heard = Vec::new();
    let all_gone = "the workers are gone, and their handlers with them";
    while let Some(n) = timeout(SOON, hears.recv()).await.expect(all_gone) {
        heard.push(n);
    }
    let tenants =
        "select (convert_from(payload, 'UTF8')::json ->> 'n')::bigint, tenant from outlast._event";
    let rows = given.sql.query(tenants, &[]).await.unwrap();
    let tenant: HashMap<i64, String> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let mut last: HashMap<(&str, i64), i64> = HashMap::new();
    for n in &heard {
        let key = (tenant[n].as_str(), n % KEYS);
        let before = last.insert(key, *n).unwrap_or(-1);
        assert!(before < *n, "{key:?}: {n} after {before}");
    }
    assert_eq!(
        heard.len() as i64,
        emitted,
        "no lease lapsed, so each ran once"
    );
}
