//! Wake-up: one elected process of the database looks for news and tells the others.
//!
//! A look is one statement: the current snapshot, then the last id drawn. There is news when the id moved, or when a
//! transaction that may own a lower id has ended: the sequence alone would miss it. A notification is a hint that comes
//! early or never; everybody looks at least every half second too.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use outlast_core::poll;
use outlast_postgres::{
    Error,
    connect::{self, Target},
    schema::Schema,
    watch::Watch,
};
use tokio::{sync::Notify, time::Instant};
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::record::{self, told};

/// How long the election holds; another process takes over after that.
const ELECTED: Duration = Duration::from_secs(5);
/// A listener that hears nothing proves itself, and looks by itself, at least this often.
const FALLBACK: Duration = Duration::from_millis(500);
/// How long one look may take before its connection is given up.
const LOOK: Duration = Duration::from_secs(5);

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

/// Rings the bell whenever there is news, until the process ends.
pub(crate) async fn watch(bell: Bell, target: Target, process: Uuid) {
    let mut failures: u32 = 0;
    loop {
        match serve(&bell, &target, process, &mut failures).await {
            Ok(()) => {}
            Err(error) => {
                failures = failures.saturating_add(1);
                let pause = record::pause(failures);
                told!(failures, %error, retry_ms = pause.as_millis() as u64, "wake-up connection lost");
                // Whoever waits looks by himself meanwhile.
                bell.ring();
                tokio::time::sleep(pause).await;
            }
        }
    }
}

/// One connection's life.
async fn serve(
    bell: &Bell,
    target: &Target,
    process: Uuid,
    failures: &mut u32,
) -> Result<(), Error> {
    let schema = target.in_schema();
    let (client, mut notifications) = connect::listen(target).await?;
    within(client.batch_execute(&schema.text("listen outlast_wake"))).await??;
    let own = within(client.query_typed("select pg_backend_pid()", &[])).await??;
    let own: Option<i32> = own.first().map(|row| row.get(0));
    *failures = 0;
    let mut elected: Option<Uuid> = None;
    let mut elect_at = Instant::now();
    let mut traffic: Option<Instant> = Some(Instant::now());
    let mut watch = Watch::default();
    loop {
        if Instant::now() >= elect_at {
            elected = elect(&client, schema, process, elected).await?;
            elect_at = Instant::now() + ELECTED / 3;
        }
        let last = watch.last();
        let look =
            within(client.query_typed(&schema.text(Watch::LOOK), &[(&last, Type::INT8)])).await??;
        if watch.news(&look)? {
            traffic = Some(Instant::now());
            bell.ring();
            if elected.is_some() {
                within(client.batch_execute(&schema.text("notify outlast_wake"))).await??;
            }
        }
        let pause = match elected {
            Some(_) => poll::pause(Instant::now().into_std(), traffic.map(Instant::into_std)),
            None => FALLBACK,
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = NUDGED.notified() => traffic = Some(Instant::now()),
            told = notifications.recv() => match told {
                // From the elected process, or from an operator who resumed a consumer.
                Some(by) if Some(by.process_id()) != own => bell.ring(),
                Some(_) => {}
                None => return Err(Error::Unexpected("the wake-up connection was closed".into())),
            }
        }
    }
}

async fn elect(
    client: &tokio_postgres::Client,
    schema: Schema,
    process: Uuid,
    token: Option<Uuid>,
) -> Result<Option<Uuid>, Error> {
    let ms = i32::try_from(ELECTED.as_millis()).unwrap_or(i32::MAX);
    let token = token.unwrap_or_default();
    let rows = within(client.query_typed(
        &schema.text("select outlast._elect($1, $2, $3)"),
        &[
            (&process, Type::UUID),
            (&token, Type::UUID),
            (&ms, Type::INT4),
        ],
    ))
    .await??;
    Ok(rows.first().and_then(|row| row.get(0)))
}

async fn within<T>(work: impl Future<Output = T>) -> Result<T, Error> {
    let stalled = |_| Error::Stalled {
        what: "look for news".into(),
        after: LOOK,
    };
    tokio::time::timeout(LOOK, work).await.map_err(stalled)
}
