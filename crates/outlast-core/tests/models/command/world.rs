//! What happens around the database: workers, requests on their way, the provider, whoever else tells or decides.

use outlast_core::{Class, command::State as Stands};

use super::{
    Action, Case, DEEDS, Does, Due, Hand, Kind, LOOKS, Look, MOMENTS, ON_ITS_WAY, Person, Request,
    Said, State, Twin, WINDOW, What, Worker, between,
};

impl State {
    /// Nothing had an effect, and nothing will: what a person or a look-up may say then.
    fn nothing_done(&self) -> bool {
        self.provider.effects == 0 && !self.provider.taken && self.wire.is_empty()
    }
}

impl Case {
    /// Acceptance, time, leases, and who decides.
    pub(super) fn of_others(&self, state: &State, actions: &mut Vec<Action>) {
        let goes_wrong = state.faults < self.faults;
        let in_time = |next| {
            let arrives = |request: &Request| between(request.left, next) < ON_ITS_WAY;
            state.wire.iter().all(arrives)
        };
        let moments = self.moments.min(MOMENTS.len() as u8);
        if state.row.is_some() && state.now + 1 < moments && in_time(state.now + 1) {
            actions.push(Action::Tick);
        }
        if state.webhooks < self.webhooks {
            let provider = &state.provider;
            if self.lies || provider.effects > 0 {
                actions.push(Action::Tell(Said::Settled));
            }
            if self.lies || provider.refused && state.nothing_done() {
                actions.push(Action::Tell(Said::Rejected));
            }
        }
        let Some(row) = &state.row else {
            actions.push(Action::Accept);
            return;
        };
        if row.claimed.is_some() {
            if row.lapsed {
                actions.push(Action::Reclaim);
            } else if goes_wrong {
                actions.push(Action::Lapse);
            }
        }
        if state.cancels < self.cancels {
            actions.push(Action::Cancel);
        }
        if row.person && state.persons < self.persons {
            actions.push(Action::Resolve(Person::Abandoned));
            if state.provider.effects > 0 {
                actions.push(Action::Resolve(Person::Settled));
            }
            if state.nothing_done() {
                actions.push(Action::Resolve(Person::Rejected));
                if row.stands != Stands::Pending {
                    actions.push(Action::Resolve(Person::NotApplied));
                }
            }
        }
    }

    /// What a provider may do, with what is on its way to it.
    pub(super) fn of_the_provider(&self, state: &State, actions: &mut Vec<Action>) {
        let goes_wrong = state.faults < self.faults;
        for n in 0..state.wire.len() {
            if n > 0 && state.wire[n] == state.wire[n - 1] {
                continue;
            }
            for does in DEEDS.into_iter().filter(|does| self.may(state, *does)) {
                if state.wire[n].by.is_some() {
                    actions.push(Action::Arrive(n, does, true));
                }
                if state.wire[n].by.is_none() || goes_wrong {
                    actions.push(Action::Arrive(n, does, false));
                }
            }
            if goes_wrong {
                actions.push(Action::Vanish(n));
            }
        }
        if state.provider.taken {
            actions.push(Action::Decide(true));
            actions.push(Action::Decide(false));
        }
    }

    fn may(&self, state: &State, does: Does) -> bool {
        let provider = &state.provider;
        let known = provider.key.is_some_and(|first| {
            self.kind.keyed() && self.twin != Twin::NewKey && between(first, state.now) < WINDOW
        });
        let again = self.kind == Kind::Replays;
        if provider.closed {
            return does == Does::Refuse;
        }
        match does {
            Does::Apply | Does::Take | Does::Refuse => {
                // Who does not repeat a refusal tries anew.
                !known || !again && provider.refused
            }
            Does::Repeat => known && (again || !provider.refused),
            Does::Duplicate => known && !again,
        }
    }

    fn arrives(&self, state: &mut State, does: Does) -> Said {
        let now = state.now;
        let provider = &mut state.provider;
        let known = provider.key.filter(|first| between(*first, now) < WINDOW);
        provider.key = known.or(Some(now));
        match does {
            Does::Apply => {
                provider.effects += 1;
                provider.refused = false;
                Said::Settled
            }
            Does::Take => {
                provider.taken = true;
                provider.refused = false;
                Said::Pending
            }
            Does::Refuse => {
                provider.refused = true;
                Said::Rejected
            }
            Does::Repeat if provider.taken => Said::Pending,
            Does::Repeat if provider.effects > 0 => Said::Settled,
            Does::Repeat | Does::Duplicate => Said::Rejected,
        }
    }

