//! A worker for tests: no threads, no waiting, a clock that the test moves.

use std::{sync::Arc, time::Duration};

use outlast_core::{Codec, Event, codec::About};
use outlast_postgres::{
    Error, connect, migrate,
    schema::Schema,
    store::{Claim, Place, Rooms, Store},
    tx::{Pool, Tx},
};
use tokio::{sync::Semaphore, time::Instant};
use tokio_postgres::{Client, types::Type};

use crate::{
    Worker,
    run::{
        self, batch,
        consumer::{Consumer, Room},
        destination::{Destination, Purpose},
        job::Jobs,
        leases::Leases,
        never,
    },
};

/// Runs a [`Worker`]'s consumers, jobs, commands and entities in the calling task, against a real database of the test's own.
///
/// The database is the one that `pool` leads to, reached by the worker's own connections through
/// `OUTLAST_DATABASE_URL` or `DATABASE_URL`; the schema is installed if it is not there. Its clock becomes the test's:
/// [`TestWorker::advance`] moves it. A database with a deployment name is refused. A consumer on a broker reads the log here:
/// its handlers are the same.
pub struct TestWorker<S> {
    client: Client,
    schema: Schema,
    consumers: Vec<Consumer<S>>,
    jobs: Jobs<S>,
    codec: Option<Arc<dyn Codec>>,
}

impl<S> std::fmt::Debug for TestWorker<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.consumers.iter().map(|consumer| &consumer.name);
        f.debug_list().entries(names).finish()
    }
}

/// What [`TestWorker::run_until_idle`] did.
#[derive(Clone, Debug)]
pub struct Idle {
    /// How many events were completed, counted once per consumer, and jobs; and how many times an entity was converged.
    pub handled: usize,
    /// What needs a person now.
    pub incidents: Vec<Incident>,
}

/// Something that a machine cannot resolve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incident {
    /// What kind: `quarantined event`, `stopped job`, `stopped entity`.
    pub kind: String,
    /// The last failure's reason.
    pub reason: String,
}

impl<S: Clone + Send + Sync + 'static> TestWorker<S> {
    /// Installs the schema, gives it a clock that the test moves, and registers the worker's consumers. Committed when
    /// it returns.
    ///
    /// # Errors
    /// [`Error::Config`] when the database has a deployment name, or none of the two variables is set.
    pub async fn new<P: Pool>(pool: &P, worker: Worker<S>) -> Result<Self, Error> {
        let mut tx = pool.begin().await?;
        let name = tx.call("select current_database()::text", &[]).await?;
        drop(tx);
        let mut plan = worker.into_plan();
        // What is emitted here is handled here: a broker would only stand between the two.
        for consumer in &mut plan.consumers {
            consumer.source = None;
        }
        let codec = plan.codec.clone();
        let target = plan.target()?;
        let target = match name.into_iter().next().flatten() {
            Some(name) => target.database(&name),
            None => target,
        };
        let (mut client, _driver) = connect::connect(&target).await?;
        let schema = target.in_schema();
        migrate::of(schema).run(&mut client, |_| {}).await?;
        own_clock(&client, schema).await?;
        let place = Place::new(None).schema(schema);
        let store = Store::new(connect::pool(&target, 2)?, place);
        // Nobody renews here: one batch runs at a time, and a test's handler may take its time.
        let leases = Leases::new(Duration::from_secs(300));
        let (common, planned, jobs, _) = run::register::Common::of(plan, &store, &leases);
        let consumers = run::register::register(&common, planned).await?;
        Ok(Self {
            client,
            schema,
            consumers,
            jobs: Jobs::new(&common, jobs),
            codec,
        })
    }

    /// Runs everything that is due: consumers in the order of their registration, events in the order of the log, then jobs,
    /// commands and entities in the order of their names' registration, one at a time, until nobody finds anything. What waits for a later time stays: see [`TestWorker::advance`].
    ///
    /// # Panics
    /// When the database fails.
    pub async fn run_until_idle(&self) -> Idle {
        let mut handled = 0;
        loop {
            let mut found = false;
            for consumer in &self.consumers {
                while let Some(done) = one(consumer).await.expect("a test database answers") {
                    found = true;
                    handled += done;
                }
            }
            while let Some(done) = one_job(&self.jobs).await.expect("a test database answers") {
                found = true;
                handled += done;
            }
            if !found {
                break;
            }
        }
        Idle {
            handled,
            incidents: self.incidents().await,
        }
    }

    /// Moves the clock of this database: leases lapse, what waits becomes due.
    ///
    /// # Panics
    /// When the database fails.
    pub async fn advance(&self, by: Duration) {
        let seconds = by.as_secs_f64();
        let sql =
            "update outlast._test_clock set ahead = ahead + make_interval(secs => $1) returning 1";
        self.query(sql, &[(&seconds, Type::FLOAT8)]).await;
    }

    /// Every event of this type that was emitted and committed, in the order of the log, decoded by the worker's codec.
    ///
    /// # Panics
    /// When one cannot be read as `E`.
    pub async fn emitted<E: Event>(&self) -> Vec<E> {
        let rows = self
            .query(
                "select payload, codec_key, version::int, tenant, key from outlast.event where type = $1 order by log_id",
                &[(&E::NAME, Type::TEXT)],
            )
            .await;
        let mut events = Vec::with_capacity(rows.len());
        for row in &rows {
            let read = self.plain::<E>(row).await;
            events.push(
                read.unwrap_or_else(|why| panic!("an event `{}` cannot be read: {why}", E::NAME)),
            );
        }
        events
    }

    async fn plain<E: Event>(&self, row: &tokio_postgres::Row) -> Result<E, String> {
        let (stored, key): (&[u8], Option<&str>) = (row.get(0), row.get(1));
        let decoded;
        let plain = match key {
            None => stored,
            Some(key) => {
                let codec = self.codec.as_ref().ok_or("the worker has no codec")?;
                let version = u16::try_from(row.get::<_, i32>(2)).unwrap_or(u16::MAX);
                let about = About::new(E::NAME, version, row.get(3), row.get(4));
                decoded = codec.decode(&about, key, stored).await;
                decoded.as_deref().map_err(ToString::to_string)?
            }
        };
        serde_json::from_slice(plain).map_err(|error| error.to_string())
    }

    /// The one event of this type.
    ///
    /// # Panics
    /// With the payloads, unless there is exactly one.
    pub async fn only<E: Event>(&self) -> E {
        let mut events = self.emitted::<E>().await;
        match (events.pop(), events.len()) {
            (Some(event), 0) => event,
            (last, before) => {
                let all: Vec<String> = events
                    .iter()
                    .chain(last.as_ref())
                    .map(|e| serde_json::to_string(e).unwrap_or_default())
                    .collect();
                panic!(
                    "{} events `{}`, not one: {all:#?}",
                    before + usize::from(last.is_some()),
                    E::NAME
                )
            }
        }
    }

    async fn incidents(&self) -> Vec<Incident> {
        let rows = self
            .query(
                "select kind, coalesce(reason, '') from outlast.incident order by opened_at",
                &[],
            )
            .await;
        rows.iter()
            .map(|row| Incident {
                kind: row.get(0),
                reason: row.get(1),
            })
            .collect()
    }

    async fn query(
        &self,
        sql: &str,
        args: &[(&(dyn tokio_postgres::types::ToSql + Sync), Type)],
    ) -> Vec<tokio_postgres::Row> {
        self.client
            .query_typed(&self.schema.text(sql), args)
            .await
            .expect("a test database answers")
    }
}

