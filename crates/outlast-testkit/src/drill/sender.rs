//! The sender process of a drill: a worker with the commands of every kind of provider, as an application would write them.
//!
//! Beside the provider's ledger it is a witness of its own: a line that is on disk before each request leaves, and one after
//! its answer.

use std::{
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::Result;
use clap::Args;
use outlast_checker::orders::{Step, Wire};
use outlast_core::{Command, Failure, Found, Sent};
use outlast_engine::{Attempt, IfUnknown, Outlast, Settings};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    did::Journal,
    order::{NAMES, Order, Receipt},
    worker::log,
};
use crate::provider::{Answer, order::Kind, request};

/// Longer than any run.
const WINDOW: Duration = Duration::from_secs(3600);

/// What a sender process shall do.
#[derive(Args, Clone, Debug)]
pub struct SenderArgs {
    /// Where the engine connects to.
    #[arg(long)]
    pub url: String,
    /// Where its journal goes.
    #[arg(long)]
    pub folder: PathBuf,
    /// Where the provider listens.
    #[arg(long)]
    pub provider: SocketAddr,
    /// How long its leases are.
    #[arg(long, default_value_t = 2000)]
    pub lease_ms: u64,
    /// How long a try may take.
    #[arg(long, default_value_t = 2500)]
    pub deadline_ms: u64,
    /// How many of a name are under way at once.
    #[arg(long, default_value_t = 4)]
    pub concurrency: usize,
    /// How long the provider honours a key.
    #[arg(long, default_value_t = WINDOW.as_millis() as u64)]
    pub window_ms: u64,
    /// The deployment that it is configured for.
    #[arg(long)]
    pub deployment: Option<String>,
    /// It sends to this kind of provider only; to all if it is not said.
    #[arg(long, value_parser = kind)]
    pub only: Option<Kind>,
    /// The process dies with this order on its way, whenever it is sent.
    #[arg(long)]
    pub abort_at: Option<i64>,
}

/// What the handlers of a process share.
struct Site {
    provider: SocketAddr,
    wire: Journal,
    abort_at: Option<i64>,
    pid: i32,
}

type State = Arc<Site>;

/// The sender process: until SIGTERM.
///
/// # Errors
/// What `Worker::run` gives up at.
pub async fn run(args: SenderArgs) -> Result<()> {
    log();
    let pid = i32::try_from(std::process::id())?;
    let settings = Settings {
        lease: Duration::from_millis(args.lease_ms),
        deadline: Duration::from_millis(args.deadline_ms),
        grace: Duration::from_millis(500),
        drain: Duration::from_secs(10),
        concurrency: args.concurrency,
        deployment: args.deployment.clone(),
        ..Settings::default()
    };
    let site = Arc::new(Site {
        provider: args.provider,
        wire: Journal::create(&args.folder, &format!("wire-{pid}"))?,
        abort_at: args.abort_at,
        pid,
    });
    let window = Duration::from_millis(args.window_ms);
    let every = Duration::from_secs(1);
    let mut worker = Outlast::new()
        .worker(site)
        .database(&args.url)
        .settings(settings);
    for kind in Kind::ALL {
        if args.only.is_some_and(|only| only != kind) {
            continue;
        }
        worker = match kind {
            Kind::Keyed => worker
                .command(
                    send::<0>,
                    IfUnknown::resend_within(window)
                        .replays_answers()
                        .then_look_up(find::<0>),
                )
                .poll(every, poll::<0>),
            Kind::Grudging => worker
                .command(
                    send::<1>,
                    IfUnknown::resend_within(window).then_look_up(find::<1>),
                )
                .poll(every, poll::<1>),
            Kind::Looked => worker
                .command(send::<2>, IfUnknown::look_up(find::<2>))
                .poll(every, poll::<2>),
            Kind::Keyless => worker
                .command(send::<3>, IfUnknown::ask_a_person())
                .poll(every, poll::<3>),
        };
    }
    Ok(worker.run().await?)
}

fn kind(word: &str) -> Result<Kind, String> {
    let known = Kind::ALL.into_iter().find(|kind| kind.as_str() == word);
    known.ok_or_else(|| format!("`{word}` is not a kind of provider"))
}

