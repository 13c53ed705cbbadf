//! What the broker in memory has: pure bookkeeping, under one lock.

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    time::Duration,
};

use outlast_core::broker::{
    BrokerError, Ensure, Finding, Message, Published, Severity, Subscription, Topology, Why,
};
use tokio::time::Instant;

use super::fault::Fault;

#[derive(Debug)]
pub(super) struct Store {
    pub(super) topics: BTreeMap<String, Topic>,
    pub(super) script: VecDeque<Fault>,
    pub(super) meanwhile: Option<Fault>,
    pub(super) link: Link,
    pub(super) dedup: bool,
    pub(super) orderly: bool,
    pub(super) one_by_one: bool,
    pub(super) refused: usize,
    pub(super) max_deliveries: u32,
    pub(super) journal: Vec<Message>,
    pub(super) calls: Vec<Vec<Message>>,
    pub(super) doubles: usize,
    /// Of the last delivery. Each has its own.
    tag: u64,
}

/// How anybody reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Up,
    Down,
    Frozen,
}

#[derive(Debug)]
pub(super) struct Topic {
    ordered: bool,
    known: HashSet<String>,
    readers: BTreeMap<String, Reader>,
    /// What came before there was a subscription too: the first one reads from the beginning.
    messages: BTreeMap<u64, Message>,
    last: u64,
}

/// One subscription.
#[derive(Debug)]
pub(super) struct Reader {
    wanted: Subscription,
    pub(super) pending: BTreeMap<u64, Pending>,
    pub(super) dead: BTreeMap<u64, Message>,
}

#[derive(Debug)]
pub(super) struct Pending {
    message: Message,
    number: u32,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Nobody has it; not before this.
    Waiting(Instant),
    /// Who has this tag has it, until then.
    Out(u64, Instant),
}

/// What a subscriber is given.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) message: Message,
    pub(super) place: u64,
    pub(super) number: u32,
    pub(super) tag: u64,
}

impl Store {
    pub(super) fn new() -> Self {
        Self {
            topics: BTreeMap::new(),
            script: VecDeque::new(),
            meanwhile: None,
            link: Link::Up,
            dedup: true,
            orderly: true,
            one_by_one: false,
            refused: 0,
            max_deliveries: 5,
            journal: Vec::new(),
            calls: Vec::new(),
            doubles: 0,
            tag: 0,
        }
    }

    pub(super) fn topic(&mut self, topic: &str, ordered: bool) -> &mut Topic {
        self.topics
            .entry(topic.to_owned())
            .or_insert_with(|| Topic {
                ordered,
                known: HashSet::new(),
                readers: BTreeMap::new(),
                messages: BTreeMap::new(),
                last: 0,
            })
    }

    pub(super) fn wipe(&mut self) {
        for topic in self.topics.values_mut() {
            topic.known.clear();
            topic.messages.clear();
            for reader in topic.readers.values_mut() {
                reader.pending.clear();
                reader.dead.clear();
            }
        }
    }

    /// Takes what is not refused; of a key nothing behind what was not taken.
    pub(super) fn take(
        &mut self,
        messages: &[&Message],
        refuse: impl Fn(&Message) -> Option<(Why, String)>,
    ) -> Vec<Published> {
        let mut stopped = HashSet::new();
        let mut said = Vec::with_capacity(messages.len());
        for &message in messages {
            let key = (message.topic.clone(), message.ordering_key.clone());
            if key.1.is_some() && stopped.contains(&key) {
                said.push(Published::not_sent(Why::Behind, "not tried"));
                continue;
            }
            let refused = refuse(message).or_else(|| {
                let missing = !self.topics.contains_key(&*message.topic);
                missing.then(|| (Why::Missing, format!("there is no topic {}", message.topic)))
            });
            if let Some((why, reason)) = refused {
                stopped.insert(key);
                said.push(Published::not_sent(why, reason));
                continue;
            }
            self.keep(message);
            said.push(Published::Confirmed);
        }
        said
    }

    fn keep(&mut self, message: &Message) {
        let dedup = self.dedup;
        let topic = self.topic(&message.topic, true);
        if !topic.known.insert(message.dedup_id()) && dedup {
            self.doubles += 1;
            return;
        }
        topic.last += 1;
        let place = topic.last;
        topic.messages.insert(place, message.clone());
        for reader in topic.readers.values_mut() {
            reader.pending.insert(place, Pending::new(message.clone()));
        }
        self.journal.push(message.clone());
    }

    /// Says what is there; makes what is missing, if asked to.
    pub(super) fn ensure(&mut self, wanted: &Topology, how: Ensure) -> Vec<Finding> {
        match wanted {
            Topology::Topic { topic, ordered } => {
                if how == Ensure::Create {
                    self.topic(topic, *ordered);
                }
                let Some(found) = self.topics.get(topic) else {
                    return vec![missing(topic)];
                };
                if *ordered && !found.ordered {
                    let advice = "it was made without order: delete it, or use another name";
                    return vec![Finding::new(Severity::Bad, topic, "unordered", advice)];
                }
                vec![Finding::new(Severity::Good, topic, "there", "")]
            }
            Topology::Subscription(wanted) => self.ensure_reader(wanted, how),
            _ => vec![Finding::new(
                Severity::Unverified,
                "topology",
                "unknown to this broker",
                "",
            )],
        }
    }

