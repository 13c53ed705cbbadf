//! What must be true of commands, one function each.

use std::collections::{HashMap, HashSet};

use super::{
    Command, Expect, Facts, Report, Step,
    case::{Case, cases},
};
use crate::facts;

/// How many examples of one kind are told.
const EXAMPLES: usize = 5;

/// Compares the witnesses.
pub fn judge(facts: &Facts, expect: &Expect) -> Report {
    let cases = cases(facts);
    let mut report = Report {
        commands: facts.commands.len(),
        ended: facts
            .commands
            .iter()
            .filter(|command| command.ended)
            .count(),
        persons: facts
            .commands
            .iter()
            .filter(|command| command.incident)
            .count(),
        unknown: cases.iter().filter(|case| case.unknown).count(),
        requests: facts
            .wire
            .iter()
            .filter(|wire| wire.step == Step::Leaves)
            .count(),
        effects: facts
            .ledger
            .iter()
            .filter(|entry| entry.what == "effect")
            .count(),
        repeats: facts
            .ledger
            .iter()
            .filter(|entry| entry.what == "repeat")
            .count(),
        ..Report::default()
    };
    given(facts, expect, &mut report);
    phantoms(facts, &cases, &mut report);
    each(&cases, &mut report, identity);
    each(&cases, &mut report, effects);
    each(&cases, &mut report, ends);
    each(&cases, &mut report, nobody_asks_in_vain);
    each(&cases, &mut report, |case| rests(case, expect));
    each(&cases, &mut report, told_once);
    honest(&cases, expect, &mut report);
    tell(
        &mut report,
        facts
            .contradicted
            .iter()
            .map(|words| format!("{words}: its provider never said two things")),
    );
    tell(&mut report, facts.verify.iter().cloned());
    report
}

/// What callers were told is there, and so is what they were not told of if its business row is; both in one commit.
fn given(facts: &Facts, expect: &Expect, report: &mut Report) {
    let rows: HashMap<i64, _> = facts.business.iter().map(|row| (row.0, row)).collect();
    let commands: HashMap<i64, &Command> = facts
        .commands
        .iter()
        .map(|command| (command.n, command))
        .collect();
    let committed = facts
        .told
        .iter()
        .filter(|told| told.step == facts::Step::Committed);
    tell(
        report,
        committed
            .filter(|told| !commands.contains_key(&told.n))
            .map(|told| {
                format!(
                    "lost: order {} was committed, and there is no command",
                    told.n
                )
            }),
    );
    tell(
        report,
        facts
            .commands
            .iter()
            .filter_map(|command| match rows.get(&command.n) {
                None if expect.deleted.contains(&command.n) => None,
                None => Some(format!(
                    "order {}: a command, and no business row of the same commit",
                    command.n
                )),
                Some((_, id, digest)) if (*id, digest) != (command.id, &command.digest) => {
                    Some(format!(
                        "order {}: the command is not what its caller gave",
                        command.n
                    ))
                }
                Some(_) => None,
            }),
    );
    tell(
        report,
        rows.keys()
            .filter(|n| !commands.contains_key(*n))
            .map(|n| format!("order {n}: a business row, and no command of the same commit")),
    );
    let several = facts.commands.len() - commands.len();
    tell(
        report,
        (several > 0).then(|| format!("{several} commands of orders that have another one")),
    );
}

