//! The checker sees: a story in which all is well, and what it says when one word of it is a lie.

use super::*;
use crate::facts::{Child, Parked, Seal, Told};

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
    judged_after(durable, false, lie)
}

fn judged_after(durable: bool, rewound: bool, lie: impl FnOnce(&mut Facts)) -> Report {
    let consumer = |name: &str, effects| Consumer {
        name: name.to_owned(),
        effects,
        handles: Handles::Intents,
    };
    let expect = Expect {
        consumers: vec![
            consumer(LEDGER, Effects::Inside),
            consumer(MAIL, Effects::Outside),
        ],
        durable,
        fan_out: None,
        quarantined: HashSet::new(),
        given_up: HashSet::new(),
        rewound,
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
    caught("is parked", |f| f.parked.push(parked(1, false)));
    caught("is parked", |f| f.parked.push(parked(1, true)));
}

fn parked(n: i64, quarantined: bool) -> Parked {
    Parked {
        n,
        quarantined,
        words: format!("{n} is parked"),
    }
}

/// Event 3 is poison. Event 1 has two children, and the ledger handles those too.
fn family(lie: impl FnOnce(&mut Facts)) -> Vec<String> {
    let consumer = |name: &str, handles| Consumer {
        name: name.to_owned(),
        effects: Effects::Inside,
        handles,
    };
    let expect = Expect {
        consumers: vec![
            consumer("parent", Handles::Intents),
            consumer(LEDGER, Handles::Children),
        ],
        durable: true,
        rewound: false,
        fan_out: Some(("parent".to_owned(), 2)),
        quarantined: HashSet::from([3]),
        given_up: HashSet::new(),
    };
    let mut facts = well();
    let seal = |consumer: &str, n| Seal {
        consumer: consumer.to_owned(),
        event_id: id(n),
    };
    facts.outside.clear();
    facts.seals = vec![seal("parent", 1), seal(LEDGER, 101), seal(LEDGER, 102)];
    facts.effects = vec![
        done("parent", 1, 1),
        done(LEDGER, 101, 1),
        done(LEDGER, 102, 1),
    ];
    facts.parked = vec![parked(3, true)];
    facts.children = [101, 102].map(child).into();
    lie(&mut facts);
    judge(&facts, &expect).violations
}

fn child(n: i64) -> Child {
    Child {
        intent: intent(n),
        parent: Some(id(1)),
    }
}

#[test]
fn a_family_passes_and_each_lie_about_it_is_seen() {
    let seen = |what: &str, lie: fn(&mut Facts)| {
        let said = family(lie);
        assert!(
            said.iter().any(|said| said.contains(what)),
            "{what}: {said:#?}"
        );
    };
    assert_eq!(family(|_| {}), Vec::<String>::new());
    seen("1 children of 2", |f| drop(f.children.pop()));
    seen("3 children of 2", |f| f.children.push(child(103)));
    seen("3 children of 2, 2 of them different", |f| {
        let mut twin = child(101);
        twin.intent.event_id = id(104);
        f.children.push(twin);
    });
    seen("never completed it", |f| f.children[0].parent = Some(id(3)));
    seen("lost, ledger", |f| drop(f.seals.pop()));
    seen("not in quarantine", |f| f.parked.clear());
    seen("3 is parked", |f| f.parked[0].quarantined = false);
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
    // Unless the history in which it was there was rewound: then it is counted.
    let report = judged_after(false, true, forget);
    assert_eq!((report.violations.len(), report.only_outside), (0, 1));
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
