//! One command, its workers, the wire and the provider: accepted, claimed, sent, answered, asked after, told of by key, withdrawn and
//! decided about, while leases lapse, workers die at any point and requests take long or get lost; in every order.
//!
//! What moves is core's table of states, what comes next for an unknown one is core's policy. A person and a look-up tell the truth,
//! and say "not applied" or "refused" only when nothing is on its way any more: that is what they are asked for.

mod properties;
mod row;
mod rules;
mod tests;
mod world;

use std::time::Duration;

use outlast_core::{
    Class,
    command::{Policy, State as Stands},
};
use stateright::{Model, Property};

const DAY: u64 = 24 * 3600;
/// For so long a provider knows a key.
const WINDOW: Duration = Duration::from_secs(DAY);
const LEASE: Duration = Duration::from_secs(15);
/// A request arrives within a lease and core's margin, or never.
const ON_ITS_WAY: Duration = Duration::from_secs(45);
/// So long the provider may take to settle what it took.
const SETTLES: Duration = Duration::from_secs(7 * DAY);
/// The clock moves through these: in the window, in its last part, behind it, when looking is over, when waiting is.
const MOMENTS: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_secs(DAY - 40),
    Duration::from_secs(DAY + 1),
    Duration::from_secs(3 * DAY),
    Duration::from_secs(11 * DAY),
];

/// A place in [`MOMENTS`].
type Moment = u8;

fn between(from: Moment, to: Moment) -> Duration {
    MOMENTS[usize::from(to)] - MOMENTS[usize::from(from)]
}

/// What the author of the command says about its provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Honours a key for a day, and repeats its first answer.
    Replays,
    /// Honours a key for a day, and may answer "duplicate" to a repeated one.
    Keyed,
    /// The same, and can be asked.
    KeyedAsked,
    /// Knows no keys and can be asked.
    Asked,
    Keyless,
}

const KINDS: [Kind; 5] = [
    Kind::Replays,
    Kind::Keyed,
    Kind::KeyedAsked,
    Kind::Asked,
    Kind::Keyless,
];

impl Kind {
    fn keyed(self) -> bool {
        matches!(self, Self::Replays | Self::Keyed | Self::KeyedAsked)
    }

    fn policy(self) -> Policy {
        Policy {
            resend_within: self.keyed().then_some(WINDOW),
            looks: matches!(self, Self::KeyedAsked | Self::Asked),
        }
    }
}

/// What a twin lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Twin {
    /// Nothing: the product.
    None,
    /// Whoever has had it may move it.
    NoFence,
    /// Each send has a key of its own.
    NewKey,
    /// Whatever the provider is, what has no answer is sent again.
    ResendsBlindly,
    /// It is sent again up to the very end of the window.
    NoMargin,
    /// After a proof that it had no effect its window begins anew.
    WindowAnew,
    /// `running` is written by the claim.
    RunningAtClaim,
    /// The lease is not looked at again between "it leaves" and leaving.
    NoSecondLook,
    /// A clean failure makes nothing of an earlier send that nobody knows the end of.
    ForgetsSent,
    /// A refusal is believed, whatever was sent before.
    BelievesRefusal,
    /// A refusal that comes late is believed, whatever else was sent.
    BelievesLateRefusal,
    /// "There was nothing to do" is taken for the provider's word.
    BelievesObsolete,
    /// It is withdrawn whether it has left or not.
    CancelIgnoresSent,
    /// What a look-up found is applied to whatever has become of the command meanwhile.
    LookWithoutCompare,
    /// Whoever could not say has said that it had no effect.
    UnsureIsProof,
    /// What is told before there is a command is dropped.
    DropsEarly,
}

#[derive(Clone, Debug)]
struct Case {
    twin: Twin,
    kind: Kind,
    workers: usize,
    attempts: u8,
    /// How many of [`MOMENTS`] come.
    moments: u8,
    /// How often something goes wrong: a lease lapses, a worker dies, a request or its answer is lost or takes too long, nobody is there.
    faults: u8,
    /// How often somebody tells its end by key, how often a person decides, how often somebody wants it gone.
    webhooks: u8,
    persons: u8,
    cancels: u8,
    /// Whoever tells its end tells anything.
    lies: bool,
}

impl Case {
    fn of(kind: Kind) -> Self {
        Self {
            twin: Twin::None,
            kind,
            workers: 2,
            attempts: 2,
            moments: 1,
            faults: 2,
            webhooks: 0,
            persons: 1,
            cancels: 0,
            lies: false,
        }
    }

