//! The client process of a drill: business rows and emits in one transaction, and a journal of what it was told.
//!
//! It is an application as the README tells people to write one. Before BEGIN and after COMMIT it writes a line and
//! waits for the disk; what it was not told, it asks by doing the same again under the same dedup key, if it has one.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use clap::Args;
use futures_util::future::try_join_all;
use outlast_checker::facts::{Step, Told};
use outlast_engine::Outlast;
use outlast_postgres::{
    Error,
    tx::{OwnedTx, Pool, Tx},
};

use super::{
    did::{Did, Journal},
    pools::{self, Driver, Isolation},
};

static OUTLAST: Outlast = Outlast::new();

/// After that long without success a client gives up: the drill has hung.
const PATIENCE: Duration = Duration::from_secs(90);

/// What a client process shall do.
#[derive(Args, Clone, Debug)]
pub struct ClientArgs {
    /// Where to connect to.
    #[arg(long)]
    pub url: String,
    /// Where the journal goes.
    #[arg(long)]
    pub folder: PathBuf,
    /// Tells its journal and its numbers from other processes'.
    #[arg(long)]
    pub number: i64,
    /// How many write at once.
    #[arg(long, default_value_t = 2)]
    pub clients: i64,
    /// How many transactions each of them makes.
    #[arg(long, default_value_t = 20)]
    pub transactions: i64,
    /// Where its chances come from.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Which driver.
    #[arg(long, default_value = "deadpool")]
    pub driver: Driver,
    /// Every intent has a dedup key, and what was not answered is tried again under it.
    #[arg(long)]
    pub dedup: bool,
    /// Some transactions roll back: by hand, to a savepoint, or because of a statement that failed.
    #[arg(long)]
    pub mixed: bool,
    /// How long COMMIT may take before its caller looks elsewhere.
    #[arg(long, default_value_t = 30_000)]
    pub commit_ms: u64,
    /// The longest pause between emit and COMMIT.
    #[arg(long, default_value_t = 15)]
    pub pause_ms: u64,
    /// No transaction is begun after so long; 0: however long it takes.
    #[arg(long, default_value_t = 0)]
    pub seconds: u64,
    /// The events of these intents cannot be sent to any broker: one has a header that is too long for Pub/Sub, all have a
    /// text that is too long for the stream of the drill.
    #[arg(long)]
    pub poison_at: Vec<i64>,
}

/// A text that is longer than the stream of a drill takes.
pub(super) const POISON: usize = 40_000;
/// The value of a header that is longer than Pub/Sub takes.
const POISON_HEADER: usize = 1_100;

/// How a transaction is meant to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    Commit,
    RollBack,
    /// Commits, but not the second intent, which was written after a savepoint.
    Savepoint,
    /// A statement fails, its error is swallowed, and COMMIT is sent all the same.
    Failed,
}

/// How it did end.
#[derive(Debug)]
enum End {
    Committed,
    RolledBack(Option<Error>),
    Unknown,
}

/// The client process.
///
/// # Errors
/// When it could not bring its transactions to an end.
pub async fn run(args: ClientArgs) -> Result<()> {
    match args.driver {
        Driver::Deadpool => all(&args, &pools::deadpool(&args.url, Isolation::Committed, 8)?).await,
        Driver::Sqlx => all(&args, &pools::sqlx(&args.url, Isolation::Committed, 8)?).await,
    }?;
    println!("client {} is done", args.number);
    Ok(())
}

async fn all<P: Pool>(args: &ClientArgs, pool: &P) -> Result<()> {
    let journal = &Journal::create(&args.folder, &format!("client-{}", args.number))?;
    let began = Instant::now();
    let clients = (0..args.clients).map(|client| async move {
        let first = args.number * 1_000_000 + client * 10_000;
        let mut rng = fastrand::Rng::with_seed(args.seed ^ u64::try_from(first)?);
        for n in 0..args.transactions {
            if args.seconds > 0 && began.elapsed() >= Duration::from_secs(args.seconds) {
                break;
            }
            // Two numbers each: a savepoint needs a second one.
            intent(args, pool, journal, first + 2 * n, &mut rng).await?;
        }
        anyhow::Ok(())
    });
    try_join_all(clients).await.map(drop)
}

