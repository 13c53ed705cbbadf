//! What the drills of commands share: the provider, who gives commands and writes down what was answered, and who is called back.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Result, ensure};
use axum::{Json, Router, extract::State, http::StatusCode, routing::post};
use futures_util::{StreamExt, stream};
use outlast_checker::{
    facts::{Step, Told},
    orders::{self, Expect, Report},
};
use outlast_core::Resolution;
use outlast_engine::Outlast;
use outlast_postgres::{
    Error,
    tx::{ClientTx, OwnedTx, Pool},
};
use serde::Deserialize;
use tokio::{net::TcpListener, task::JoinHandle, time::Instant};
use tokio_postgres::Client;

use super::{
    did::Journal,
    order::{Order, Receipt, Wanted},
    pools::{self, Isolation},
    server::client,
    world::{LEASE, PATIENCE, Program, World},
};
use crate::{
    process::Process,
    provider::{
        Provider,
        order::{Habits, Kind},
    },
};

/// A worker with commands must know where it is.
pub(super) const DEPLOYMENT: &str = "drill";
/// So long after it is unknown a request cannot be on its way any more: a try takes 2.5 s at most, and its provider looks at
/// the clock. Only then does finding nothing prove something.
const LOOKS_AFTER: &str = "4 s";
/// How many are given at once.
const AT_ONCE: usize = 8;
/// One more look, its answer, and what the product may wait for in between.
const REST: Duration = Duration::from_secs(20);

