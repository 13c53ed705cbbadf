//! The demo: the whole application as real processes on a private PostgreSQL, thousands of requests, kills on the way,
//! and at the end the account, taken from outside.
//!
//! | room | what |
//! |---|---|
//! | [`stage`] | the server, the provider, the service and the worker |
//! | [`post`] | with `--broker`: the server of it, and two relays |
//! | [`plan`] | what the clients will ask for, from a seed; [`payloads`] fetches the real input |
//! | [`clients`] | asks for it over HTTP; [`journal`] is what they saw |
//! | [`chaos`] | kills |
//! | [`books`] | what became of it: plain SQL and files |
//! | [`account`] | compares the two; links nothing of the product |

mod account;
mod books;
mod chaos;
mod clients;
mod journal;
mod payloads;
mod plan;
mod post;
mod progress;
mod stage;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::bail;
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use account::Account;
use books::Books;
use chaos::Gate;
use journal::Journal;
use post::Kind;
use progress::Progress;
use stage::Stage;

/// Books tables and takes webhooks while the worker is killed three times and PostgreSQL once; then gives the account.
///
/// With a broker two relays publish what is emitted, and the same consumers read it from there; a relay is killed twice then,
/// and the broker once.
#[derive(Parser)]
#[command(name = "demo")]
struct Arguments {
    /// How many bookings to ask for, beside the webhooks.
    #[arg(long, default_value_t = 2000)]
    requests: usize,
    /// How many clients ask at the same time.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    clients: u16,
    /// The same seed asks for the same things.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A folder with webhook payloads, instead of the npm package: FOLDER/*/index.json, as in the package.
    #[arg(long, value_name = "FOLDER")]
    payloads: Option<PathBuf>,
    /// By way of a broker: nats, or pubsub (Google's emulator).
    #[arg(long, value_name = "BROKER")]
    broker: Option<Kind>,
    /// The last line of stdout is the account as JSON; all else goes to stderr.
    #[arg(long)]
    json: bool,
    /// Keep the journal, the provider's ledger and all logs, also if the account is right.
    #[arg(long)]
    keep: bool,
    /// Leave everything running at the end, to look around, until Ctrl-C.
    #[arg(long)]
    stay: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// True if the account is right.
async fn run(arguments: &Arguments) -> anyhow::Result<bool> {
    // Dropping the future kills what it has started.
    let (mut stage, right) = tokio::select! {
        shown = show(arguments) => shown?,
        () = interrupted() => bail!("interrupted: everything is stopped"),
    };
    if arguments.stay {
        stay(&mut stage).await?;
    }
    stage.strike().await?;
    Ok(right)
}

/// From nothing to the account, with everything still running.
async fn show(arguments: &Arguments) -> anyhow::Result<(Stage, bool)> {
    let started = Instant::now();
    let payloads = payloads::get(arguments.payloads.as_deref()).await?;
    let requests = plan::plan(arguments.requests, payloads, arguments.seed);
    let mut stage = Stage::set(arguments.broker).await?;
    let books = Books::open(&stage)?;
    play(arguments, requests, &mut stage, &books).await?;
    let facts = books.facts().await?;
    let account = Account::of(&facts);
    let seconds = started.elapsed().as_secs_f64();

    let right = account.is_right();
    if !right || arguments.keep {
        let folder = stage.keep()?;
        eprintln!(
            "demo: the journal, the provider's ledger and all logs are kept in {}",
            folder.display()
        );
    }
    let text = account.text(&facts, seconds);
    if arguments.json {
        eprint!("{text}");
        println!(
            "{}",
            account.json(arguments.broker.map(Kind::as_str), seconds)?
        );
    } else {
        print!("{text}");
    }
    Ok((stage, right))
}

/// From the first request until everything is handled.
async fn play(
    arguments: &Arguments,
    requests: Vec<plan::Request>,
    stage: &mut Stage,
    books: &Books,
) -> anyhow::Result<()> {
    let journal = Arc::new(Journal::create(books.journal())?);
    let gate = Gate::default();
    let progress = Progress::new(requests.len(), gate.clone());
    let all = requests.len();
    let clients = clients::start(
        stage.service_url(),
        requests,
        arguments.clients.into(),
        &journal,
        &gate,
    );
    let drive = async {
        chaos::run(arguments.seed, all, &gate, stage, books, &progress).await?;
        clients.await?;
        books.settled(stage, &progress).await
    };
    tokio::select! {
        done = drive => done,
        never = progress.show(books) => match never {},
    }
}

/// Until Ctrl-C. Does also what a supervisor does: a worker that dies is followed by a new one.
async fn stay(stage: &mut Stage) -> anyhow::Result<()> {
    eprintln!("\nEverything is still running. To look around:\n");
    eprintln!("  psql '{}'", stage.database_url());
    eprintln!("    table outlast.consumer;");
    eprintln!(
        "    select type, key, convert_from(payload, 'UTF8') from outlast.event order by log_id desc limit 5;"
    );
    eprintln!("    select * from ledger order by booking desc limit 5;");
    eprintln!(
        "  curl -i {}/bookings -H 'idempotency-key: mine' \\",
        stage.service_url()
    );
    eprintln!(
        "    -H 'content-type: application/json' -d '{{\"guest\":\"me\",\"total\":\"12.50\"}}'"
    );
    eprintln!("  tail -f {}", stage.provider_ledger().display());
    eprintln!("  less {}", stage.journal().display());
    eprintln!(
        "  kill -9 {}    # the worker; another one follows",
        stage.worker_pid()
    );
    if let Some(post) = stage.post() {
        eprintln!(
            "  the broker is at {}; how far its relays are:",
            post.address()
        );
        eprintln!(
            "    outlast relay status --database '{}'",
            stage.database_url()
        );
    }
    eprintln!("\nCtrl-C stops it all.");
    let stopped = interrupted();
    tokio::pin!(stopped);
    loop {
        tokio::select! {
            () = &mut stopped => break,
            next = stage.next_worker() => next?,
        }
        eprintln!(
            "demo: the worker has died; process {} goes on",
            stage.worker_pid()
        );
    }
    eprintln!("demo: stopping");
    Ok(())
}

/// Ctrl-C, or somebody asks us to end, or the terminal is gone.
async fn interrupted() {
    let listen = |kind| signal(kind).expect("signals can be listened for");
    let mut interrupt = listen(SignalKind::interrupt());
    let mut terminate = listen(SignalKind::terminate());
    let mut hangup = listen(SignalKind::hangup());
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
}
