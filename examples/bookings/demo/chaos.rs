//! Kills, while the clients go on: the worker three times, PostgreSQL once, each SIGKILL. With a broker also a relay twice,
//! and the broker once.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::books::Books;
use crate::post::Kind;
use crate::progress::Progress;
use crate::stage::Stage;

/// How long to wait for a worker to be seen working before it is killed anyway.
const BUSY: Duration = Duration::from_secs(10);

/// Who is killed, after which share of the requests, in percent.
const FAULTS: [(usize, Fault); 7] = [
    (15, Fault::Worker),
    (25, Fault::Relay),
    (35, Fault::Worker),
    (45, Fault::Broker),
    (55, Fault::Postgres),
    (65, Fault::Relay),
    (75, Fault::Worker),
];

#[derive(Clone, Copy, Debug)]
enum Fault {
    Worker,
    Postgres,
    /// Only with a broker.
    Relay,
    /// Only with one.
    Broker,
}

/// Keeps the clients from being done before everything was killed that shall be: they meet each kill half-way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// Requests from here on must wait.
    open_to: watch::Sender<usize>,
    finished: watch::Sender<usize>,
}

impl Gate {
    pub(crate) async fn pass(&self, nth: usize) {
        let mut open_to = self.0.open_to.subscribe();
        // The sender lives as long as this gate, so an error cannot come.
        let _ = open_to.wait_for(|limit| nth < *limit).await;
    }

    pub(crate) fn finished(&self) {
        self.0.finished.send_modify(|finished| *finished += 1);
    }

    /// How many requests are over.
    pub(crate) fn done(&self) -> usize {
        *self.0.finished.borrow()
    }

    fn open_to(&self, limit: usize) {
        self.0.open_to.send_replace(limit);
    }

    async fn reached(&self, count: usize) {
        let _ = self
            .0
            .finished
            .subscribe()
            .wait_for(|finished| *finished >= count)
            .await;
    }
}

/// Returns when the last one was killed and is back. The gate is open then.
pub(crate) async fn run(
    seed: u64,
    requests: usize,
    gate: &Gate,
    stage: &mut Stage,
    books: &Books,
    progress: &Progress,
) -> anyhow::Result<()> {
    let mut random = Rng::with_seed(seed);
    let mut seen = 0;
    for (percent, fault) in FAULTS {
        if matches!(fault, Fault::Relay | Fault::Broker) && stage.post().is_none() {
            continue;
        }
        let at = requests * (percent + random.usize(..10)) / 100;
        // So much is still asked for while it happens.
        gate.open_to(at + requests / 20 + 1);
        gate.reached(at).await;
        seen = busy(books, seen).await;
        match fault {
            Fault::Worker => {
                progress.say("SIGKILL to the worker");
                stage.kill_worker().await?;
            }
            Fault::Postgres => {
                progress.say("SIGKILL to PostgreSQL");
                let down = Instant::now();
                stage.kill_postgres().await?;
                progress.say(&format!(
                    "PostgreSQL is back after {:.1} s",
                    down.elapsed().as_secs_f64()
                ));
            }
            Fault::Relay => {
                progress.say("SIGKILL to a relay");
                stage.kill_relay().await?;
            }
            Fault::Broker => kill_broker(stage, progress).await?,
        }
    }
    gate.open_to(usize::MAX);
    Ok(())
}

async fn kill_broker(stage: &mut Stage, progress: &Progress) -> anyhow::Result<()> {
    progress.say("SIGKILL to the broker");
    match stage.kill_broker().await? {
        Kind::Nats => progress.say("NATS is back, with its store"),
        Kind::PubSub => {
            progress.say("the emulator is back, and has forgotten everything: rewinding");
            stage.refill_broker().await?;
            progress.say("what it had was published once more, with the same ids");
        }
    }
    Ok(())
}

/// Waits until the consumers have done more than at the last kill, so that not only idle workers die.
async fn busy(books: &Books, seen: usize) -> usize {
    let deadline = Instant::now() + BUSY;
    loop {
        let handled = books.counts().await.map_or(0, |counts| counts.handled());
        if handled > seen || Instant::now() > deadline {
            return handled.max(seen);
        }
        sleep(Duration::from_millis(10)).await;
    }
}
