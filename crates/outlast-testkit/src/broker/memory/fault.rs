//! What a test can script: what one call to publish meets instead of what is usual.

use std::{fmt, sync::Arc};

use outlast_core::broker::{Message, Published, Why};
use tokio::sync::watch;

/// What one call to publish meets.
#[derive(Clone)]
pub enum Fault {
    /// Everything is taken, and every confirmation is lost: unknown, at once.
    ConfirmLost,
    /// Nothing is taken, and nobody can know: unknown, at once.
    RequestLost,
    /// Nothing is taken, for this reason, and that is said.
    NotSent(Why),
    /// Those for which it answers a reason are not taken; the others as usual. See [`Fault::refuse`].
    Refuse(Refusal),
    /// Everything is taken, and of those that it chooses the confirmation is lost. See [`Fault::lose`].
    Lose(Choice),
    /// Everything is taken, the last one first, and confirmed: what an ordered broker must not do.
    Reorder,
    /// No answer comes within the time of the call; it returns then, with unknown.
    Silent(Taken),
    /// The call never returns, whatever its time: what a watchdog is for.
    Hang(Taken),
    /// The call goes on when the gate is opened, and takes what it can then.
    Held(Gate),
    /// Everything is taken at once, and answered when the gate is opened.
    Late(Gate),
    /// The call panics.
    Panic,
}

/// Why a message is not taken, if it is not.
pub type Refusal = Arc<dyn Fn(&Message) -> Option<Why> + Send + Sync>;

/// Which messages are meant.
pub type Choice = Arc<dyn Fn(&Message) -> bool + Send + Sync>;

/// Whether the messages of a call are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// They are.
    Yes,
    /// They are not.
    No,
}

impl Fault {
    /// Those that `refuse` answers a reason for are not taken; the others as usual.
    pub fn refuse(refuse: impl Fn(&Message) -> Option<Why> + Send + Sync + 'static) -> Self {
        Self::Refuse(Arc::new(refuse))
    }

    /// Everything is taken, and of those for which `lose` answers true the confirmation is lost.
    pub fn lose(lose: impl Fn(&Message) -> bool + Send + Sync + 'static) -> Self {
        Self::Lose(Arc::new(lose))
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ConfirmLost => f.write_str("ConfirmLost"),
            Self::RequestLost => f.write_str("RequestLost"),
            Self::NotSent(why) => write!(f, "NotSent({why:?})"),
            Self::Refuse(_) => f.write_str("Refuse(..)"),
            Self::Lose(_) => f.write_str("Lose(..)"),
            Self::Reorder => f.write_str("Reorder"),
            Self::Silent(taken) => write!(f, "Silent({taken:?})"),
            Self::Hang(taken) => write!(f, "Hang({taken:?})"),
            Self::Held(_) => f.write_str("Held(..)"),
            Self::Late(_) => f.write_str("Late(..)"),
            Self::Panic => f.write_str("Panic"),
        }
    }
}

/// Where a call stands still until the test lets it pass. Its clones are the same gate.
#[derive(Clone, Debug)]
pub struct Gate(Arc<watch::Sender<(usize, bool)>>);

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate {
    /// A closed one.
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new((0, false))))
    }

    /// Waits until so many calls have come to it in all.
    pub async fn reached(&self, calls: usize) {
        let mut state = self.0.subscribe();
        let came = state.wait_for(|(reached, _)| *reached >= calls).await;
        came.expect("we hold the other end ourselves");
    }

    /// Lets pass who waits and who comes.
    pub fn open(&self) {
        self.0.send_modify(|(_, open)| *open = true);
    }

    pub(super) async fn pass(&self) {
        let mut state = self.0.subscribe();
        self.0.send_modify(|(reached, _)| *reached += 1);
        let open = state.wait_for(|(_, open)| *open).await;
        open.expect("we hold the other end ourselves");
    }
}

/// What is known where the answer is lost: what was refused before it was sent, and nothing else.
pub(super) fn confirm_lost(said: Published) -> Published {
    match said {
        Published::NotSent(not) if matches!(not.why, Why::Message | Why::Behind) => {
            Published::NotSent(not)
        }
        _ => Published::unknown("sent and not answered"),
    }
}
