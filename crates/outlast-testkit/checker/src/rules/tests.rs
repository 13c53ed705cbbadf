//! The checker sees: a story in which all is well, and what it says when one word of it is a lie.

use super::*;
use crate::Consumer;
use crate::facts::{Seal, Told};

const LEDGER: &str = "ledger";
const MAIL: &str = "mail";

fn id(n: i64) -> Uuid {
    Uuid::from_u128(n.unsigned_abs().into())
}

fn told(n: i64, steps: &[Step]) -> Vec<Told> {
    let line = |step: &Step| Told {
        n,
        step: *step,
        why: None,
    };
    steps.iter().map(line).collect()
}

fn intent(n: i64) -> Intent {
    Intent {
        n,
        event_id: id(n),
        digest: format!("digest {n}"),
    }
}

fn done(consumer: &str, n: i64, attempt: i32) -> Done {
    let Intent {
        event_id, digest, ..
    } = intent(n);
    Done {
        consumer: consumer.to_owned(),
        event_id,
        n,
        digest,
        attempt,
        pid: 1,
    }
}

/// 1 committed, 2 was rolled back, 3 was never answered and is there, 4 was never answered and is not.
fn well() -> Facts {
    let seal = |consumer: &str, n| Seal {
        consumer: consumer.to_owned(),
        event_id: id(n),
    };
    Facts {
        told: [
            told(1, &[Step::Begin, Step::Committed]),
            told(2, &[Step::Begin, Step::RolledBack]),
            told(3, &[Step::Begin, Step::Unknown]),
            told(4, &[Step::Begin]),
        ]
        .concat(),
        business: vec![intent(1), intent(3)],
        events: vec![intent(1), intent(3)],
        effects: vec![done(LEDGER, 1, 1), done(LEDGER, 3, 2)],
        outside: vec![done(MAIL, 1, 1), done(MAIL, 3, 1), done(MAIL, 3, 2)],
        seals: vec![
            seal(LEDGER, 1),
            seal(LEDGER, 3),
            seal(MAIL, 1),
            seal(MAIL, 3),
        ],
        ..Facts::default()
    }
}

fn judged(durable: bool, lie: impl FnOnce(&mut Facts)) -> Report {
    let consumer = |name: &str, effects| Consumer {
        name: name.to_owned(),
        effects,
    };
    let expect = Expect {
        consumers: vec![
            consumer(LEDGER, Effects::Inside),
            consumer(MAIL, Effects::Outside),
        ],
        durable,
    };
    let mut facts = well();
    lie(&mut facts);
    judge(&facts, &expect)
}

fn caught(what: &str, lie: impl FnOnce(&mut Facts)) {
    let report = judged(true, lie);
    assert!(
        report.violations.iter().any(|said| said.contains(what)),
        "{what}: {:#?}",
        report.violations
    );
}

#[test]
fn a_true_story_passes_and_is_counted() {
    let report = judged(true, |_| {});
    assert_eq!(report.violations, Vec::<String>::new());
    let counts = (report.committed, report.rolled_back, report.unknown);
    assert_eq!(counts, (1, 1, 2));
    assert_eq!((report.events, report.again, report.attempt_max), (2, 1, 2));
}

#[test]
fn every_lie_is_seen() {
    caught("it is gone", |f| f.business.retain(|row| row.n != 1));
    caught("and it is", |f| {
        f.business.push(intent(2));
        f.events.push(intent(2));
    });
    caught("there without a client", |f| f.business.push(intent(9)));
    caught("its event is not there", |f| {
        f.events.retain(|event| event.n != 3);
    });
    caught("without its business row", |f| f.events.push(intent(7)));
    caught("a second one", |f| {
        f.events.push(Intent {
            event_id: id(8),
            ..intent(1)
        });
    });
    caught("other content than", |f| f.events[0].digest.clear());
    caught("lost, mail", |f| drop(f.seals.pop()));
    caught("completed 2 times", |f| f.seals.push(f.seals[0].clone()));
    caught("there is no such event", |f| f.seals[0].event_id = id(77));
    caught("no effect of ledger", |f| drop(f.effects.pop()));
    caught("2 effects of ledger", |f| {
        f.effects.push(done(LEDGER, 1, 2));
    });
    caught("no effect of mail outside", |f| drop(f.outside.remove(0)));
    caught("phantom", |f| f.outside.push(done(MAIL, 2, 1)));
    caught("other content in try 2", |f| f.outside[2].digest.clear());
    caught("is parked", |f| f.parked.push("1 is parked".into()));
}

#[test]
fn what_a_crash_took_back_is_no_violation_where_clients_asked_for_it() {
    let forget = |f: &mut Facts| {
        f.business.retain(|row| row.n != 1);
        f.events.retain(|event| event.n != 1);
        f.effects.retain(|done| done.n != 1);
        f.seals.retain(|seal| seal.event_id != id(1));
    };
    let report = judged(false, |f| {
        forget(f);
        f.outside.retain(|done| done.n != 1);
    });
    assert_eq!((report.violations.len(), report.taken_back), (0, 1));
    // But a handler must not have seen it.
    let report = judged(false, forget);
    assert!(report.violations[0].contains("phantom"), "{report:?}");
}

#[test]
fn many_of_one_kind_are_counted_not_listed() {
    let report = judged(true, |f| f.seals.clear());
    assert!(
        report
            .violations
            .iter()
            .all(|said| !said.contains("more like"))
    );
    let report = judged(true, |f| f.events.extend((10..30).map(intent)));
    assert!(
        report
            .violations
            .iter()
            .any(|said| said.contains("and 15 more"))
    );
}
