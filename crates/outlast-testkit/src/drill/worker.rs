//! The worker process of a drill: consumers of every form, whose effects can be counted from outside.
//!
//! Transactional handlers write rows of `drill.effect`; those with outside effects write lines that are on disk before
//! they return. What goes wrong comes from the environment (crash points) and from the arguments: slow, failing, gated,
//! dying handlers, and pools that lie about their COMMIT.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use clap::Args;
use outlast_core::{Failure, broker::Broker};
use outlast_engine::{
    Attempt, Consumer, Outlast, Settings, Start,
    crash::{self, Point},
};
use outlast_postgres::tx::{BoxFuture, OwnedTx, Pool, Tx};
use tracing_subscriber::EnvFilter;

use super::{
    did::{self, Child, Deed, Did, Journal},
    grouped::Grouped,
    lie::{Lie, Lying},
    plant::Plant,
    planted::Planted,
    pools::{self, Driver},
    site,
    source::Source,
};
use outlast_checker::facts::Done;

pub use super::spec::{Form, Spec};

/// What a worker process shall do.
#[derive(Args, Clone, Debug)]
pub struct WorkerArgs {
    /// Where the engine connects to.
    #[arg(long)]
    pub url: String,
    /// Where the handlers' pools connect to, if elsewhere: through a proxy.
    #[arg(long)]
    pub pool_url: Option<String>,
    /// Where the outside journals go.
    #[arg(long)]
    pub folder: PathBuf,
    /// Its consumers: `name=form[,isolation][,driver][,ordered]`.
    #[arg(long)]
    pub consumer: Vec<Spec>,
    /// The broker that its consumers read from, instead of the log.
    #[arg(long)]
    pub broker: Option<Source>,
    /// It publishes to that broker; then its consumers, if it has any, read from there too.
    #[arg(long)]
    pub relay: bool,
    /// Does something wrong with that broker.
    #[arg(long)]
    pub plant: Option<Plant>,
    /// The most events in one batch.
    #[arg(long, default_value_t = 1000)]
    pub batch_rows: usize,
    /// The deployment that it is configured for.
    #[arg(long)]
    pub deployment: Option<String>,
    /// How long its leases are.
    #[arg(long, default_value_t = 2000)]
    pub lease_ms: u64,
    /// How long a try may take.
    #[arg(long, default_value_t = 30_000)]
    pub deadline_ms: u64,
    /// How many handlers of a consumer run at once.
    #[arg(long, default_value_t = 4)]
    pub concurrency: usize,
    /// How long each handler works.
    #[arg(long, default_value_t = 0)]
    pub slow_ms: u64,
    /// The first try of each nth intent fails; 0 is none.
    #[arg(long, default_value_t = 0)]
    pub fail_every: i64,
    /// Each nth transaction of a handler's pool is lied about; 0 is none.
    #[arg(long, default_value_t = 0)]
    pub lie_every: u32,
    /// How.
    #[arg(long, default_value = "savepoint")]
    pub lie: Lie,
    /// Each nth handler swallows the error of a statement; 0 is none.
    #[arg(long, default_value_t = 0)]
    pub swallow_every: u32,
    /// The handlers of these intents abort the process.
    #[arg(long)]
    pub abort_at: Vec<i64>,
    /// Effects are written many at a time, and nothing else goes wrong in handlers: for very many events.
    #[arg(long)]
    pub grouped: bool,
    /// How many children each event has that fans out.
    #[arg(long, default_value_t = 3)]
    pub children: i64,
    /// Children are written in transactions of their own: what an application must not do.
    #[arg(long)]
    pub apart: bool,
    /// Handlers say that they are inside, and wait until this file is there.
    #[arg(long)]
    pub gate: Option<PathBuf>,
}

/// What the handlers of a process share.
struct Site {
    args: WorkerArgs,
    outside: Journal,
    /// Instead of that one.
    grouped: Option<Grouped>,
    swallowed: AtomicU32,
    pid: i32,
}

type State = Arc<Site>;

/// What a process of a drill has to say goes to stderr.
pub(super) fn log() {
    let logs = EnvFilter::try_from_env("OUTLAST_LOG")
        .unwrap_or_else(|_| EnvFilter::new("outlast_engine=info,outlast_postgres=info,warn"));
    tracing_subscriber::fmt()
        .with_env_filter(logs)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
}