/// Nothing reached a provider that nobody gave.
fn phantoms(facts: &Facts, cases: &[Case<'_>], report: &mut Report) {
    let known: HashSet<_> = cases
        .iter()
        .map(|case| (case.kind, case.command.n))
        .collect();
    let phantoms = facts
        .ledger
        .iter()
        .filter(|entry| !known.contains(&(entry.kind.as_str(), entry.body.n)));
    tell(
        report,
        phantoms.map(|entry| {
            format!(
                "phantom: {} has order {}, which nobody gave",
                entry.kind, entry.body.n
            )
        }),
    );
}

/// One identity for life: whatever was tried, the provider was told the same.
fn identity(case: &Case<'_>) -> Option<String> {
    let key = &case.command.provider_key;
    let other = case.ledger.iter().find(|entry| entry.reference != *key)?;
    Some(format!(
        "{}: was sent as {}, and is {key}",
        case.words(),
        other.reference
    ))
}

/// The ledger is the truth: of a provider that knows keys or can be asked exactly one effect, of another at most one; and
/// nothing is believed that it does not say.
fn effects(case: &Case<'_>) -> Option<String> {
    let effects = case.effects();
    let wrong = match case.command.state.as_str() {
        "settled" => effects != 1,
        "rejected" | "obsolete" | "cancelled" | "waiting" => effects != 0,
        _ => effects > 1,
    };
    wrong.then(|| format!("{}: {effects} effects at the provider", case.words()))
}

/// What was refused was refused by the provider, and what is settled has the number that it gave.
fn ends(case: &Case<'_>) -> Option<String> {
    match case.command.state.as_str() {
        "rejected" if case.count("refused") == 0 => {
            Some(format!("{}: its provider never refused it", case.words()))
        }
        "settled" => {
            let number = case
                .ledger
                .iter()
                .find(|entry| entry.what == "effect")?
                .number;
            let recorded = case
                .command
                .number
                .and_then(|number| u64::try_from(number).ok());
            (recorded != Some(number)).then(|| {
                format!(
                    "{}: {recorded:?} is recorded, its provider calls it {number}",
                    case.words()
                )
            })
        }
        _ => None,
    }
}

/// A provider without keys is never asked again after a request of which nobody knows the end.
fn nobody_asks_in_vain(case: &Case<'_>) -> Option<String> {
    let doubtful = case.left - case.answered - case.not_sent;
    let again = case.kind == "keyless" && doubtful > 1;
    again.then(|| {
        format!(
            "{}: {doubtful} requests whose end nobody knows",
            case.words()
        )
    })
}

/// Everything has ended, or is in a person's list; where the provider knows keys or can be asked, everything has ended.
fn rests(case: &Case<'_>, expect: &Expect) -> Option<String> {
    let Command {
        ended,
        incident,
        due,
        n,
        ..
    } = case.command;
    let person = case.kind == "keyless" || expect.persons.contains(n);
    match (ended, incident, due) {
        (true, false, false) => None,
        (false, true, false) if person => None,
        (false, true, false) => Some(format!(
            "{}: is a person's, and its provider could have been asked",
            case.words()
        )),
        (false, false, _) => Some(format!(
            "{}: has not ended, and nobody knows of it",
            case.words()
        )),
        _ => Some(format!(
            "{}: ended {ended}, a person's {incident}, due {due}",
            case.words()
        )),
    }
}

/// An end is told once, and nothing else is.
fn told_once(case: &Case<'_>) -> Option<String> {
    let told = case.resolved;
    (told != usize::from(case.command.ended))
        .then(|| format!("{}: its end was told {told} times", case.words()))
}

/// Unknown is what the wire or the ledger says nobody can know, and nothing else; what was only claimed never is.
fn honest(cases: &[Case<'_>], expect: &Expect, report: &mut Report) {
    let doubtful = |case: &Case<'_>| case.left > case.answered + case.not_sent;
    // What was answered for certain, and whose process was lost before it could record that.
    let without: Vec<_> = cases
        .iter()
        .filter(|case| case.unknown && !doubtful(case) && !(case.lost && case.left > 0))
        .collect();
    let (between, others): (Vec<_>, Vec<_>) = without
        .into_iter()
        .partition(|case| case.left == 0 && case.lost);
    if between.len() > expect.in_between {
        tell(
            report,
            between.iter().map(|case| {
                format!(
                    "{}: was unknown, and nothing of it was ever on the wire",
                    case.words()
                )
            }),
        );
    }
    let others = others.into_iter();
    tell(
        report,
        others.map(|case| {
            format!(
                "{}: was unknown, and wire and ledger say how it ended",
                case.words()
            )
        }),
    );
    let silent = cases
        .iter()
        .filter(|case| doubtful(case) && case.effects() > 0 && !case.unknown && !case.told);
    tell(
        report,
        silent.map(|case| {
            format!(
                "{}: had an effect of which nobody was told, and was never unknown",
                case.words()
            )
        }),
    );
}

fn each(cases: &[Case<'_>], report: &mut Report, rule: impl Fn(&Case<'_>) -> Option<String>) {
    tell(report, cases.iter().filter_map(rule));
}

fn tell(report: &mut Report, violations: impl IntoIterator<Item = String>) {
    let mut all: Vec<_> = violations.into_iter().collect();
    let more = all.len().saturating_sub(EXAMPLES);
    all.truncate(EXAMPLES);
    if more > 0 {
        all.push(format!("… and {more} more like these"));
    }
    report.violations.append(&mut all);
}

#[cfg(test)]
mod tests;
