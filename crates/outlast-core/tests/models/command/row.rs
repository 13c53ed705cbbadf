//! The row of a command: how it moves, and where it goes then.

use outlast_core::command::{Found, Resolution, Sent, State as Stands};

use super::{Due, Hand, Look, Row, SETTLES, Said, State, Worker, between};

impl Said {
    /// As a handler returns it.
    pub(super) fn sent(self) -> Sent<()> {
        match self {
            Self::Settled => Sent::Settled(()),
            Self::Pending => Sent::Pending {
                reference: String::new(),
            },
            Self::Rejected => Sent::Rejected(String::new()),
            Self::Obsolete => Sent::Obsolete(String::new()),
        }
    }
}

impl Look {
    /// As a look-up returns it.
    pub(super) fn found(self) -> Found<()> {
        match self {
            Self::Settled => Found::Settled(()),
            Self::Pending => Found::Pending {
                reference: String::new(),
            },
            Self::Rejected => Found::Rejected(String::new()),
            Self::NotApplied => Found::NotApplied,
            Self::Unsure => Found::Unsure,
        }
    }
}

impl State {
    pub(super) fn stands(&self) -> Option<Stands> {
        self.row.as_ref().map(|row| row.stands)
    }

    pub(super) fn row(&mut self) -> &mut Row {
        self.row.as_mut().expect("it is accepted")
    }

    /// Core's table has the last word. Whoever holds an older version does not hold this one.
    pub(super) fn moves(&mut self, next: Stands) {
        let row = self.row();
        let was = row.stands;
        row.stands = next;
        self.changed |= was.is_end();
        self.unruly |= !was.may_become(next);
        for worker in &mut self.workers {
            if let Some(hand) = worker.hand() {
                hand.fresh = false;
            }
        }
    }

    /// Its last state, and the event that tells it.
    pub(super) fn conclude(&mut self, how: &Resolution<()>) {
        let end = how
            .as_str()
            .parse()
            .expect("an end is a state of the same name");
        self.moves(end);
        let row = self.row();
        (row.ready, row.claimed, row.person) = (false, None, false);
        row.told.push(how.as_str());
    }

    pub(super) fn incident(&mut self) {
        let row = self.row();
        (row.ready, row.claimed, row.person) = (false, None, true);
    }

    pub(super) fn pend(&mut self) {
        let now = self.now;
        if self.row().stands != Stands::Pending {
            self.moves(Stands::Pending);
        }
        let row = self.row();
        row.due = Due::Poll;
        row.unknown_since = None;
        (row.ready, row.claimed, row.person) = (true, None, false);
        let since = *row.pending_since.get_or_insert(now);
        if between(since, now) >= SETTLES {
            self.incident();
        }
    }

    /// Proof that what was sent had no effect.
    pub(super) fn not_applied(&mut self) {
        self.moves(Stands::Waiting);
        let row = self.row();
        row.due = Due::Send;
        row.not_applied = true;
        row.ambiguous = false;
        row.unknown_since = None;
        row.ready = true;
        if row.cancel {
            self.conclude(&Resolution::Cancelled(String::new()));
        }
    }

    pub(super) fn doubtful(&mut self) {
        self.moves(Stands::Unknown);
        self.row().ambiguous = true;
    }
}

impl Worker {
    pub(super) fn hand(&mut self) -> Option<&mut Hand> {
        match self {
            Self::Idle => None,
            Self::Has(hand) | Self::Leaves(hand) | Self::Waits(hand) | Self::Knows(hand, _) => {
                Some(hand)
            }
        }
    }
}
