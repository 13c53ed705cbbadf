//! What each transaction of the database does with a command: `functions/command*.sql`, step by step.

use std::time::Duration;

use outlast_core::{
    Class,
    command::{Found, Next, Policy, Resolution, Sent, State as Stands},
};

use super::{
    Case, Due, Hand, Kind, LEASE, Look, ON_ITS_WAY, Person, Row, Said, State, Twin, What, Worker,
    between,
};

impl Case {
    /// What its author said of the provider, as the row has it.
    fn policy(&self, row: &Row) -> Policy {
        let policy = self.kind.policy();
        let resends = row.resends && row.failures < self.attempts;
        // As much longer as core leaves of it.
        let margin = match self.twin {
            Twin::NoMargin => ON_ITS_WAY,
            _ => Duration::ZERO,
        };
        Policy {
            resend_within: policy
                .resend_within
                .filter(|_| resends)
                .map(|window| window + margin),
            ..policy
        }
    }

    /// What comes next, by core's policy. In hand of nobody.
    fn when_unknown(&self, state: &mut State) {
        let now = state.now;
        let row = state.row();
        let since = *row.unknown_since.get_or_insert(now);
        row.ambiguous = true;
        let first = row.first_sent.expect("unknown is what was sent");
        let policy = self.policy(row);
        let next = policy.next(between(first, now), between(since, now), 0, LEASE);
        let next = match self.twin {
            Twin::ResendsBlindly => Next::Resend,
            _ => next,
        };
        match next {
            Next::Resend => (row.due, row.ready) = (Due::Send, true),
            Next::Look(_) => (row.due, row.ready) = (Due::Look, true),
            Next::Ask => state.incident(),
        }
    }

    pub(super) fn accept(&self, state: &mut State) {
        state.row = Some(Row {
            stands: Stands::Waiting,
            due: Due::Send,
            ready: false,
            claimed: None,
            person: false,
            lapsed: false,
            sends: 0,
            first_sent: None,
            ambiguous: false,
            not_applied: false,
            resends: true,
            unknown_since: None,
            pending_since: None,
            failures: 0,
            cancel: false,
            contradicted: false,
            told: Vec::new(),
        });
        match state.early {
            (true, true) => state.incident(),
            (true, _) => state.conclude(&Resolution::Settled(())),
            (_, true) => state.conclude(&Resolution::Rejected(String::new())),
            (false, false) => state.row().ready = true,
        }
    }

    /// Tells its end by key.
    pub(super) fn tell(&self, state: &mut State, said: Said) {
        if state.row.is_some() {
            return told(state, said);
        }
        state.was_early = true;
        match said {
            _ if self.twin == Twin::DropsEarly => {}
            Said::Settled => state.early.0 = true,
            _ => state.early.1 = true,
        }
    }

    pub(super) fn claim(&self, state: &mut State, n: usize) {
        // The smallest that nobody knows: tokens are never the same.
        let known = |token: &u8| {
            let of = |worker: &Worker| match worker {
                Worker::Idle => None,
                Worker::Has(hand)
                | Worker::Leaves(hand)
                | Worker::Waits(hand)
                | Worker::Knows(hand, _) => Some(hand.token),
            };
            state
                .workers
                .iter()
                .any(|worker| of(worker) == Some(*token))
        };
        let token = (0..).find(|token| !known(token)).expect("few workers");
        let row = state.row();
        (row.ready, row.claimed, row.lapsed) = (false, Some(token), false);
        let due = row.due;
        if self.twin == Twin::RunningAtClaim && due == Due::Send {
            runs(state, self.twin);
        }
        state.workers[n] = Worker::Has(Hand {
            token,
            due,
            fresh: true,
            lapsed: false,
        });
    }

    fn owns(&self, row: &Row, hand: Hand) -> bool {
        row.claimed == Some(hand.token) || self.twin == Twin::NoFence && !row.stands.is_end()
    }

