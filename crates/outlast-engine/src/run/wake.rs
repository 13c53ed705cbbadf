//! Wake-up: one elected process of the database looks for news and tells the others.
//!
//! A look is one statement: the current snapshot, then the last id drawn. There is news when the id moved, or when a
//! transaction that may own a lower id has ended: the sequence alone would miss it. A notification is a hint that comes
//! early or never; everybody looks at least every half second too.
//!
//! With the setting `wake = notify` nobody looks while nothing happens. The elected process sleeps under a lock, and
//! whoever emits wakes all who listen (`listener`, functions/wake.sql); each says something to itself every 4 s, to know
//! that it would be heard. What still goes by unnoticed is found by the consumers' own sweep.

mod listener;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use outlast_core::poll;
use outlast_postgres::{Error, connect::Target};
use tokio::{sync::Notify, time::Instant};
use uuid::Uuid;

use super::{
    record::{self, told},
    signal::Stop,
};
use listener::{Heard, Listener};

/// How long the election holds; another process takes over after that.
const ELECTED: Duration = Duration::from_secs(5);
/// Who is not elected looks by himself this often.
const FALLBACK: Duration = Duration::from_millis(500);
/// Who is not elected tries when the election of a silent one has lapsed, and so much later, so that not all do at once.
const TURN: Duration = Duration::from_millis(50);
/// A listener that heard nothing for so long proves itself.
const PROOF: Duration = Duration::from_secs(4);
/// However a connection falls silent, it is noticed and replaced within so long.
const DEAF: Duration = Duration::from_secs(7);
// Invariant: a listener that only notifications do not reach any more fails its proof in time, one that nothing reaches
// has no answer to its next election. The pause before the new connection is a second at most.
const _: () = {
    let pause = Duration::from_secs(1).as_millis();
    assert!(PROOF.as_millis() + listener::ECHO.as_millis() + pause < DEAF.as_millis());
    assert!(ELECTED.as_millis() / 2 + listener::ANSWER.as_millis() + pause < DEAF.as_millis());
};
/// The elected process falls asleep after so long without news: under load never, in a trickle after each event.
const AWAKE: Duration = Duration::from_millis(50);
/// How often it looks while it may not sleep, because somebody who emitted has not ended yet.
const RESTLESS: Duration = Duration::from_millis(5);
/// Events flow, as long as looks come so close one after the other.
const FAST: Duration = Duration::from_millis(2);
/// While events flow a look waits in the server, so long at most: nothing else is heard meanwhile.
const AT_MOST: Duration = Duration::from_millis(20);
/// A connection that lived so long was a good one.
const GOOD: Duration = Duration::from_secs(5);

/// The bell of one process. Cheap to clone; all clones are one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bell {
    rings: Arc<AtomicU64>,
    notify: Arc<Notify>,
}

impl Bell {
    /// Something may have come: everybody who waits looks.
    pub(crate) fn ring(&self) {
        self.rings.fetch_add(1, Ordering::Release);
        self.notify.notify_waiters();
    }

    /// How often it rang; remembered before a look, so that nothing between look and wait is missed.
    pub(crate) fn rings(&self) -> u64 {
        self.rings.load(Ordering::Acquire)
    }

    /// Resolves when it has rung since `seen`.
    pub(crate) async fn rung_since(&self, seen: u64) {
        loop {
            let next = self.notify.notified();
            if self.rings() != seen {
                return;
            }
            next.await;
        }
    }
}

/// Nudges from emits in this process: poll fast for a while.
static NUDGED: Notify = Notify::const_new();

/// Somebody in this process has written an intent and will commit it soon.
pub(crate) fn nudge() {
    NUDGED.notify_one();
}

/// Rings the bell whenever there is news, until the worker drains.
pub(crate) async fn watch(bell: Bell, target: Target, pooled: bool, process: Uuid, stop: Stop) {
    let mut failures: u32 = 0;
    while !stop.is_draining() {
        let began = Instant::now();
        let Err(error) = serve(&bell, &target, pooled, process, &stop).await else {
            return;
        };
        // One that is opened and breaks at once, again and again, must not be opened without pause.
        failures = match began.elapsed() > GOOD {
            true => 1,
            false => failures.saturating_add(1),
        };
        let pause = record::pause(failures);
        told!(failures, %error, retry_ms = pause.as_millis() as u64, "wake-up connection lost");
        // Whoever waits looks by himself meanwhile.
        bell.ring();
        tokio::time::sleep(pause).await;
        bell.ring();
    }
}

