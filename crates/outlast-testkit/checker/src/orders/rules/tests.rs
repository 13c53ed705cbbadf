//! That each rule can be broken, and is not broken by what is as it should be.

use uuid::Uuid;

use super::*;
use crate::{
    facts::Told,
    orders::{Body, Entry, Evidence, Wire},
};

/// One order of each kind, done and answered.
fn sound() -> Facts {
    let mut facts = Facts::default();
    for (n, kind) in (1..).zip(["keyed", "grudging", "looked", "keyless"]) {
        let (id, name) = (Uuid::from_u128(n as u128), format!("drill.{kind}"));
        let digest = format!("digest {n}");
        facts.told.push(Told {
            n,
            step: facts::Step::Committed,
            why: None,
        });
        facts.business.push((n, id, digest.clone()));
        facts.commands.push(Command {
            id,
            name: name.clone(),
            n,
            digest,
            state: "settled".into(),
            ended: true,
            incident: false,
            provider_key: format!("key {n}"),
            number: Some(n),
            due: false,
        });
        for (step, status) in [(Step::Leaves, None), (Step::Answered, Some(200))] {
            facts.wire.push(Wire {
                name: name.clone(),
                kind: kind.into(),
                n,
                attempt: 1,
                step,
                status,
                pid: 1,
            });
        }
        facts.ledger.push(Entry {
            kind: kind.into(),
            reference: format!("key {n}"),
            what: "effect".into(),
            number: n as u64,
            beside: 1,
            account: String::new(),
            at_ms: 0,
            body: Body { n, undoes: None },
        });
        facts.evidence.push(happened(id, "sent", None));
        facts.resolved.push(id);
    }
    facts
}

fn happened(command: Uuid, what: &str, result: Option<&str>) -> Evidence {
    Evidence {
        command,
        what: what.into(),
        result: result.map(str::to_owned),
        moved: true,
    }
}

fn seen(breaks: impl FnOnce(&mut Facts), word: &str) {
    seen_with(breaks, &Expect::default(), word);
}

fn seen_with(breaks: impl FnOnce(&mut Facts), expect: &Expect, word: &str) {
    let mut facts = sound();
    breaks(&mut facts);
    let violations = judge(&facts, expect).violations;
    let found = violations.iter().any(|violation| violation.contains(word));
    assert!(found, "{word}: {violations:?}");
}

/// The answer never came.
fn unanswered(facts: &mut Facts, n: i64) {
    facts
        .wire
        .retain(|wire| wire.n != n || wire.step == Step::Leaves);
}

fn at(facts: &mut Facts, n: usize) -> &mut Command {
    &mut facts.commands[n - 1]
}

#[test]
fn what_is_as_it_should_be_breaks_nothing() {
    let report = judge(&sound(), &Expect::default());
    assert_eq!(report.violations, Vec::<String>::new());
    assert_eq!((report.commands, report.ended, report.effects), (4, 4, 4));
}

#[test]
fn a_keyless_one_of_which_nobody_knows_is_a_persons_and_that_is_sound() {
    let mut facts = sound();
    unanswered(&mut facts, 4);
    let id = at(&mut facts, 4).id;
    let command = at(&mut facts, 4);
    (command.state, command.ended, command.incident) = ("unknown".into(), false, true);
    facts.resolved.retain(|one| *one != id);
    facts.evidence.push(happened(id, "failed", Some("unknown")));
    let report = judge(&facts, &Expect::default());
    assert_eq!(report.violations, Vec::<String>::new());
    assert_eq!((report.unknown, report.persons), (1, 1));
}

#[test]
fn a_second_effect_and_a_missing_one_are_seen() {
    seen(
        |facts| {
            let mut again = facts.ledger[0].clone();
            again.number = 9;
            facts.ledger.push(again);
        },
        "2 effects",
    );
    seen(|facts| drop(facts.ledger.remove(0)), "0 effects");
    seen(
        |facts| at(facts, 1).state = "rejected".into(),
        "never refused",
    );
    seen(
        |facts| at(facts, 1).state = "cancelled".into(),
        "cancelled): 1 effects",
    );
}

#[test]
fn another_identity_another_number_and_another_content_are_seen() {
    seen(
        |facts| facts.ledger[0].reference = "key 1-2".into(),
        "was sent as",
    );
    seen(|facts| at(facts, 1).number = Some(7), "calls it 1");
    seen(
        |facts| facts.business[0].2 = "other".into(),
        "not what its caller gave",
    );
    seen(|facts| facts.ledger[0].body.n = 77, "phantom");
}

#[test]
fn half_a_commit_and_a_lost_one_are_seen() {
    seen(|facts| drop(facts.business.remove(0)), "no business row");
    seen(
        |facts| drop(facts.commands.remove(0)),
        "no command of the same commit",
    );
    seen(|facts| drop(facts.commands.remove(0)), "lost");
    let expect = Expect {
        deleted: [1].into(),
        ..Expect::default()
    };
    let mut facts = sound();
    facts.business.remove(0);
    assert_eq!(judge(&facts, &expect).violations, Vec::<String>::new());
}

#[test]
fn an_end_that_is_told_twice_or_never_is_seen() {
    seen(
        |facts| facts.resolved.push(facts.resolved[0]),
        "told 2 times",
    );
    seen(|facts| facts.resolved.truncate(3), "told 0 times");
}

#[test]
fn what_nobody_would_ever_wake_is_seen() {
    let open = |facts: &mut Facts, n: usize, incident| {
        let command = at(facts, n);
        (command.state, command.ended, command.incident) = ("unknown".into(), false, incident);
    };
    seen(|facts| open(facts, 1, false), "nobody knows of it");
    seen(|facts| open(facts, 1, true), "could have been asked");
}

#[test]
fn unknown_without_a_request_and_an_effect_without_a_doubt_are_seen() {
    let lost = |facts: &mut Facts| {
        facts.wire.retain(|wire| wire.n != 4);
        let id = at(facts, 4).id;
        facts.evidence.push(happened(id, "lost", None));
    };
    seen(lost, "nothing of it was ever on the wire");
    let mut facts = sound();
    lost(&mut facts);
    let once = Expect {
        in_between: 1,
        ..Expect::default()
    };
    assert_eq!(judge(&facts, &once).violations, Vec::<String>::new());
    seen(
        |facts| {
            let id = at(facts, 4).id;
            facts.evidence.push(happened(id, "failed", Some("unknown")));
        },
        "say how it ended",
    );
    seen(|facts| unanswered(facts, 4), "was never unknown");
}

#[test]
fn a_keyless_request_after_one_that_nobody_knows_the_end_of_is_seen() {
    seen(
        |facts| {
            unanswered(facts, 4);
            let again = facts.wire.last().cloned();
            facts.wire.extend(again);
            let id = at(facts, 4).id;
            facts.evidence.push(happened(id, "failed", Some("unknown")));
        },
        "2 requests whose end nobody knows",
    );
}

#[test]
fn two_ends_of_a_provider_that_has_told_one_are_seen() {
    seen(
        |facts| facts.contradicted.push("command 1".into()),
        "never said two things",
    );
}