    fn twin(kind: Kind, twin: Twin) -> Self {
        Self {
            twin,
            ..Self::of(kind)
        }
    }
}

/// What a command is due for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Due {
    Send,
    Look,
    Poll,
}

/// What the database has of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Row {
    stands: Stands,
    due: Due,
    /// Where it is: each a row of its own.
    ready: bool,
    claimed: Option<u8>,
    person: bool,
    lapsed: bool,
    /// How often it has left, up to two.
    sends: u8,
    first_sent: Option<Moment>,
    ambiguous: bool,
    not_applied: bool,
    resends: bool,
    unknown_since: Option<Moment>,
    pending_since: Option<Moment>,
    failures: u8,
    cancel: bool,
    contradicted: bool,
    told: Vec<&'static str>,
}

/// What a worker holds of its claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Hand {
    token: u8,
    due: Due,
    /// Nobody has moved the command since.
    fresh: bool,
    /// Its own clock says that the lease is over.
    lapsed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Worker {
    Idle,
    Has(Hand),
    /// That it leaves is committed; nothing has left.
    Leaves(Hand),
    /// Waits for the provider, perhaps when nobody waits for it any more.
    Waits(Hand),
    /// Knows what to record.
    Knows(Hand, What),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum What {
    Said(Said),
    Found(Look),
    Failed(Class),
    /// The lease had nearly lapsed before it left.
    NotSent,
}

/// What a provider answers to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Said {
    Settled,
    Pending,
    Rejected,
    /// The handler's own word: it has sent nothing.
    Obsolete,
}

/// What a provider answers to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Look {
    Settled,
    Pending,
    Rejected,
    NotApplied,
    Unsure,
}

const LOOKS: [Look; 5] = [
    Look::Settled,
    Look::Pending,
    Look::Rejected,
    Look::NotApplied,
    Look::Unsure,
];

/// What a provider does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Does {
    Apply,
    Take,
    Refuse,
    /// It knows the key: what it said before, or "duplicate".
    Repeat,
    Duplicate,
}

const DEEDS: [Does; 5] = [
    Does::Apply,
    Does::Take,
    Does::Refuse,
    Does::Repeat,
    Does::Duplicate,
];

/// The truth.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Provider {
    effects: u8,
    /// It has it and has not decided.
    taken: bool,
    refused: bool,
    /// It has said that it never will.
    closed: bool,
    /// When it has seen the key first.
    key: Option<Moment>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Request {
    /// Who waits for its answer.
    by: Option<usize>,
    left: Moment,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    row: Option<Row>,
    /// Told before it was there: settled, rejected.
    early: (bool, bool),
    was_early: bool,
    now: Moment,
    provider: Provider,
    wire: Vec<Request>,
    workers: Vec<Worker>,
    faults: u8,
    webhooks: u8,
    persons: u8,
    cancels: u8,
    /// Somebody was about to send it.
    marked: bool,
    /// How many requests have left, and how many after somebody's proof that those before had no effect.
    left: u8,
    proofs: u8,
    changed: bool,
    unruly: bool,
    stale: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Accept,
    Tick,
    Claim(usize),
    Lapse,
    Reclaim,
    /// It commits that the command leaves.
    Mark(usize),
    Leave(usize),
    /// Nobody is there: nothing has left.
    NobodyThere(usize),
    /// The handler finds nothing to do.
    Obsolete(usize),
    Arrive(usize, Does, bool),
    Vanish(usize),
    /// What the provider took it decides: done, or refused.
    Decide(bool),
    TimeOut(usize),
    Ask(usize, Look),
    Record(usize),
    Die(usize),
    Tell(Said),
    Cancel,
    Resolve(Person),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Person {
    Settled,
    Rejected,
    NotApplied,
    Abandoned,
}

impl Model for Case {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            row: None,
            early: (false, false),
            was_early: false,
            now: 0,
            provider: Provider {
                effects: 0,
                taken: false,
                refused: false,
                closed: false,
                key: None,
            },
            wire: Vec::new(),
            workers: vec![Worker::Idle; self.workers],
            faults: 0,
            webhooks: 0,
            persons: 0,
            cancels: 0,
            marked: false,
            left: 0,
            proofs: 0,
            changed: false,
            unruly: false,
            stale: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.of_others(state, actions);
        self.of_the_provider(state, actions);
        for n in 0..self.workers {
            self.of_a_worker(state, n, actions);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        self.act(&mut state, action);
        state.wire.sort_unstable();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = self.always();
        if !self.lies {
            properties.extend(self.truths());
        }
        properties
    }
}