/// All of it.
pub(super) struct Desk {
    pub(super) world: Arc<World>,
    pub(super) provider: Mutex<Arc<Provider>>,
    ledger: PathBuf,
    pool: deadpool_postgres::Pool,
    journal: Journal,
    /// Who is called back.
    hook: SocketAddr,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Desk {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Desk {
    pub(super) async fn open(world: Arc<World>) -> Result<Self> {
        let named = format!("select outlast._name_deployment('{DEPLOYMENT}')");
        world.client().await?.batch_execute(&named).await?;
        let ledger = world.folder().join("provider");
        let provider = Provider::start(&ledger).await;
        let pool = pools::deadpool(world.url(), Isolation::Committed, AT_ONCE)?;
        let (hook, called) = called_back(pool.clone()).await?;
        let hurries = tokio::spawn(hurry(world.url().to_owned()));
        Ok(Self {
            journal: Journal::create(world.folder(), "given-1")?,
            provider: Mutex::new(Arc::new(provider)),
            ledger,
            pool,
            hook,
            tasks: vec![called, hurries],
            world,
        })
    }

    /// The provider, as it is now.
    pub(super) fn provider(&self) -> Arc<Provider> {
        let provider = self.provider.lock();
        provider.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The provider was killed, and comes again with its books.
    pub(super) async fn provider_again(&self) {
        let port = self.provider().address().port();
        let again = Arc::new(Provider::start_at(&self.ledger, port).await);
        *self.provider.lock().unwrap_or_else(PoisonError::into_inner) = again;
    }

    pub(super) async fn habits(&self, habits: &Habits) {
        self.world.note(format_args!("the provider: {habits:?}"));
        self.provider().has_habits(habits).await;
    }

    /// A sender that was not started yet.
    pub(super) fn sender(&self, name: &str) -> Program<'_> {
        self.world.sender(name, self.provider().address())
    }

    /// The address of who is called back.
    pub(super) fn call_back(&self) -> Option<String> {
        Some(format!("http://{}/told", self.hook))
    }

    /// Gives them all, each in a transaction of its own, until that was answered.
    pub(super) async fn give(&self, wanted: Vec<Wanted>) -> Result<()> {
        let all = stream::iter(wanted).map(|one| async move { self.give_one(&one).await });
        let given: Vec<_> = all.buffer_unordered(AT_ONCE).collect().await;
        given.into_iter().collect()
    }

    /// So many of each kind, from this number on.
    pub(super) async fn give_each(&self, first: i64, count: i64) -> Result<()> {
        let each = Kind::ALL.into_iter().enumerate();
        let wanted = each.flat_map(|(kind, of)| {
            (first..first + count).map(move |n| Wanted::new(of, number(kind, n)))
        });
        self.give(wanted.collect()).await
    }

    async fn give_one(&self, wanted: &Wanted) -> Result<()> {
        let tell = |step, why: Option<String>| {
            self.journal.write(&Told {
                n: wanted.n,
                step,
                why,
            });
        };
        let began = Instant::now();
        tell(Step::Begin, None);
        while began.elapsed() < PATIENCE {
            match self.give_once(wanted).await {
                Ok(()) => {
                    tell(Step::Committed, None);
                    return Ok(());
                }
                // Whatever is not known: the same again is the same command.
                Err(why) => tell(Step::Unknown, Some(why.to_string())),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        anyhow::bail!("order {} was not taken in {PATIENCE:?}", wanted.n)
    }

    async fn give_once(&self, wanted: &Wanted) -> Result<(), Error> {
        let mut tx = Pool::begin(&self.pool).await?;
        wanted.give(&mut tx).await?;
        tx.commit().await
    }

    /// A transaction of an application.
    pub(super) async fn begin(&self) -> Result<ClientTx, Error> {
        Pool::begin(&self.pool).await
    }

    /// Waits until nothing is open any more: ended, or in a person's list.
    pub(super) async fn rests(&self) -> Result<()> {
        let given = self
            .world
            .number("select count(*) from outlast._job")
            .await?;
        let work = Duration::from_millis(40) * u32::try_from(given)?;
        let open = async |client: &Client| {
            let row = client.query_one(orders::OPEN, &[]).await;
            Some(row.ok()?.get::<_, i64>(0))
        };
        self.world.rests_as(LEASE + REST + work, open).await
    }

    /// At the end: waits for rest, stops the senders, and judges.
    pub(super) async fn settle(&self, expect: &Expect) -> Result<Report> {
        self.rests().await?;
        self.world.stop().await;
        self.judge(expect).await
    }

    /// Compares the witnesses as they are now.
    pub(super) async fn judge(&self, expect: &Expect) -> Result<Report> {
        let ledger = crate::provider::order::beside(&self.ledger);
        let sql = self.world.client().await?;
        let facts = orders::read(&sql, self.world.folder(), &ledger).await?;
        let report = orders::judge(&facts, expect);
        if !report.violations.is_empty() {
            // The database is gone when somebody looks.
            std::fs::write(self.world.folder().join("facts.txt"), format!("{facts:#?}"))?;
        }
        for violation in &report.violations {
            self.world.violated(violation);
        }
        self.world.figure(format_args!(
            "{} commands: {} ended, {} a person's; {} were unknown; {} requests, {} effects, {} repeats without one",
            report.commands, report.ended, report.persons, report.unknown, report.requests, report.effects, report.repeats
        ));
        ensure!(report.commands > 0, "no command was given");
        Ok(report)
    }
}

/// The nth order of a kind, in the numbers of all.
pub(super) fn number(kind: usize, n: i64) -> i64 {
    i64::try_from(kind).expect("four kinds") * 1_000_000 + n
}

/// Waits for the end of a process that was killed.
pub(super) async fn gone(process: &Process) {
    process.kill();
    process.exit(PATIENCE).await;
}

/// What is put off comes soon: nobody here waits for minutes. A pause of an account stays.
async fn hurry(url: String) {
    let sql = format!(
        "with hurried as (
           update outlast._job_later x set due_at = outlast.clock()
           where x.id in (
             select l.id from outlast._job_later l join outlast._command m on m.id = l.id
             where l.due_at > outlast.clock() and (m.next <> 'l' or m.unknown_at < outlast.clock() - interval '{LOOKS_AFTER}')
             for update of l skip locked)
           returning x.id)
         select case when count(*) > 0 then nextval('outlast._event_id') end from hurried"
    );
    let mut open: Option<Client> = None;
    loop {
        tokio::time::sleep(Duration::from_millis(250)).await;
        if open.as_ref().is_none_or(Client::is_closed) {
            open = client(&url).await.ok();
        }
        if let Some(client) = &open {
            // The server may be away.
            let _ = client.query_one(&sql, &[]).await;
        }
    }
}

/// What the provider tells.
#[derive(Debug, Deserialize)]
struct End {
    order: u64,
    kind: Kind,
    state: String,
    body: Body,
}

#[derive(Debug, Deserialize)]
struct Body {
    n: i64,
}

/// An application's endpoint for webhooks: 204 only when it is committed.
async fn called_back(pool: deadpool_postgres::Pool) -> Result<(SocketAddr, JoinHandle<()>)> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let app = Router::new().route("/told", post(told)).with_state(pool);
    let serves = tokio::spawn(async move {
        let _ = axum::serve(listener, app).await;
    });
    Ok((address, serves))
}

async fn told(State(pool): State<deadpool_postgres::Pool>, Json(end): Json<End>) -> StatusCode {
    let settled = match end.kind {
        Kind::Keyed => settle::<0>(&pool, &end).await,
        Kind::Grudging => settle::<1>(&pool, &end).await,
        Kind::Looked => settle::<2>(&pool, &end).await,
        Kind::Keyless => settle::<3>(&pool, &end).await,
    };
    match settled {
        Ok(()) => StatusCode::NO_CONTENT,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

async fn settle<const K: usize>(pool: &deadpool_postgres::Pool, end: &End) -> Result<(), Error> {
    let how = match end.state.as_str() {
        "settled" => Resolution::Settled(Receipt { order: end.order }),
        _ => Resolution::Rejected("refused for good".into()),
    };
    let key = format!("order/{}", end.body.n);
    let mut tx = Pool::begin(pool).await?;
    Outlast::new()
        .settle::<Order<K>>(&mut tx, &key, how)
        .await?;
    tx.commit().await
}
