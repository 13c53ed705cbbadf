//! The reconciler process of a drill: an application's things are to look alike at a provider, which is a book that all append to.
//!
//! How often a thing was changed is how it looks. What the provider shows is read from the book, which is the truth:
//! `outlast_checker::entities`.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::Result;
use clap::Args;
use outlast_checker::{
    entities::{BOOK, Line, Shown, Step},
    facts::journals,
};
use outlast_core::{Entity, Failure, job::Options};
use outlast_engine::{
    Attempt, Outlast, Settings,
    crash::{self, Point},
};
use serde::{Deserialize, Serialize};

use super::{did::Journal, server::client, worker::log};

/// Something in the application's tables.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Thing {
    pub(super) n: i64,
}

/// What the provider calls it: typed, and with more than a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ref {
    pub(super) n: i64,
    pub(super) name: String,
}

impl Entity for Thing {
    const NAME: &'static str = "drill.thing";
    type Refs = Ref;

    fn key(&self) -> String {
        format!("thing/{}", self.n)
    }

    fn options() -> Options {
        // More than the seeds of a drill make fail: nothing here is put before a person because it was unlucky.
        Options::new()
            .attempts(40)
            .backoff(Duration::from_millis(50), Duration::from_millis(500))
    }
}

/// What a reconciler process shall do.
#[derive(Args, Clone, Debug)]
pub struct MirrorArgs {
    /// Where the database is.
    #[arg(long)]
    pub url: String,
    /// Where the book is.
    #[arg(long)]
    pub folder: PathBuf,
    /// How long its leases are.
    #[arg(long, default_value_t = 2000)]
    pub lease_ms: u64,
    /// How many things it converges at once.
    #[arg(long, default_value_t = 4)]
    pub concurrency: usize,
    /// How long each run takes between reading and writing.
    #[arg(long, default_value_t = 0)]
    pub slow_ms: u64,
    /// A run that has read says that it is inside, and waits until this file is there.
    #[arg(long)]
    pub gate: Option<PathBuf>,
}

/// What the runs of a process share.
struct Site {
    args: MirrorArgs,
    book: Journal,
    pid: i32,
}

type State = Arc<Site>;

/// The reconciler process: until SIGTERM.
///
/// # Errors
/// What `Worker::run` gives up at.
pub async fn run(args: MirrorArgs) -> Result<()> {
    log();
    let settings = Settings {
        lease: Duration::from_millis(args.lease_ms),
        drain: Duration::from_secs(10),
        concurrency: args.concurrency,
        ..Settings::default()
    };
    let url = args.url.clone();
    let site = Arc::new(Site {
        book: Journal::create(&args.folder, BOOK)?,
        pid: i32::try_from(std::process::id())?,
        args,
    });
    let worker = Outlast::new()
        .worker(site)
        .database(&url)
        .settings(settings)
        .reconcile(converge);
    Ok(worker.run().await?)
}

async fn converge(site: State, thing: Attempt<Thing>) -> Result<(), Failure> {
    site.tell(&thing, Step::Began);
    let wanted = site.wanted(thing.n).await?;
    site.inside(&thing).await;
    match (wanted, thing.refs()) {
        (_, Some(gone)) if thing.is_deletion() => {
            if gone.n != thing.n {
                return Err(Failure::permanent(format_args!(
                    "{gone:?} of another thing"
                )));
            }
            site.tell(&thing, Step::Removed(gone.name.clone()));
        }
        (Some(look), known) => site.show(&thing, look, known.cloned()).await?,
        (None, known) => {
            let known = known.map(|known| known.name.clone());
            for name in known.into_iter().chain(site.shown()?.names(thing.n)) {
                site.tell(&thing, Step::Removed(name));
            }
            thing.forget().await?;
        }
    }
    site.tell(&thing, Step::Ended);
    Ok(())
}

impl Site {
    /// A request, on disk when it returns.
    fn tell(&self, thing: &Attempt<Thing>, step: Step) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        self.book.write(&Line {
            n: thing.n,
            fence: thing.fence_number(),
            pid: self.pid,
            at_ms: now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or_default()),
            step,
        });
    }

    /// What the provider shows now.
    fn shown(&self) -> Result<Shown, Failure> {
        let lines: Vec<Line> = journals(&self.args.folder, BOOK).map_err(Failure::retry)?;
        Ok(Shown::after(&lines))
    }

    /// How it should look, read now and on the primary.
    async fn wanted(&self, n: i64) -> Result<Option<i64>, Failure> {
        const SQL: &str = "select (select count(*) from drill.change c where c.n = m.n) from drill.member m where m.n = $1";
        let sql = client(&self.args.url).await.map_err(Failure::retry)?;
        let row = sql.query_opt(SQL, &[&n]).await.map_err(Failure::retry)?;
        Ok(row.map(|row| row.get(0)))
    }

    /// Between reading and writing.
    async fn inside(&self, thing: &Attempt<Thing>) {
        crash::at(Point::InHandler);
        if let Some(gate) = &self.args.gate {
            println!("inside thing {}", thing.n);
            while !gate.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        if self.args.slow_ms > 0 {
            tokio::time::sleep(Duration::from_millis(self.args.slow_ms)).await;
        }
    }

    /// Looks before it makes a second one, and keeps at once what it has made.
    async fn show(
        &self,
        thing: &Attempt<Thing>,
        look: i64,
        known: Option<Ref>,
    ) -> Result<(), Failure> {
        let shown = self.shown()?;
        let known = known.map(|known| known.name).filter(|name| shown.has(name));
        let mut others = shown.names(thing.n).into_iter();
        let name = match known.or_else(|| others.next()) {
            Some(name) => {
                self.tell(thing, Step::Set(name.clone(), look));
                name
            }
            None => {
                let name = format!("{}-{}-{}", thing.n, thing.fence_number(), self.pid);
                self.tell(thing, Step::Made(name.clone(), look));
                name
            }
        };
        let kept = Ref {
            n: thing.n,
            name: name.clone(),
        };
        thing.keep(kept).await?;
        // The application's own copy, with which it deletes.
        const SQL: &str = "insert into drill.named (n, name) values ($1, $2)";
        let sql = client(&self.args.url).await.map_err(Failure::retry)?;
        let named = sql.execute(SQL, &[&thing.n, &name]).await;
        named.map(drop).map_err(Failure::retry)
    }
}