/// One claim of one consumer, run to its end; how many events were completed, or none if there was nothing.
async fn one<S: Clone + Send + Sync + 'static>(
    consumer: &Consumer<S>,
) -> Result<Option<usize>, Error> {
    let lease = consumer.leases.length();
    let asked = Instant::now();
    let (types, versions) = consumer.registry.takes();
    let mut claim = consumer.store.reclaim(consumer.id, 1, lease).await?;
    if claim.events.is_empty() {
        claim = consumer
            .store
            .claim_parked(consumer.id, 1, lease, types, versions)
            .await?;
    }
    while claim.events.is_empty() {
        claim = consumer
            .store
            .claim(
                consumer.id,
                consumer.bounds(consumer.settings.batch_rows, Room::ONE),
            )
            .await?;
        if !claim.more {
            break;
        }
    }
    let Claim { events, .. } = claim;
    if events.is_empty() {
        return Ok(None);
    }
    let slots = Arc::new(Semaphore::new(1));
    let consumer = Consumer {
        destination: Destination::unwatched(),
        ..consumer.clone()
    };
    let ended = batch::run(&consumer, &slots, (events, Purpose::Work), asked, &never()).await;
    Ok(Some(ended.done))
}

/// One job, or one convergence, run to its end: of the first name that has one. How many were completed, or none if there was nothing.
async fn one_job<S: Clone + Send + Sync + 'static>(jobs: &Jobs<S>) -> Result<Option<usize>, Error> {
    jobs.store.reclaim_jobs(1).await?;
    jobs.store.promote(1000).await?;
    for name in &jobs.names {
        let asked = Instant::now();
        let mut rooms = Rooms::default();
        name.ask_for_one(&mut rooms);
        let taken = jobs.claim(&rooms).await?;
        if taken.is_empty() {
            continue;
        }
        let (consumer, slots) = name.runs();
        let work = taken.into_iter().map(|one| one.work).collect();
        let batch = (work, Purpose::Work);
        let ended = batch::run(&consumer, &slots, batch, asked, &never()).await;
        return Ok(Some(ended.done));
    }
    Ok(None)
}

/// Replaces the one clock of this schema by one that a test can move.
async fn own_clock(client: &Client, schema: Schema) -> Result<(), Error> {
    let named = client
        .query_typed(&schema.text("select deployment from outlast._house"), &[])
        .await?;
    if let Some(name) = named
        .first()
        .and_then(|row| row.get::<_, Option<String>>(0))
    {
        return Err(Error::Config(format!(
            "this database is deployment `{name}`, not a test's own"
        )));
    }
    client
        .batch_execute(&schema.text(
            "update outlast._house set database_oid = (select oid from pg_catalog.pg_database where datname = current_database());
             create table if not exists outlast._test_clock (ahead interval not null);
             grant select on outlast._test_clock to public;
             insert into outlast._test_clock select '0' where not exists (select from outlast._test_clock);
             create or replace function outlast.clock() returns timestamptz language sql volatile as
               $$ select clock_timestamp() + ahead from outlast._test_clock $$",
        ))
        .await?;
    Ok(())
}
