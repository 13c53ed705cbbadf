//! The promises, one function each, over the facts.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use crate::{
    Consumer, Effects, Expect, Handles, Report,
    facts::{Done, Facts, Intent, Step},
};

/// How many examples of one kind are told.
const EXAMPLES: usize = 5;

/// Compares the witnesses.
pub fn judge(facts: &Facts, expect: &Expect) -> Report {
    let mut report = Report {
        events: facts.events.len(),
        ..Report::default()
    };
    clients(facts, expect, &mut report);
    intents(facts, &mut report);
    completions(facts, expect, &mut report);
    for consumer in &expect.consumers {
        match consumer.effects {
            Effects::Inside => inside(facts, expect, consumer, &mut report),
            Effects::Outside => outside(facts, expect, consumer, &mut report),
            Effects::Published => {}
        }
    }
    if let Some((parent, children)) = &expect.fan_out {
        fan_out(facts, parent, *children, &mut report);
    }
    quarantine(facts, expect, &mut report);
    let rest = facts.leases.iter().chain(&facts.verify);
    report.violations.extend(rest.cloned());
    let deeds = facts.effects.iter().chain(&facts.outside);
    report.attempt_max = deeds.map(|done| done.attempt).max().unwrap_or(0);
    report
}

/// What a client was told holds: committed is there, rolled back is not.
fn clients(facts: &Facts, expect: &Expect, report: &mut Report) {
    let there: HashSet<i64> = facts.business.iter().map(|row| row.n).collect();
    let mut steps: HashMap<i64, Vec<Step>> = HashMap::new();
    for told in &facts.told {
        steps.entry(told.n).or_default().push(told.step);
    }
    let (mut lost, mut phantoms) = (Vec::new(), Vec::new());
    for (n, steps) in &steps {
        let count = |step| steps.iter().filter(|s| **s == step).count();
        // Each try has one end; a client that died in one has none.
        let unanswered = count(Step::Begin) > count(Step::RolledBack) + count(Step::Committed);
        if count(Step::Committed) > 0 {
            report.committed += 1;
            if !there.contains(n) {
                lost.push(format!(
                    "intent {n}: its client was told that it committed, and it is gone"
                ));
            }
        } else if unanswered {
            report.unknown += 1;
        } else {
            report.rolled_back += 1;
            if there.contains(n) {
                phantoms.push(format!(
                    "intent {n}: its client was told that nothing is there, and it is"
                ));
            }
        }
    }
    if expect.durable {
        report.tell(lost);
    } else {
        report.taken_back = lost.len();
    }
    report.tell(phantoms);
    let untold = there.iter().filter(|n| !steps.contains_key(n));
    report.tell(untold.map(|n| format!("intent {n}: there without a client")));
}

/// Business row ⇔ event: one each, the same id, the same bytes.
fn intents(facts: &Facts, report: &mut Report) {
    let events = by_id(&facts.events);
    let ns: HashSet<i64> = facts.business.iter().map(|row| row.n).collect();
    report.tell(
        facts
            .business
            .iter()
            .filter_map(|row| match events.get(&row.event_id) {
                None => Some(format!(
                    "intent {}: its business row committed, its event is not there",
                    row.n
                )),
                Some(event) if event.n != row.n || event.digest != row.digest => Some(format!(
                    "event {}: other content than intent {}",
                    row.event_id, row.n
                )),
                Some(_) => None,
            }),
    );
    let mut seen = HashSet::new();
    report.tell(facts.events.iter().filter_map(|event| {
        if !ns.contains(&event.n) {
            Some(format!(
                "event {}: there without its business row {}",
                event.event_id, event.n
            ))
        } else if !seen.insert(event.n) {
            Some(format!(
                "event {}: a second one for intent {}",
                event.event_id, event.n
            ))
        } else {
            None
        }
    }));
}

/// Event ⇔ exactly one completion for each consumer.
fn completions(facts: &Facts, expect: &Expect, report: &mut Report) {
    let mut seals: HashMap<(&str, Uuid), usize> = HashMap::new();
    for seal in &facts.seals {
        *seals.entry((&seal.consumer, seal.event_id)).or_default() += 1;
    }
    for consumer in &expect.consumers {
        report.tell(due(facts, expect, consumer).filter_map(|event| {
            match seals.get(&(consumer.name.as_str(), event.event_id)) {
                None => Some(format!(
                    "event {} ({}): lost, {} never completed it",
                    event.event_id, event.n, consumer.name
                )),
                Some(1) => None,
                Some(n) => Some(format!(
                    "event {}: completed {n} times by {}",
                    event.event_id, consumer.name
                )),
            }
        }));
    }
    let events: HashSet<Uuid> = all(facts).map(|event| event.event_id).collect();
    report.tell(
        seals
            .keys()
            .filter(|(_, id)| !events.contains(id))
            .map(|(consumer, id)| {
                format!("event {id}: completed by {consumer}, and there is no such event")
            }),
    );
}

/// Exactly one effect row for each event.
fn inside(facts: &Facts, expect: &Expect, consumer: &Consumer, report: &mut Report) {
    let (effects, name) = (by_event(&facts.effects, &consumer.name), &consumer.name);
    report.tell(due(facts, expect, consumer).filter_map(|event| {
        match effects.get(&event.event_id).map_or(0, Vec::len) {
            1 => None,
            0 => Some(format!(
                "event {} ({}): no effect of {name}",
                event.event_id, event.n
            )),
            n => Some(format!(
                "event {} ({}): {n} effects of {name}",
                event.event_id, event.n
            )),
        }
    }));
    identity(&effects, facts, name, report);
}

