//! One command, with all that its witnesses say about it.

use std::collections::HashMap;

use super::{Command, Entry, Facts, Step};

/// A command, and what the others say about it.
pub(super) struct Case<'a> {
    pub(super) command: &'a Command,
    pub(super) kind: &'a str,
    pub(super) ledger: Vec<&'a Entry>,
    /// Requests that left, and how many of them were answered for certain.
    pub(super) left: usize,
    pub(super) answered: usize,
    pub(super) not_sent: usize,
    /// Its process was lost while it was on its way.
    pub(super) lost: bool,
    /// Something may have had an effect, and nobody had said.
    pub(super) unknown: bool,
    /// Somebody else than its try has told its end.
    pub(super) told: bool,
    /// How often an event has told its end.
    pub(super) resolved: usize,
}

impl Case<'_> {
    pub(super) fn effects(&self) -> usize {
        self.count("effect")
    }

    pub(super) fn count(&self, what: &str) -> usize {
        self.ledger
            .iter()
            .filter(|entry| entry.what == what)
            .count()
    }

    pub(super) fn words(&self) -> String {
        let Command {
            name, n, id, state, ..
        } = self.command;
        format!("{name} {n} ({id}, {state})")
    }
}

/// One for each command of the database.
pub(super) fn cases(facts: &Facts) -> Vec<Case<'_>> {
    let mut cases: Vec<_> = facts
        .commands
        .iter()
        .map(|command| Case {
            command,
            kind: command.name.rsplit('.').next().unwrap_or_default(),
            ledger: Vec::new(),
            left: 0,
            answered: 0,
            not_sent: 0,
            lost: false,
            unknown: false,
            told: false,
            resolved: 0,
        })
        .collect();
    let by_order: HashMap<_, _> = cases
        .iter()
        .enumerate()
        .map(|(at, case)| ((case.kind.to_owned(), case.command.n), at))
        .collect();
    let by_id: HashMap<_, _> = cases
        .iter()
        .enumerate()
        .map(|(at, case)| (case.command.id, at))
        .collect();
    for entry in &facts.ledger {
        if let Some(at) = by_order.get(&(entry.kind.clone(), entry.body.n)) {
            cases[*at].ledger.push(entry);
        }
    }
    for wire in &facts.wire {
        let Some(at) = by_order.get(&(wire.kind.clone(), wire.n)) else {
            continue;
        };
        let case = &mut cases[*at];
        match (wire.step, wire.status) {
            (Step::Leaves, _) => case.left += 1,
            (Step::NotSent, _) => case.not_sent += 1,
            // It says that it does not know itself.
            (Step::Answered, Some(500)) => {}
            (Step::Answered, _) => case.answered += 1,
        }
    }
    for id in &facts.resolved {
        if let Some(at) = by_id.get(id) {
            cases[*at].resolved += 1;
        }
    }
    for line in &facts.evidence {
        let Some(at) = by_id.get(&line.command) else {
            continue;
        };
        let case = &mut cases[*at];
        let result = line.result.as_deref().unwrap_or_default();
        case.lost |= line.what == "lost";
        case.told |= matches!(line.what.as_str(), "told" | "late");
        case.unknown |= match line.what.as_str() {
            "lost" => true,
            "failed" => matches!(result, "unknown" | "unclassified"),
            "answered" => !line.moved,
            _ => false,
        };
    }
    cases
}
