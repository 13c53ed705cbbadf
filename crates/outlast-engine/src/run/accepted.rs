//! Events that an endpoint has accepted: one look for all of them, again and again, until each has ended.
//!
//! The endpoint completes in a transaction of its own, which tells nobody. While something waits, one task asks for all that
//! waits by one statement: soon after the last acceptance, then less and less often.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use outlast_postgres::store::{Seen, Store};
use tokio::sync::{Notify, oneshot};
use uuid::Uuid;

/// The pauses between looks, from the last acceptance on.
const FIRST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(250);

/// What of one consumer is accepted and open in this process. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Accepted(Arc<Shared>);

struct Shared {
    store: Store,
    consumer: i32,
    open: Mutex<Open>,
    more: Notify,
}

#[derive(Default)]
struct Open {
    waiting: HashMap<(Uuid, Uuid), oneshot::Sender<Seen>>,
    looking: bool,
}

/// Takes what nobody waits for any more out of the next look.
struct Forget<'a>(&'a Shared, (Uuid, Uuid));

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting.remove(&self.1);
    }
}

impl Accepted {
    pub(crate) fn new(store: Store, consumer: i32) -> Self {
        Self(Arc::new(Shared {
            store,
            consumer,
            open: Mutex::default(),
            more: Notify::new(),
        }))
    }

    /// How this event ended under this lease. Waits as long as it is open.
    pub(crate) async fn ended(&self, token: Uuid, id: Uuid) -> Seen {
        let (tell, told) = oneshot::channel();
        let _forget = Forget(&self.0, (token, id));
        let begin = {
            let mut open = self.0.lock();
            open.waiting.insert((token, id), tell);
            !std::mem::replace(&mut open.looking, true)
        };
        if begin {
            tokio::spawn(look(self.0.clone()));
        }
        self.0.more.notify_one();
        // Dropped untold only with the whole process.
        told.await.unwrap_or(Seen::Lost)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything that waits; if nothing does, the look is over.
    fn waiting(&self) -> Option<(Vec<Uuid>, Vec<Uuid>)> {
        let mut open = self.lock();
        open.looking = !open.waiting.is_empty();
        open.looking.then(|| open.waiting.keys().copied().unzip())
    }
}

async fn look(shared: Arc<Shared>) {
    let mut pause = FIRST;
    while let Some((tokens, ids)) = shared.waiting() {
        match shared.store.accepted(shared.consumer, &tokens, &ids).await {
            Ok(ended) => {
                let mut open = shared.lock();
                for (token, id, seen) in ended {
                    if let Some(tell) = open.waiting.remove(&(token, id)) {
                        let _ = tell.send(seen);
                    }
                }
            }
            // Who waits does so until his deadline.
            Err(error) => tracing::debug!(%error, "could not look for completions of endpoints"),
        }
        tokio::select! {
            () = shared.more.notified() => {
                pause = FIRST;
                tokio::time::sleep(FIRST).await;
            }
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST),
        }
    }
}