/// One transaction, as often as it takes.
async fn intent<P: Pool>(
    args: &ClientArgs,
    pool: &P,
    journal: &Journal,
    n: i64,
    rng: &mut fastrand::Rng,
) -> Result<()> {
    let tell = |n, step, why: Option<String>| journal.write(&Told { n, step, why });
    let plan = match (args.mixed, rng.u32(..10)) {
        (true, 0 | 1) => Plan::RollBack,
        (true, 2) => Plan::Savepoint,
        // sqlx takes ROLLBACK for an answer to COMMIT.
        (true, 3) if args.driver == Driver::Deadpool => Plan::Failed,
        _ => Plan::Commit,
    };
    let (mut did, inner) = (Did::new(n, rng), Did::new(n + 1, rng));
    if args.poison_at.contains(&n) {
        did.text = "x".repeat(POISON);
    }
    let pause = Duration::from_millis(rng.u64(..=args.pause_ms));
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        tell(n, Step::Begin, None);
        if plan == Plan::Savepoint {
            tell(inner.n, Step::Begin, None);
        }
        let end = once(args, pool, plan, &did, &inner, pause).await;
        if plan == Plan::Savepoint {
            tell(inner.n, Step::RolledBack, None);
        }
        match end {
            End::Committed if plan == Plan::Failed => {
                bail!("{n}: a failed transaction was said to be committed")
            }
            End::Committed => {
                tell(n, Step::Committed, None);
                return Ok(());
            }
            End::RolledBack(why) => {
                let planned = matches!(plan, Plan::RollBack | Plan::Failed);
                tell(n, Step::RolledBack, why.as_ref().map(ToString::to_string));
                if planned && matches!(why, None | Some(Error::RolledBack)) {
                    return Ok(());
                }
            }
            End::Unknown => {
                println!("unknown {n}");
                tell(n, Step::Unknown, None);
                if !args.dedup {
                    return Ok(());
                }
            }
        }
        // The server may be away.
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    bail!("{n}: no end after {PATIENCE:?}")
}

async fn once<P: Pool>(
    args: &ClientArgs,
    pool: &P,
    plan: Plan,
    did: &Did,
    inner: &Did,
    pause: Duration,
) -> End {
    let mut tx = match pool.begin().await {
        Ok(tx) => tx,
        Err(error) => return End::RolledBack(Some(error)),
    };
    if let Err(error) = write(args, &mut tx, plan, did, inner).await {
        drop(tx);
        return End::RolledBack(Some(error));
    }
    // What else an application does between emit and COMMIT; meanwhile others draw higher ids.
    tokio::time::sleep(pause).await;
    if plan == Plan::RollBack {
        // Not answered is rolled back too: COMMIT was never sent.
        let _ = tx.rollback().await;
        return End::RolledBack(None);
    }
    let patience = Duration::from_millis(args.commit_ms);
    match tokio::time::timeout(patience, tx.commit()).await {
        Ok(Ok(())) => End::Committed,
        Ok(Err(Error::CommitUnknown(_))) | Err(_) => End::Unknown,
        Ok(Err(error)) => End::RolledBack(Some(error)),
    }
}

async fn write(
    args: &ClientArgs,
    tx: &mut impl Tx,
    plan: Plan,
    did: &Did,
    inner: &Did,
) -> Result<(), Error> {
    both(args, tx, did).await?;
    match plan {
        Plan::Commit | Plan::RollBack => {}
        Plan::Savepoint => {
            tx.call("savepoint here", &[]).await?;
            both(args, tx, inner).await?;
            tx.call("rollback to savepoint here", &[]).await?;
        }
        Plan::Failed => {
            let swallowed = tx.call("select (1 / 0)::text", &[]).await;
            assert!(swallowed.is_err(), "a division by zero fails");
        }
    }
    Ok(())
}

/// The event and the business row, or neither if the intent is there already.
async fn both(args: &ClientArgs, tx: &mut impl Tx, did: &Did) -> Result<(), Error> {
    const ROW: &str = "insert into drill.business (n, event_id, digest) values ($1::text::bigint, $2::text::uuid, $3)";
    let mut emit = OUTLAST.emit(tx, did);
    if args.poison_at.contains(&did.n) {
        emit = emit.header("poison", "x".repeat(POISON_HEADER));
    }
    if args.dedup {
        emit = emit.dedup(format!("intent/{}", did.n));
    }
    let accepted = emit.await?;
    if accepted.new {
        let (n, id, digest) = (did.n.to_string(), accepted.id.to_string(), did.digest());
        tx.call(
            ROW,
            &[
                n.as_str().into(),
                id.as_str().into(),
                digest.as_str().into(),
            ],
        )
        .await?;
    }
    Ok(())
}