    /// From here on something of it may have had an effect, and that is on record first.
    pub(super) fn mark(&self, state: &mut State, n: usize, hand: Hand) {
        state.workers[n] = Worker::Idle;
        let now = state.now;
        let row = state.row();
        let early = self.twin == Twin::RunningAtClaim && row.stands == Stands::Running;
        let may = matches!(row.stands, Stands::Waiting | Stands::Unknown) || early;
        if !self.owns(row, hand) || row.due != Due::Send || !may {
            return;
        }
        if row.stands == Stands::Unknown {
            let policy = Policy {
                looks: false,
                ..self.policy(row)
            };
            let first = row.first_sent.expect("unknown is what was sent");
            let next = policy.next(between(first, now), Duration::ZERO, 0, LEASE);
            if next != Next::Resend && self.twin != Twin::ResendsBlindly {
                (row.resends, row.claimed) = (false, None);
                return self.when_unknown(state);
            }
        }
        if !early {
            runs(state, self.twin);
        }
        let row = state.row();
        row.resends = self.kind.policy().resend_within.is_some();
        state.marked = true;
        state.workers[n] = Worker::Leaves(Hand {
            fresh: true,
            ..hand
        });
    }

    /// What a worker knows is recorded, if it still may; what a provider said is never dropped.
    pub(super) fn record(&self, state: &mut State, hand: Hand, what: What) {
        let row = state.row();
        let mut owns = self.owns(row, hand);
        if let What::Found(_) = what {
            owns |= self.twin == Twin::LookWithoutCompare;
        }
        match what {
            What::Said(said) if owns => {
                if row.stands == Stands::Running {
                    row.claimed = None;
                    state.stale |= !hand.fresh;
                    self.answered(state, said);
                }
            }
            What::Found(look) if owns => {
                row.claimed = None;
                state.stale |= !hand.fresh;
                self.found(state, hand.due, look);
            }
            What::Failed(class) if owns => self.failed(state, class, true),
            What::NotSent if owns => self.failed(state, Class::Retry, false),
            What::Said(said) => self.late(state, said),
            What::Found(Look::Settled) => self.late(state, Said::Settled),
            What::Found(Look::Pending) => self.late(state, Said::Pending),
            What::Found(Look::Rejected) => self.late(state, Said::Rejected),
            What::Found(_) | What::Failed(_) | What::NotSent => {}
        }
    }

    /// Its lease was lost: it counts as told by anybody. But a refusal of one of several sends may be the echo of what another did.
    fn late(&self, state: &mut State, said: Said) {
        let refuses = matches!(said, Said::Rejected | Said::Obsolete);
        let once = state.row().sends <= 1 || self.twin == Twin::BelievesLateRefusal;
        if !refuses || once {
            told(state, said);
        }
    }

    fn answered(&self, state: &mut State, said: Said) {
        let believes = match said {
            Said::Rejected => self.kind == Kind::Replays || self.twin == Twin::BelievesRefusal,
            // No provider has said that.
            Said::Obsolete => self.twin == Twin::BelievesObsolete,
            Said::Settled | Said::Pending => true,
        };
        if state.row().ambiguous && !believes {
            state.doubtful();
            state.row().resends = false;
            return self.when_unknown(state);
        }
        match said.sent() {
            Sent::Settled(answer) => state.conclude(&Resolution::Settled(answer)),
            Sent::Rejected(why) => state.conclude(&Resolution::Rejected(why)),
            Sent::Obsolete(why) => state.conclude(&Resolution::Obsolete(why)),
            Sent::Pending { .. } => state.pend(),
        }
    }

    fn found(&self, state: &mut State, due: Due, look: Look) {
        match look.found() {
            Found::Settled(answer) => state.conclude(&Resolution::Settled(answer)),
            Found::Rejected(why) => state.conclude(&Resolution::Rejected(why)),
            Found::Pending { .. } => state.pend(),
            Found::NotApplied if due == Due::Poll => state.incident(),
            Found::NotApplied => state.not_applied(),
            Found::Unsure if due == Due::Poll => state.pend(),
            Found::Unsure if self.twin == Twin::UnsureIsProof => state.not_applied(),
            Found::Unsure => self.when_unknown(state),
        }
    }