/// One send: what the provider says, in the words of a command.
async fn send<const K: usize>(
    site: State,
    order: Attempt<Order<K>>,
) -> Result<Sent<Receipt>, Failure> {
    let kind = Kind::ALL[K];
    let path = format!("/orders/{}", kind.as_str());
    let until = valid_until(order.deadline());
    let mut headers = vec![("valid-until-ms", until.as_str())];
    if matches!(kind, Kind::Keyed | Kind::Grudging) {
        headers.push(("idempotency-key", order.provider_key()));
    }
    let mut body = json!({
        "reference": order.provider_key(), "n": order.n, "account": order.account, "refuse": order.refuse,
        "undoes": order.undoes,
    });
    if let Some(address) = &order.call_back {
        body["call_back"] = json!(address);
    }
    let body = body.to_string();
    site.tell(&order, Step::Leaves, None);
    if site.abort_at == Some(order.n) {
        // What was written to a socket may have arrived.
        let _ = tokio::time::timeout(
            Duration::from_millis(100),
            request(site.provider, "POST", &path, &headers, &body),
        )
        .await;
        println!("aborts with {} {}", NAMES[K], order.n);
        std::process::abort();
    }
    let asked = request(site.provider, "POST", &path, &headers, &body);
    match tokio::time::timeout_at(order.deadline(), asked).await {
        Ok(Ok(answer)) => {
            site.tell(&order, Step::Answered, Some(answer.status));
            sent(&answer)
        }
        // Nobody was there to take it.
        Ok(Err(why)) if why.kind() == io::ErrorKind::ConnectionRefused => {
            site.tell(&order, Step::NotSent, None);
            Err(Failure::retry(why))
        }
        Ok(Err(why)) => Err(Failure::unknown(format_args!("no whole answer: {why}"))),
        Err(_) => Err(Failure::unknown("no answer in time")),
    }
}

fn sent(answer: &Answer) -> Result<Sent<Receipt>, Failure> {
    let said: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    match answer.status {
        200 => Ok(Sent::Settled(receipt(&said)?)),
        202 => Ok(Sent::Pending {
            reference: receipt(&said)?.order.to_string(),
        }),
        402 | 409 | 422 => Ok(Sent::Rejected(
            said["error"].as_str().unwrap_or("no reason").into(),
        )),
        429 => {
            let after = answer
                .header("retry-after")
                .and_then(|after| after.parse().ok());
            Err(Failure::throttled(Duration::from_secs(after.unwrap_or(1))))
        }
        // It says that it has not begun with it.
        408 | 503 => Err(Failure::retry(format_args!("it answers {}", answer.status))),
        status => Err(Failure::unknown(format_args!("it answers {status}"))),
    }
}

/// By our reference.
async fn find<const K: usize>(
    site: State,
    order: Attempt<Order<K>>,
) -> Result<Found<Receipt>, Failure> {
    let kind = Kind::ALL[K].as_str();
    let path = format!("/orders/{kind}/by/{}", order.provider_key());
    let answer = request(site.provider, "GET", &path, &[], "").await;
    found(&answer.map_err(Failure::retry)?, Found::NotApplied)
}

/// By the number that it gave.
async fn poll<const K: usize>(
    site: State,
    order: Attempt<Order<K>>,
) -> Result<Found<Receipt>, Failure> {
    let number = order.reference().unwrap_or_default();
    let path = format!("/orders/{}/{number}", Kind::ALL[K].as_str());
    let answer = request(site.provider, "GET", &path, &[], "").await;
    found(&answer.map_err(Failure::retry)?, Found::Unsure)
}

fn found(answer: &Answer, none: Found<Receipt>) -> Result<Found<Receipt>, Failure> {
    let said: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    Ok(match answer.status {
        200 => Found::Settled(receipt(&said)?),
        202 => Found::Pending {
            reference: receipt(&said)?.order.to_string(),
        },
        404 => none,
        422 => Found::Rejected(said["error"].as_str().unwrap_or("no reason").into()),
        _ => Found::Unsure,
    })
}

fn receipt(said: &Value) -> Result<Receipt, Failure> {
    let order = said["order"].as_u64();
    let order = order.ok_or_else(|| Failure::unknown("an answer without a number"))?;
    Ok(Receipt { order })
}

/// The deadline by the clock on the wall. In this order: a process that stands still in between is early, not late.
fn valid_until(deadline: Instant) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let left = deadline.saturating_duration_since(Instant::now());
    (now.unwrap_or_default() + left).as_millis().to_string()
}

impl Site {
    fn tell<const K: usize>(&self, order: &Attempt<Order<K>>, step: Step, status: Option<u16>) {
        self.wire.write(&Wire {
            name: Order::<K>::NAME.to_owned(),
            kind: Kind::ALL[K].as_str().to_owned(),
            n: order.n,
            attempt: order.number(),
            step,
            status,
            pid: self.pid,
        });
    }
}
