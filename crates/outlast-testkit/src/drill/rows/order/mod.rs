//! Commands: what their providers did is the truth, and it stands in the providers' own ledgers.

mod e10;
mod e4;
mod e5;
mod e6;
mod e8;
mod walk;

use super::{Row, Scenario};

/// The provider has done it, and the worker dies before it has written that down.
pub(super) fn e4() -> Row {
    Row {
        name: "E4",
        what: "the provider succeeds, the worker dies before recording it: one effect, or a person is told",
        scenarios: [walk::scenario()]
            .into_iter()
            .chain(e4::scenarios())
            .collect(),
    }
}

/// What is said about a command while it is on its way.
pub(super) fn e6() -> Row {
    Row {
        name: "E6",
        what: "told, withdrawn, corrected or changed during a try: the try's end discards none of it",
        scenarios: e6::scenarios(),
    }
}

/// The business row is gone, and its instruction is not.
pub(super) fn e10() -> Row {
    Row {
        name: "E10",
        what: "the business row is deleted before the cleanup: reference and instruction survive",
        scenarios: e10::scenarios(),
    }
}

/// Two owners of a command.
pub(super) fn e5_scenarios() -> Vec<Scenario> {
    e5::scenarios()
}

/// A provider that is away, throttles, or kills who asks it.
pub(super) fn e8_scenarios() -> Vec<Scenario> {
    e8::scenarios()
}

/// A name's commands under way at once in one process, times the names: so many a death or a sleep may leave behind of
/// which nobody knows whether they had left.
const UNDER_WAY: usize = 16;