    fn ensure_reader(&mut self, wanted: &Subscription, how: Ensure) -> Vec<Finding> {
        let Some(topic) = self.topics.get_mut(&wanted.topic) else {
            return vec![missing(&wanted.topic)];
        };
        if how == Ensure::Create && !topic.readers.contains_key(&wanted.name) {
            let all = topic.messages.iter();
            let reader = Reader {
                wanted: wanted.clone(),
                pending: all
                    .map(|(place, message)| (*place, Pending::new(message.clone())))
                    .collect(),
                dead: BTreeMap::new(),
            };
            topic.readers.insert(wanted.name.clone(), reader);
        }
        let Some(reader) = topic.readers.get(&wanted.name) else {
            return vec![missing(&wanted.name)];
        };
        let found = format!(
            "ack within {:?}, ordered: {}",
            reader.wanted.ack_within, reader.wanted.ordered
        );
        if reader.wanted == *wanted {
            return vec![Finding::new(Severity::Good, &wanted.name, found, "")];
        }
        let advice = "somebody else made it, with other settings: delete it, or use another name";
        vec![Finding::new(Severity::Bad, &wanted.name, found, advice)]
    }

    pub(super) fn reader(&mut self, wanted: &Subscription) -> Result<&mut Reader, BrokerError> {
        let topic = self.topics.get_mut(&wanted.topic);
        let reader = topic.and_then(|topic| topic.readers.get_mut(&wanted.name));
        reader.ok_or_else(|| {
            let what = format!(
                "there is no subscription {} of {}",
                wanted.name, wanted.topic
            );
            BrokerError::new(Why::Missing, what)
        })
    }

    /// Whether it is there, and keeps the order that is asked for.
    pub(super) fn readable(&mut self, wanted: &Subscription) -> Result<(), BrokerError> {
        let keeps_order = self.reader(wanted)?.wanted.ordered;
        if wanted.ordered && !keeps_order {
            self.refused += 1;
            let what = format!("the subscription {} keeps no order", wanted.name);
            return Err(BrokerError::new(Why::Configuration, what));
        }
        Ok(())
    }

    /// Gives out what is due. Else when something will be, if that is known.
    pub(super) fn give(
        &mut self,
        wanted: &Subscription,
        most: usize,
    ) -> Result<(Vec<Given>, Option<Instant>), BrokerError> {
        self.bury(wanted)?;
        let (mut tag, now, orderly) = (self.tag, Instant::now(), self.orderly);
        let one_by_one = self.one_by_one;
        let reader = self.reader(wanted)?;
        let (mut given, mut next) = (Vec::new(), None::<Instant>);
        let mut held = HashSet::new();
        for (&place, pending) in &mut reader.pending {
            if given.len() == most {
                break;
            }
            let key = pending.message.ordering_key.clone();
            let key = key.filter(|_| reader.wanted.ordered && orderly);
            if key.as_ref().is_some_and(|key| held.contains(key)) {
                continue;
            }
            held.extend(key);
            let (State::Waiting(due) | State::Out(_, due)) = pending.state;
            let last = one_by_one && reader.wanted.ordered;
            if due > now {
                next = Some(next.map_or(due, |next| next.min(due)));
                if last {
                    break;
                }
                continue;
            }
            tag += 1;
            pending.number += 1;
            pending.state = State::Out(tag, now + reader.wanted.ack_within);
            given.push(Given {
                message: pending.message.clone(),
                place,
                number: pending.number,
                tag,
            });
            if last {
                break;
            }
        }
        self.tag = tag;
        Ok((given, next))
    }

    /// Gives up on what was delivered as often as it may be.
    pub(super) fn bury(&mut self, wanted: &Subscription) -> Result<(), BrokerError> {
        let (limit, now) = (self.max_deliveries, Instant::now());
        let reader = self.reader(wanted)?;
        let over = reader.pending.extract_if(.., |_, one| {
            let (State::Waiting(due) | State::Out(_, due)) = one.state;
            one.number >= limit && due <= now
        });
        reader
            .dead
            .extend(over.map(|(place, one)| (place, one.message)));
        Ok(())
    }

    /// The delivery that has this tag, if nobody else was given the message since.
    pub(super) fn out(
        &mut self,
        wanted: &Subscription,
        place: u64,
        tag: u64,
    ) -> Option<(&mut Reader, Delivery)> {
        let reader = self.reader(wanted).ok()?;
        let state = reader.pending.get(&place)?.state;
        let ours = matches!(state, State::Out(at, until) if at == tag && until > Instant::now());
        ours.then_some((reader, Delivery(place)))
    }
}

/// A delivery that is still ours.
pub(super) struct Delivery(u64);

impl Reader {
    pub(super) fn done(&mut self, delivery: &Delivery) {
        self.pending.remove(&delivery.0);
    }

    pub(super) fn release(&mut self, delivery: &Delivery, after: Duration) {
        let one = self.pending.get_mut(&delivery.0);
        let one = one.expect("a delivery is found under the same lock");
        one.state = State::Waiting(Instant::now() + after);
    }

    pub(super) fn extend(&mut self, delivery: &Delivery, by: Duration) {
        let one = self.pending.get_mut(&delivery.0);
        let one = one.expect("a delivery is found under the same lock");
        if let State::Out(_, until) = &mut one.state {
            *until = Instant::now() + by;
        }
    }
}

impl Pending {
    fn new(message: Message) -> Self {
        Self {
            message,
            number: 0,
            state: State::Waiting(Instant::now()),
        }
    }
}

fn missing(name: &str) -> Finding {
    Finding::new(Severity::Bad, name, "missing", "make it, with ensure").missing()
}