    /// What a worker may do next.
    pub(super) fn of_a_worker(&self, state: &State, n: usize, actions: &mut Vec<Action>) {
        let Some(row) = &state.row else { return };
        let goes_wrong = state.faults < self.faults;
        let owns = |hand: Hand| row.claimed == Some(hand.token);
        match state.workers[n] {
            Worker::Idle => {
                // They are alike: the first of them that is free claims.
                let first = state.workers.iter().position(|w| *w == Worker::Idle);
                if row.ready && first == Some(n) {
                    actions.push(Action::Claim(n));
                }
                return;
            }
            Worker::Has(hand) => match hand.due {
                Due::Send => actions.push(Action::Mark(n)),
                Due::Look | Due::Poll => {
                    let says = |look: &Look| truly(state, *look);
                    let looks = LOOKS.into_iter().filter(says);
                    actions.extend(looks.map(|look| Action::Ask(n, look)));
                }
            },
            Worker::Leaves(_) => {
                actions.push(Action::Leave(n));
                actions.push(Action::Obsolete(n));
                if goes_wrong {
                    actions.push(Action::NobodyThere(n));
                }
            }
            Worker::Waits(hand) => {
                if owns(hand) && goes_wrong {
                    actions.push(Action::TimeOut(n));
                }
            }
            Worker::Knows(..) => actions.push(Action::Record(n)),
        }
        let lost = state.workers[n]
            .clone()
            .hand()
            .is_some_and(|hand| !owns(*hand));
        if lost || goes_wrong {
            actions.push(Action::Die(n));
        }
    }

    pub(super) fn act(&self, state: &mut State, action: Action) {
        match action {
            Action::Accept => self.accept(state),
            Action::Tick | Action::Lapse => {
                if action == Action::Tick {
                    state.now += 1;
                } else {
                    state.faults += 1;
                }
                state.row().lapsed = true;
                for hand in state.workers.iter_mut().filter_map(Worker::hand) {
                    hand.lapsed = true;
                }
            }
            Action::Claim(n) => self.claim(state, n),
            Action::Reclaim => self.reclaim(state),
            Action::Decide(yes) => {
                state.provider.taken = false;
                state.provider.refused = !yes;
                state.provider.effects += u8::from(yes);
            }
            Action::Tell(said) => {
                state.webhooks += 1;
                state.provider.closed |= said == Said::Rejected;
                self.tell(state, said);
            }
            Action::Cancel => {
                state.cancels += 1;
                self.cancel(state);
            }
            Action::Resolve(word) => {
                state.persons += 1;
                state.proofs += u8::from(word == Person::NotApplied);
                state.provider.closed |= word == Person::Rejected;
                self.resolve(state, word);
            }
            Action::Arrive(n, does, heard) => {
                let request = state.wire.remove(n);
                let said = self.arrives(state, does);
                match request.by {
                    Some(by) if heard => {
                        if let Worker::Waits(hand) = state.workers[by] {
                            state.workers[by] = Worker::Knows(hand, What::Said(said));
                        }
                    }
                    by => state.faults += u8::from(by.is_some()),
                }
            }
            Action::Vanish(n) => {
                state.faults += 1;
                state.wire.remove(n);
            }
            Action::Mark(n)
            | Action::Leave(n)
            | Action::NobodyThere(n)
            | Action::Obsolete(n)
            | Action::TimeOut(n)
            | Action::Ask(n, _)
            | Action::Record(n)
            | Action::Die(n) => {
                let hand = *state.workers[n].hand().expect("it has something");
                self.works(state, n, hand, action);
            }
        }
    }

    fn works(&self, state: &mut State, n: usize, hand: Hand, action: Action) {
        match action {
            Action::Mark(_) => self.mark(state, n, hand),
            Action::Leave(_) if hand.lapsed && self.twin != Twin::NoSecondLook => {
                state.workers[n] = Worker::Knows(hand, What::NotSent);
            }
            Action::Leave(_) => {
                state.left += 1;
                state.wire.push(Request {
                    by: Some(n),
                    left: state.now,
                });
                state.workers[n] = Worker::Waits(hand);
            }
            Action::NobodyThere(_) => {
                state.faults += 1;
                state.workers[n] = Worker::Knows(hand, What::Failed(Class::Retry));
            }
            Action::Obsolete(_) => {
                state.workers[n] = Worker::Knows(hand, What::Said(Said::Obsolete));
            }
            Action::Ask(_, look) => {
                state.provider.closed |= look == Look::Rejected;
                state.workers[n] = Worker::Knows(hand, What::Found(look));
            }
            Action::TimeOut(_) => {
                // The function itself goes on, and nobody waits for it.
                state.faults += 1;
                self.record(state, hand, What::Failed(Class::Unknown));
            }
            Action::Record(_) => {
                let Worker::Knows(_, what) = state.workers[n] else {
                    return;
                };
                state.workers[n] = Worker::Idle;
                self.record(state, hand, what);
            }
            _ => {
                let owns = state.row().claimed == Some(hand.token);
                state.faults += u8::from(owns);
                state.workers[n] = Worker::Idle;
                for request in &mut state.wire {
                    if request.by == Some(n) {
                        request.by = None;
                    }
                }
            }
        }
    }
}

/// Whether a provider that is asked may say so.
fn truly(state: &State, look: Look) -> bool {
    let provider = &state.provider;
    match look {
        Look::Settled => provider.effects > 0,
        Look::Pending => provider.taken,
        Look::Rejected => provider.refused && state.nothing_done(),
        Look::NotApplied => !provider.refused && state.nothing_done(),
        Look::Unsure => true,
    }
}