/// The worker process: until SIGTERM.
///
/// # Errors
/// What `Worker::run` gives up at.
pub async fn run(args: WorkerArgs) -> Result<()> {
    log();
    let pid = i32::try_from(std::process::id())?;
    let settings = Settings {
        lease: Duration::from_millis(args.lease_ms),
        deadline: Duration::from_millis(args.deadline_ms),
        grace: Duration::from_millis(500),
        drain: Duration::from_secs(10),
        concurrency: args.concurrency,
        batch_rows: args.batch_rows,
        heartbeat: match args.relay {
            // Routes are looked for so often.
            true => Duration::from_millis(200),
            false => Settings::default().heartbeat,
        },
        deployment: args.deployment.clone(),
        ..Settings::default()
    };
    let site = Arc::new(Site {
        outside: Journal::create(&args.folder, &format!("outside-{pid}"))?,
        grouped: match args.grouped {
            true => Some(Grouped::create(
                &args.folder,
                &format!("outside-{pid}-grouped"),
            )?),
            false => None,
        },
        swallowed: AtomicU32::new(0),
        pid,
        args,
    });
    let mut worker = Outlast::new()
        .worker(site.clone())
        .database(&site.args.url)
        .settings(settings);
    let broker = match &site.args.broker {
        Some(source) => Some(broker(source, site.args.plant).await?),
        None => None,
    };
    if let Some(broker) = broker.clone().filter(|_| site.args.relay) {
        worker = worker.relay(site::BROKER, broker);
    }
    for spec in &site.args.consumer {
        let consumer = consumer(&site.args, spec, broker.clone())?;
        worker = worker.consumer(match site.args.plant {
            Some(Plant::AckFirst) => consumer.acks_first(),
            _ => consumer,
        });
    }
    Ok(worker.run().await?)
}

async fn broker(source: &Source, plant: Option<Plant>) -> Result<Arc<dyn Broker>> {
    let broker = source.connect().await?;
    Ok(match plant {
        Some(plant) => Arc::new(Planted::new(broker, plant)),
        None => broker,
    })
}

fn consumer(
    args: &WorkerArgs,
    spec: &Spec,
    broker: Option<Arc<dyn Broker>>,
) -> Result<Consumer<State>> {
    let url = args.pool_url.as_ref().unwrap_or(&args.url);
    let (level, size) = (spec.isolation, args.concurrency + 1);
    Ok(match spec.driver {
        Driver::Deadpool => handled(args, spec, broker, pools::deadpool(url, level, size)?),
        Driver::Sqlx => handled(args, spec, broker, pools::sqlx(url, level, size)?),
    })
}

fn handled<P: Pool>(
    args: &WorkerArgs,
    spec: &Spec,
    broker: Option<Arc<dyn Broker>>,
    pool: P,
) -> Consumer<State> {
    let (name, pool) = (
        spec.name.clone(),
        Lying::new(pool, args.lie, args.lie_every),
    );
    let mut consumer = Consumer::new(&name).from(Start::Earliest);
    if spec.ordered {
        consumer = consumer.ordered();
    }
    if let (Some(broker), Some(source)) = (broker, &args.broker) {
        consumer = consumer.from_broker(broker, site::subscription(source.kind, spec));
    }
    match spec.form {
        Form::Outside => consumer.on(move |site: State, did: Attempt<Did>| {
            let name = name.clone();
            async move { site.outside(&name, &did).await }
        }),
        Form::Tx => consumer.on_tx(
            &pool,
            borrowing(move |site: State, tx, did: Attempt<Did>| {
                let name = name.clone();
                Box::pin(async move { site.inside(&name, tx, &did).await })
            }),
        ),
        Form::Child => consumer.on_tx(
            &pool,
            borrowing(move |site: State, tx, child: Attempt<Child>| {
                let name = name.clone();
                Box::pin(async move { site.inside(&name, tx, &child).await })
            }),
        ),
        Form::FanOut => {
            let apart = pool.clone();
            consumer.on_tx(
                &pool,
                borrowing(move |site: State, tx, did: Attempt<Did>| {
                    let (name, apart) = (name.clone(), apart.clone());
                    Box::pin(async move {
                        site.children(tx, &apart, &did).await?;
                        site.inside(&name, tx, &did).await
                    })
                }),
            )
        }
        Form::Batch => consumer.on_batch(
            &pool,
            borrowing(move |site: State, tx, all: Vec<Attempt<Did>>| {
                let name = name.clone();
                Box::pin(async move {
                    if site.grouped.is_some() {
                        return site.all_inside(&name, tx, &all).await;
                    }
                    for did in &all {
                        site.inside(&name, tx, did).await?;
                    }
                    Ok(())
                })
            }),
        ),
        Form::Seal => consumer.on(move |site: State, did: Attempt<Did>| {
            let (name, pool) = (name.clone(), pool.clone());
            async move {
                let mut tx = pool.begin().await?;
                site.inside(&name, &mut tx, &did).await?;
                did.seal(tx).await
            }
        }),
    }
}

