//! What runs around every try: the user's own `around`, and our catching of panics.

use super::{Context, Delivery};
use futures_util::FutureExt;
use outlast_core::{Failure, Outcome};
use outlast_postgres::tx::BoxFuture;
use std::{
    any::Any,
    fmt,
    future::{Future, IntoFuture},
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};
use uuid::Uuid;

/// What is about to run, for [`Worker::around`](crate::Worker::around).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct About {
    /// What runs it: `consumer`, `job`.
    pub kind: &'static str,
    /// The consumer's name, or the job's.
    pub name: String,
    /// The event type, or the job's name.
    pub event: String,
    /// The id of the event or job; of a batch, the first one's.
    pub id: Uuid,
    /// Whose it is.
    pub tenant: String,
    /// Which try it is, from 1.
    pub attempt: u32,
    /// How many events: more than one only in a batch.
    pub events: usize,
}

impl About {
    pub(super) fn new(context: &Context, delivery: &Delivery, events: usize) -> Self {
        Self {
            kind: context.kind.as_str(),
            name: context.consumer.to_string(),
            event: delivery.event.name.clone(),
            id: delivery.event.id,
            tenant: delivery.event.tenant.clone(),
            attempt: delivery.number,
            events,
        }
    }
}

/// The handler, not run yet: `.await` runs it.
#[must_use = "the handler runs only if this is awaited"]
pub struct Running<'a> {
    work: BoxFuture<'a, Result<Outcome, Failure>>,
    progress: Arc<Progress>,
}

impl fmt::Debug for Running<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").finish_non_exhaustive()
    }
}

impl<'a> IntoFuture for Running<'a> {
    type Output = Result<Outcome, Failure>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            self.progress.set(Progress::STARTED);
            let result = self.work.await;
            self.progress.set(Progress::ENDED);
            result
        })
    }
}

/// What a user puts around every try.
pub(crate) type Around = Arc<
    dyn for<'a> Fn(&'a About, Running<'a>) -> BoxFuture<'a, Result<Outcome, Failure>> + Send + Sync,
>;

struct Progress(AtomicU8);

impl Progress {
    const STARTED: u8 = 1;
    const ENDED: u8 = 2;

    fn set(&self, to: u8) {
        self.0.store(to, Ordering::Release);
    }

    fn is(&self, what: u8) -> bool {
        self.0.load(Ordering::Acquire) == what
    }
}

/// Runs a handler inside what the user put around it. Panics of both become failures.
pub(super) async fn run<'a>(
    around: Option<&'a Around>,
    about: &'a About,
    work: BoxFuture<'a, Result<Outcome, Failure>>,
) -> Result<Outcome, Failure> {
    let work = Box::pin(caught(work));
    let Some(around) = around else {
        return work.await;
    };
    let progress = Arc::new(Progress(AtomicU8::new(0)));
    let running = Running {
        work,
        progress: progress.clone(),
    };
    let result = caught(async move { around(about, running).await }).await;
    // A handler that was dropped half-way has done half of its work: to call that done would lose the rest.
    if result.is_ok() && progress.is(Progress::STARTED) {
        return Err(Failure::unclassified(
            "around gave up before the handler had ended",
        ));
    }
    result
}

pub(crate) async fn caught<T>(
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(result) => result,
        Err(panic) => Err(failure(panic.as_ref())),
    }
}

/// Runs what is not a future, such as reading a payload by the user's own `upcast`.
pub(crate) fn catch<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    std::panic::catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(failure(panic.as_ref())))
}

fn failure(panic: &(dyn Any + Send)) -> Failure {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Failure::unclassified(format_args!(
        "panicked: {}",
        text.unwrap_or("without a text")
    ))
}