/// How this process is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// By looking.
    Poll,
    /// By whoever emits.
    Notify,
    /// It should be by whoever emits, but nothing of that comes here.
    Deaf,
}

/// One connection's life, until the worker drains.
async fn serve(
    bell: &Bell,
    target: &Target,
    pooled: bool,
    process: Uuid,
    stop: &Stop,
) -> Result<(), Error> {
    let mut listener = Listener::open(target, pooled).await?;
    let mut elected: Option<Uuid> = None;
    let mut elect_at = Instant::now();
    let mut traffic = Instant::now();
    // Not yet proven: the first turn of a new connection looks.
    let mut prove_at = Instant::now();
    let mut way = Way::Poll;
    loop {
        if Instant::now() >= elect_at {
            let election = listener.elect(process, elected, ELECTED).await?;
            elected = election.token;
            way = match (way, election.notify) {
                (_, false) => Way::Poll,
                (Way::Poll, true) => listen(&mut listener, target).await?,
                (way, true) => way,
            };
            let again = match way {
                Way::Notify => ELECTED / 2,
                Way::Poll | Way::Deaf => ELECTED / 3,
            };
            // Whoever dies is succeeded as soon as his election has lapsed, not a turn of ours later.
            let lapsed = election
                .left
                .map(|left| left + TURN.mul_f64(1.0 + fastrand::f64()));
            elect_at = Instant::now() + lapsed.map_or(again, |lapsed| lapsed.min(again));
            if elected.is_none() || way != Way::Notify {
                listener.get_up().await?;
            }
        }
        let proven = way != Way::Notify || Instant::now() < prove_at;
        if !proven {
            listener.prove().await?;
            prove_at = Instant::now() + PROOF;
        }
        // Who is told has no need to look, but does when he proves himself.
        let told = way == Way::Notify && proven && (elected.is_none() || listener.is_asleep());
        let waits =
            elected.is_some() && way != Way::Notify && pause(traffic) <= Instant::now() + FAST;
        let most = if waits { AT_MOST } else { Duration::ZERO };
        if !told && look(&mut listener, bell, elected, most).await? {
            traffic = Instant::now();
        }
        let until = match (elected, way) {
            (Some(_), Way::Poll | Way::Deaf) if waits && listener.may_wait() => Instant::now(),
            (Some(_), Way::Notify) if listener.is_asleep() => prove_at,
            (Some(_), Way::Notify) if traffic.elapsed() < AWAKE => pause(traffic),
            (Some(_), Way::Notify) => {
                if listener.lie_down().await? {
                    if look(&mut listener, bell, elected, Duration::ZERO).await? {
                        traffic = Instant::now();
                        listener.get_up().await?;
                    }
                    continue;
                }
                Instant::now() + RESTLESS
            }
            (None, Way::Notify) => prove_at,
            (Some(_), _) => pause(traffic),
            (None, _) => Instant::now() + FALLBACK,
        };
        tokio::select! {
            () = tokio::time::sleep_until(until.min(elect_at)) => {}
            // Whoever emits in this process is heard as well as anybody else.
            () = NUDGED.notified(), if way != Way::Notify => traffic = Instant::now(),
            () = stop.draining() => break,
            told = listener.hear() => match told? {
                Heard::News => {
                    bell.ring();
                    prove_at = Instant::now() + PROOF;
                    if listener.is_asleep() {
                        traffic = Instant::now();
                        listener.get_up().await?;
                    }
                }
                Heard::Resigned => elect_at = Instant::now(),
                Heard::Echo => prove_at = Instant::now() + PROOF,
            }
        }
    }
    if let Some(token) = elected {
        listener.resign(token).await?;
    }
    Ok(())
}

/// When the next look is due, by how long it has been quiet.
fn pause(traffic: Instant) -> Instant {
    let now = Instant::now();
    now + poll::pause(now.into_std(), Some(traffic.into_std()))
}

/// A look, and what follows from news.
async fn look(
    listener: &mut Listener,
    bell: &Bell,
    elected: Option<Uuid>,
    most: Duration,
) -> Result<bool, Error> {
    let news = listener.look(most).await?;
    if news {
        bell.ring();
        if elected.is_some() {
            listener.tell().await?;
        }
    }
    Ok(news)
}

/// Whether this connection can be told of news.
async fn listen(listener: &mut Listener, target: &Target) -> Result<Way, Error> {
    if listener.hears(target).await? {
        return Ok(Way::Notify);
    }
    tracing::warn!(
        "notifications do not come through to this process, as behind a transaction pooler: it polls"
    );
    Ok(Way::Deaf)
}