/// At least one line for each event; the others are counted.
fn outside(facts: &Facts, expect: &Expect, consumer: &Consumer, report: &mut Report) {
    let (mut effects, name) = (by_event(&facts.outside, &consumer.name), &consumer.name);
    if expect.rewound {
        let events = by_id(&facts.events);
        let before = effects.len();
        effects.retain(|id, _| events.contains_key(id));
        report.only_outside += before - effects.len();
    }
    report.tell(due(facts, expect, consumer).filter_map(|event| {
        let none = !effects.contains_key(&event.event_id);
        none.then(|| {
            format!(
                "event {} ({}): no effect of {name} outside",
                event.event_id, event.n
            )
        })
    }));
    report.again += effects.values().map(|lines| lines.len() - 1).sum::<usize>();
    identity(&effects, facts, name, report);
}

/// Each event that this consumer completed has all its children, once each; no other event has one.
fn fan_out(facts: &Facts, parent: &str, children: usize, report: &mut Report) {
    let seals = facts.seals.iter().filter(|seal| seal.consumer == parent);
    let sealed: HashSet<Uuid> = seals.map(|seal| seal.event_id).collect();
    let mut born: HashMap<Uuid, Vec<i64>> = HashMap::new();
    for child in &facts.children {
        let mother = child.parent.unwrap_or_default();
        born.entry(mother).or_default().push(child.intent.n);
    }
    report.tell(sealed.iter().filter_map(|id| {
        let there = born.get(id).map_or(&[][..], Vec::as_slice);
        let distinct = there.iter().collect::<HashSet<_>>().len();
        (distinct != children || there.len() != children).then(|| {
            format!(
                "event {id}: {} children of {children}, {distinct} of them different",
                there.len()
            )
        })
    }));
    let orphans = born.keys().filter(|id| !sealed.contains(id));
    report.tell(
        orphans.map(|id| format!("event {id}: has children, and {parent} never completed it")),
    );
}

/// In quarantine is what should be there, and nothing else is parked.
fn quarantine(facts: &Facts, expect: &Expect, report: &mut Report) {
    let there = |n: &i64| {
        facts
            .parked
            .iter()
            .any(|row| row.n == *n && row.quarantined)
    };
    let missing = expect.quarantined.iter().filter(|n| !there(n));
    report.tell(missing.map(|n| format!("intent {n}: its event is not in quarantine")));
    let others = facts.parked.iter();
    let others = others.filter(|row| !row.quarantined || !expect.quarantined.contains(&row.n));
    report
        .violations
        .extend(others.map(|row| row.words.clone()));
}

/// Every effect belongs to an event that is there, and each try saw the same id and the same bytes.
fn identity(
    effects: &HashMap<Uuid, Vec<&Done>>,
    facts: &Facts,
    consumer: &str,
    report: &mut Report,
) {
    let events: HashMap<Uuid, &Intent> = all(facts).map(|event| (event.event_id, event)).collect();
    report.tell(
        effects
            .values()
            .flatten()
            .filter_map(|done| match events.get(&done.event_id) {
                None => Some(format!(
                    "phantom: {consumer} handled event {} (intent {}), and there is no such event",
                    done.event_id, done.n
                )),
                Some(event) if event.n != done.n || event.digest != done.digest => Some(format!(
                    "event {}: {consumer} saw other content in try {}",
                    done.event_id, done.attempt
                )),
                Some(_) => None,
            }),
    );
}

/// Every event of the log.
fn all(facts: &Facts) -> impl Iterator<Item = &Intent> {
    facts
        .events
        .iter()
        .chain(facts.children.iter().map(|child| &child.intent))
}

/// What this consumer must complete.
fn due<'a>(
    facts: &'a Facts,
    expect: &'a Expect,
    consumer: &Consumer,
) -> impl Iterator<Item = &'a Intent> {
    let handles = consumer.handles;
    let intents = facts
        .events
        .iter()
        .filter(move |_| handles == Handles::Intents);
    let children = facts
        .children
        .iter()
        .filter(move |_| handles == Handles::Children);
    let over = |n| expect.quarantined.contains(n) || expect.given_up.contains(n);
    let intents = intents.filter(move |event| !over(&event.n));
    intents.chain(children.map(|child| &child.intent))
}

fn by_id(intents: &[Intent]) -> HashMap<Uuid, &Intent> {
    intents
        .iter()
        .map(|intent| (intent.event_id, intent))
        .collect()
}

fn by_event<'a>(deeds: &'a [Done], consumer: &str) -> HashMap<Uuid, Vec<&'a Done>> {
    let mut all: HashMap<Uuid, Vec<&Done>> = HashMap::new();
    for done in deeds.iter().filter(|done| done.consumer == consumer) {
        all.entry(done.event_id).or_default().push(done);
    }
    all
}

impl Report {
    pub(crate) fn tell(&mut self, violations: impl IntoIterator<Item = String>) {
        let mut all: Vec<_> = violations.into_iter().collect();
        let more = all.len().saturating_sub(EXAMPLES);
        all.truncate(EXAMPLES);
        if more > 0 {
            all.push(format!("… and {more} more like these"));
        }
        self.violations.append(&mut all);
    }
}

#[cfg(test)]
mod tests;