    /// A try without an answer, by its owner.
    fn failed(&self, state: &mut State, class: Class, charged: bool) {
        let attempts = self.attempts;
        let row = state.row();
        row.claimed = None;
        match row.due {
            Due::Poll => return state.pend(),
            Due::Look => return self.when_unknown(state),
            Due::Send => row.failures = (row.failures + u8::from(charged)).min(attempts),
        }
        if row.stands != Stands::Running {
            row.ready = true;
            return;
        }
        if matches!(class, Class::Unknown | Class::Unclassified) {
            state.doubtful();
            return self.when_unknown(state);
        }
        // This try certainly had no effect. One before may have had.
        if row.ambiguous && self.twin != Twin::ForgetsSent {
            state.moves(Stands::Unknown);
            if class == Class::Permanent {
                return state.incident();
            }
            return self.when_unknown(state);
        }
        row.ambiguous = false;
        state.moves(Stands::Waiting);
        let row = state.row();
        if row.cancel {
            state.conclude(&Resolution::Cancelled(String::new()));
        } else if class == Class::Permanent || row.failures >= attempts {
            state.incident();
        } else {
            row.ready = true;
        }
    }

    /// Its worker was lost.
    pub(super) fn reclaim(&self, state: &mut State) {
        let attempts = self.attempts;
        let row = state.row();
        row.claimed = None;
        match row.due {
            Due::Poll => state.pend(),
            Due::Look => self.when_unknown(state),
            Due::Send if row.stands == Stands::Running => {
                row.failures = (row.failures + 1).min(attempts);
                state.doubtful();
                self.when_unknown(state);
            }
            Due::Send => row.ready = true,
        }
    }

    pub(super) fn cancel(&self, state: &mut State) {
        let ignores = self.twin == Twin::CancelIgnoresSent;
        let row = state.row();
        match row.stands {
            Stands::Waiting => state.conclude(&Resolution::Cancelled(String::new())),
            Stands::Running if ignores => {
                // Core allows it from waiting only.
                row.stands = Stands::Waiting;
                state.conclude(&Resolution::Cancelled(String::new()));
            }
            Stands::Running | Stands::Pending | Stands::Unknown => row.cancel = true,
            _ => {}
        }
    }

    pub(super) fn resolve(&self, state: &mut State, word: Person) {
        match word {
            Person::Settled => state.conclude(&Resolution::Settled(())),
            Person::Rejected => state.conclude(&Resolution::Rejected(String::new())),
            Person::Abandoned => state.conclude(&Resolution::Abandoned {
                incident: uuid::Uuid::nil(),
            }),
            Person::NotApplied => {
                let row = state.row();
                row.person = false;
                row.failures = 0;
                match row.stands {
                    Stands::Unknown => state.not_applied(),
                    _ => row.ready = true,
                }
            }
        }
    }
}

/// It leaves: running, by way of waiting where it is sent again.
fn runs(state: &mut State, twin: Twin) {
    let now = state.now;
    if state.row().stands == Stands::Unknown {
        state.moves(Stands::Waiting);
    }
    state.moves(Stands::Running);
    let row = state.row();
    row.sends = (row.sends + 1).min(2);
    // It never begins anew: the provider may know the key since the first time.
    let anew = twin == Twin::WindowAnew && row.not_applied;
    row.first_sent = row.first_sent.filter(|_| !anew).or(Some(now));
    row.not_applied = false;
}

/// What anybody else than the owner of a try says.
fn told(state: &mut State, said: Said) {
    let row = state.row();
    let stands = row.stands;
    if stands.is_end() {
        let alike = match said {
            Said::Settled => stands == Stands::Settled,
            Said::Rejected => stands == Stands::Rejected,
            Said::Obsolete => stands == Stands::Obsolete,
            Said::Pending => true,
        };
        row.contradicted |= !alike;
        return;
    }
    match said {
        Said::Pending => {
            if matches!(stands, Stands::Running | Stands::Unknown) {
                state.pend();
            }
        }
        Said::Settled => state.conclude(&Resolution::Settled(())),
        Said::Obsolete if matches!(stands, Stands::Waiting | Stands::Running) => {
            state.conclude(&Resolution::Obsolete(String::new()));
        }
        // It had no effect, and it was sent.
        Said::Obsolete | Said::Rejected => {
            state.conclude(&Resolution::Rejected(String::new()));
        }
    }
}