/// Tells the compiler that a closure's future may borrow the transaction.
fn borrowing<X, A, F>(f: F) -> F
where
    F: for<'t> Fn(State, &'t mut X, A) -> BoxFuture<'t, Result<(), Failure>>,
{
    f
}

impl Site {
    /// An effect in the transaction of the completion.
    async fn inside(
        &self,
        consumer: &str,
        tx: &mut impl Tx,
        did: &Attempt<impl Deed>,
    ) -> Result<(), Failure> {
        const ROW: &str = "insert into drill.effect (consumer, event_id, n, digest, attempt, pid) \
            values ($1, $2::text::uuid, $3::text::bigint, $4, $5::text::int, $6::text::int)";
        let done = self.done(consumer, did);
        let (id, n) = (done.event_id.to_string(), done.n.to_string());
        let (attempt, pid) = (done.attempt.to_string(), done.pid.to_string());
        let args = [consumer, &id, &n, &done.digest, &attempt, &pid];
        tx.call(ROW, &args.map(Into::into)).await?;
        let every = self.args.swallow_every;
        if every > 0
            && self
                .swallowed
                .fetch_add(1, Ordering::Relaxed)
                .is_multiple_of(every)
        {
            println!("swallows an error in {}", done.event_id);
            let _ = tx.call("select (1 / 0)::text", &[]).await;
        }
        self.work(consumer, did).await
    }

    /// Effects in the transaction of their completions, by one statement.
    async fn all_inside(
        &self,
        consumer: &str,
        tx: &mut impl Tx,
        all: &[Attempt<impl Deed>],
    ) -> Result<(), Failure> {
        const ROWS: &str = "insert into drill.effect (consumer, event_id, n, digest, attempt, pid) \
            select consumer, event_id, n, digest, attempt, pid from json_populate_recordset(null::drill.effect, $1::json)";
        let all: Vec<_> = all.iter().map(|did| self.done(consumer, did)).collect();
        let all = serde_json::to_string(&all).expect("lines can be JSON");
        tx.call(ROWS, &[all.as_str().into()]).await?;
        Ok(())
    }

    /// The children of an event, in the transaction of its completion; a crash may come between any two.
    async fn children<P: Pool>(
        &self,
        tx: &mut impl Tx,
        apart: &P,
        did: &Attempt<Did>,
    ) -> Result<(), Failure> {
        for nth in 0..self.args.children {
            let child = Child::new(did, nth);
            if self.args.apart {
                let mut other = apart.begin().await?;
                did.outlast().emit(&mut other, &child).await?;
                other.commit().await?;
            } else {
                did.outlast().emit(tx, &child).await?;
            }
            crash::at(Point::InHandler);
        }
        Ok(())
    }

    /// An effect outside: on disk before the handler returns.
    async fn outside(&self, consumer: &str, did: &Attempt<impl Deed>) -> Result<(), Failure> {
        let done = self.done(consumer, did);
        if let Some(grouped) = &self.grouped {
            grouped.write(&done).await;
            return Ok(());
        }
        self.outside.write(&done);
        self.work(consumer, did).await
    }

    /// What every handler does beside its effect.
    async fn work(&self, consumer: &str, did: &Attempt<impl Deed>) -> Result<(), Failure> {
        crash::at(Point::InHandler);
        if self.args.abort_at.contains(&did.n()) {
            println!("aborts in {} try {}", did.id(), did.number());
            std::process::abort();
        }
        if let Some(gate) = &self.args.gate {
            println!("inside {consumer} {} try {}", did.id(), did.number());
            while !gate.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        // A sleep of nothing takes a millisecond.
        if self.args.slow_ms > 0 {
            tokio::time::sleep(Duration::from_millis(self.args.slow_ms)).await;
        }
        let every = self.args.fail_every;
        if every > 0 && did.n() / 2 % every == 0 && did.number() == 1 {
            return Err(Failure::retry("told to fail once"));
        }
        Ok(())
    }

    fn done(&self, consumer: &str, did: &Attempt<impl Deed>) -> Done {
        Done {
            consumer: consumer.to_owned(),
            event_id: did.id(),
            n: did.n(),
            digest: did::digest(&**did),
            attempt: i32::try_from(did.number()).unwrap_or(i32::MAX),
            pid: self.pid,
        }
    }
}
