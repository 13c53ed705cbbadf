//! What shall go wrong, when, and how a test hears of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::wire::is_commit;

/// How long a test waits for a fault before it gives up.
const PATIENCE: Duration = Duration::from_secs(30);

/// Which statement meets the fault.
#[derive(Clone, Debug)]
pub enum When {
    /// `COMMIT` or `END` of a transaction, in a simple query or as a prepared statement.
    Commit,
    /// A statement whose text contains this: for work that commits by itself.
    Contains(String),
}

impl When {
    fn matches(&self, text: &str) -> bool {
        match self {
            Self::Commit => is_commit(text),
            Self::Contains(part) => text.contains(part.as_str()),
        }
    }
}

/// What happens to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The server never sees the request; both connections are closed.
    DropRequest,
    /// The server has done it; the client never hears of it; both connections are closed.
    DropReply,
    /// The request waits in the proxy until it is released, also if the client has gone by then.
    HoldRequest,
    /// The server has done it; the client hears of it only when it is released.
    HoldReply,
    /// It is answered as ever; from then on nothing passes on its connection, in either direction, and nothing is closed.
    Silence,
    /// It is answered as ever; from then on no notification comes through its connection, and all else does.
    Deafen,
}

/// How far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    Armed,
    Fired,
    Answered(String),
}

#[derive(Debug)]
struct Rule {
    when: When,
    /// How many more matches go by untouched.
    skip: usize,
    shot: Shot,
}

/// The proxy's side of an armed fault.
#[derive(Clone, Debug)]
pub(super) struct Shot {
    pub(super) fault: Fault,
    stage: Arc<watch::Sender<Stage>>,
    released: watch::Receiver<bool>,
    hung_up: watch::Receiver<bool>,
}

impl Shot {
    pub(super) fn fire(&self) {
        self.stage.send_if_modified(|stage| {
            let first = *stage == Stage::Armed;
            if first {
                *stage = Stage::Fired;
            }
            first
        });
    }

    pub(super) fn answer(&self, tag: String) {
        self.stage.send_replace(Stage::Answered(tag));
    }

    /// Until the test releases it, or drops its handle.
    pub(super) async fn released(&mut self) {
        let _ = self.released.wait_for(|released| *released).await;
    }

    /// When the test hangs up on the client; else never.
    pub(super) async fn hung_up(&mut self) {
        if self.hung_up.wait_for(|hung_up| *hung_up).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// One fault that waits for its statement, and strikes once. Dropping it disarms it, and releases what it holds.
#[derive(Debug)]
pub struct Armed {
    stage: watch::Receiver<Stage>,
    release: watch::Sender<bool>,
    hang_up: watch::Sender<bool>,
}

impl Armed {
    /// Waits until the fault has happened. For a dropped or held reply: the server has done the work.
    ///
    /// # Panics
    /// After 30 s.
    pub async fn fired(&self) {
        self.wait("a statement to meet its fault", |stage| {
            *stage != Stage::Armed
        })
        .await;
    }

    /// Has it happened?
    pub fn has_fired(&self) -> bool {
        *self.stage.borrow() != Stage::Armed
    }

    /// Waits until the server has answered the statement, and gives the answer: the command's tag (`COMMIT`, `ROLLBACK`)
    /// or the SQLSTATE of the error. A dropped request is never answered.
    ///
    /// # Panics
    /// After 30 s.
    pub async fn answered(&self) -> String {
        match self
            .wait("the server's answer", |stage| {
                matches!(stage, Stage::Answered(_))
            })
            .await
        {
            Stage::Answered(tag) => tag,
            other => unreachable!("waited for an answer, not for {other:?}"),
        }
    }

    /// Lets a held request or reply go on.
    pub fn release(&self) {
        self.release.send_replace(true);
    }

    /// Closes the client's side while the request is held: the client knows that it will not be answered, and the
    /// request is still on its way.
    pub fn hang_up(&self) {
        self.hang_up.send_replace(true);
    }

    async fn wait(&self, what: &str, done: impl FnMut(&Stage) -> bool) -> Stage {
        let mut stage = self.stage.clone();
        let Ok(reached) = timeout(PATIENCE, stage.wait_for(done)).await else {
            panic!(
                "waited {PATIENCE:?} for {what}; it is {:?}",
                self.stage.borrow()
            );
        };
        reached.expect("the proxy keeps what was armed").clone()
    }
}

/// What is armed at one proxy.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules(Arc<Mutex<Vec<Rule>>>);

impl Rules {
    pub(super) fn arm(&self, when: When, skip: usize, fault: Fault) -> Armed {
        let (stage, watched) = watch::channel(Stage::Armed);
        let (release, released) = watch::channel(false);
        let (hang_up, hung_up) = watch::channel(false);
        let shot = Shot {
            fault,
            stage: Arc::new(stage),
            released,
            hung_up,
        };
        self.lock().push(Rule { when, skip, shot });
        Armed {
            stage: watched,
            release,
            hang_up,
        }
    }

    /// The fault that this statement meets, if any: the oldest one that fits.
    pub(super) fn meet(&self, text: &str) -> Option<Shot> {
        let mut rules = self.lock();
        // Nobody is there to hear of it any more.
        rules.retain(|rule| rule.shot.released.has_changed().is_ok());
        let mut hit = None;
        for (at, rule) in rules
            .iter_mut()
            .enumerate()
            .filter(|(_, rule)| rule.when.matches(text))
        {
            if rule.skip > 0 {
                rule.skip -= 1;
            } else if hit.is_none() {
                hit = Some(at);
            }
        }
        hit.map(|at| rules.remove(at).shot)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Rule>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
