//! A handler that is a broker: it publishes a batch with no transaction open, and says of each event what came of it.
//!
//! What was confirmed is sealed by the engine, what was not is tried again by it. Here is only the order of sending: by the
//! time that is left, by what the broker takes at once, and, where keys are kept in order, nothing of a key after what was
//! not confirmed of it.

use std::{borrow::Cow, collections::HashSet, sync::Arc, time::Duration};

use outlast_core::{
    Class, Failure, Outcome,
    broker::{Broker, LogPlace, Message, NotSent, Published, Why},
    outage,
};
use outlast_postgres::store::Claimed;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::{BatchEnd, End, Left};

/// The longest that one call to a broker may take.
const CALL: Duration = Duration::from_secs(10);
/// An adapter that has not returned this long after its time is given up.
const WATCHDOG: Duration = Duration::from_secs(1);
/// With less than this left, nothing is sent any more.
const LEAST: Duration = Duration::from_millis(50);
/// How long what the destination refuses for all (no such topic, no rights) waits before it is tried again.
const REFUSED: Duration = Duration::from_secs(10);
/// How long what came too fast waits.
const THROTTLED: Duration = Duration::from_secs(2);

/// Sends the events of one route to one broker.
pub(crate) struct Publisher {
    pub(crate) broker: Arc<dyn Broker>,
    /// A topic; `{type}` in it stands for the event's type, `{topic}` for what the writer of an outbox has called its topic.
    pub(crate) topic: Arc<str>,
    /// Sent beside the envelope's.
    pub(crate) attributes: Arc<[(String, String)]>,
    /// Keys are kept in order.
    pub(crate) ordered: bool,
    /// What the log is called in envelopes.
    pub(crate) log: Option<Arc<str>>,
}

impl Publisher {
    /// Publishes these in their order. `left` is how much time is left for it.
    pub(crate) fn start(
        self: Arc<Self>,
        events: Vec<Arc<Claimed>>,
        left: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> JoinHandle<BatchEnd> {
        tokio::spawn(async move {
            let messages = events.iter().map(|event| self.message(event, 0)).collect();
            self.send(messages, left).await.end()
        })
    }

    /// Sends what it can in the time that is left.
    pub(crate) async fn send(
        &self,
        messages: Vec<Message>,
        left: impl Fn() -> Duration + Send + Sync,
    ) -> Sending<'_> {
        let mut sending = Sending::new(self, messages);
        loop {
            let within = CALL.min(left());
            if within < LEAST || !sending.wave(within).await {
                return sending;
            }
        }
    }

    /// The message for an event, of this round of publishing.
    pub(crate) fn message(&self, event: &Claimed, round: u32) -> Message {
        let topic = match self.is_one_topic() {
            true => self.topic.clone(),
            false => {
                let named = event.subject.as_deref().unwrap_or_default();
                let topic = self.topic.replace("{type}", &event.kind);
                topic.replace("{topic}", named).into()
            }
        };
        let mut envelope = event.envelope();
        envelope.log = self.log.as_ref().map(|log| LogPlace {
            log: log.to_string(),
            id: event.log_id,
        });
        let mut message = Message::new(topic, Arc::new(envelope), event.payload.clone());
        message.attributes = self.attributes.clone();
        message.round = round;
        if self.ordered {
            message.ordering_key = event.key.as_ref().map(|key| match &*event.tenant {
                "" => key.clone(),
                tenant => format!("{tenant}/{key}"),
            });
        }
        message
    }

    /// Whether everything goes to the same.
    fn is_one_topic(&self) -> bool {
        !self.topic.contains("{t")
    }
}

/// What is known of one message.
#[derive(Debug)]
enum State {
    Waiting,
    Confirmed,
    /// Nothing came of it, and it says nothing about the event.
    Untried,
    Failed(Failure),
    /// It certainly did not get there: the broker was not reached.
    Unreached(Failure),
    /// The topic takes nothing from us: it is missing, or we may not.
    Refused(Failure),
}

/// Messages on their way.
pub(crate) struct Sending<'a> {
    publisher: &'a Publisher,
    messages: Vec<Message>,
    states: Vec<State>,
    /// Keys of which something was not confirmed.
    stopped: HashSet<String>,
    /// From here on something may wait.
    from: usize,
}

impl<'a> Sending<'a> {
    fn new(publisher: &'a Publisher, messages: Vec<Message>) -> Self {
        let mut sending = Self {
            publisher,
            states: messages.iter().map(|_| State::Waiting).collect(),
            messages,
            stopped: HashSet::new(),
            from: 0,
        };
        for nth in 0..sending.messages.len() {
            if sending.is_stopped(nth) {
                continue;
            }
            if let Err(why) = publisher.broker.validate(&sending.messages[nth]) {
                sending.failed(nth, State::Failed(Failure::permanent(why)));
            }
        }
        sending
    }

    fn is_stopped(&self, nth: usize) -> bool {
        let key = self.messages[nth].ordering_key.as_ref();
        key.is_some_and(|key| self.stopped.contains(key))
    }

    fn failed(&mut self, nth: usize, state: State) {
        self.states[nth] = state;
        self.stopped.extend(self.messages[nth].ordering_key.clone());
    }

    /// One call to the broker with as much as it takes; false when there is nothing more to send.
    async fn wave(&mut self, within: Duration) -> bool {
        let wave = self.pick();
        if wave.is_empty() || self.is_down() {
            return false;
        }
        let outcomes = self.call(&wave, within).await;
        let silent = || Published::unknown("the adapter has not said what came of it");
        let mut outcomes = outcomes.into_iter();
        for nth in wave {
            match outcomes.next().unwrap_or_else(silent) {
                Published::Confirmed => self.states[nth] = State::Confirmed,
                Published::Unknown(reason) => {
                    self.failed(nth, State::Failed(Failure::unknown(reason)));
                }
                Published::NotSent(refused) => self.failed(nth, state(refused)),
            }
        }
        true
    }

    /// What the broker says of the messages of a wave; nothing if it does not return.
    async fn call(&self, wave: &[usize], within: Duration) -> Vec<Published> {
        let messages = self.of(wave);
        let broker = &self.publisher.broker;
        let call = broker.publish(&messages, within);
        match tokio::time::timeout(within + WATCHDOG, call).await {
            Ok(outcomes) => outcomes,
            Err(_) => {
                tracing::error!(
                    broker = broker.kind(),
                    ?within,
                    "a call to the broker has not returned in its time and is given up"
                );
                Vec::new()
            }
        }
    }

    /// The messages of a wave: where they are, unless something between them is left out.
    fn of(&self, wave: &[usize]) -> Cow<'_, [Message]> {
        if let (Some(first), Some(last)) = (wave.first(), wave.last())
            && last - first + 1 == wave.len()
        {
            return Cow::Borrowed(&self.messages[*first..=*last]);
        }
        wave.iter().map(|nth| self.messages[*nth].clone()).collect()
    }

    /// The next messages in their order, within what the broker takes at once.
    fn pick(&mut self) -> Vec<usize> {
        let limits = self.publisher.broker.limits();
        let (mut wave, mut bytes) = (Vec::new(), 0);
        let mut keys: HashSet<&str> = HashSet::new();
        while matches!(self.states.get(self.from), Some(state) if !matches!(state, State::Waiting))
        {
            self.from += 1;
        }
        for nth in self.from..self.messages.len() {
            if !matches!(self.states[nth], State::Waiting) || self.is_stopped(nth) {
                continue;
            }
            let message = &self.messages[nth];
            if let Some(key) = message.ordering_key.as_deref()
                && !limits.ordered_batches
                && !keys.insert(key)
            {
                continue;
            }
            bytes += message.size();
            if wave.len() == limits.messages || !wave.is_empty() && bytes > limits.bytes {
                break;
            }
            wave.push(nth);
        }
        wave
    }

    /// The destination has said so itself. Where each type has a topic, one that is missing says nothing of the others.
    fn is_refused(&self) -> bool {
        self.publisher.is_one_topic()
            && self
                .states
                .iter()
                .any(|state| matches!(state, State::Refused(_)))
    }

    /// Nothing was confirmed, and the broker was not reached: also a single message, as of a key whose others wait behind it,
    /// is not to blame.
    fn is_unreached(&self) -> bool {
        let mut states = self.states.iter();
        states.any(|state| matches!(state, State::Unreached(_))) && !self.is_any_confirmed()
    }

    fn is_any_confirmed(&self) -> bool {
        let mut states = self.states.iter();
        states.any(|state| matches!(state, State::Confirmed))
    }

    /// So much has failed that it is the destination, not the messages.
    fn is_down(&self) -> bool {
        if self.is_refused() || self.is_unreached() {
            return true;
        }
        let failed = self.states.iter().filter(|state| is_of_all(state)).count();
        failed >= outage::EVENTS || failed > 1 && !self.is_any_confirmed()
    }

    /// How many are done with: confirmed, and never to be taken. Then the others, in their order, and why the first of them
    /// was not confirmed.
    pub(crate) fn rest(self) -> (usize, usize, Vec<Message>, Option<String>) {
        let (mut confirmed, mut refused) = (0, 0);
        let (mut rest, mut why) = (Vec::new(), None);
        for (message, state) in self.messages.into_iter().zip(self.states) {
            match state {
                State::Confirmed => confirmed += 1,
                State::Failed(failure) if failure.class == Class::Permanent => {
                    tracing::error!(event.id = %message.envelope.id, topic = %message.topic, reason = %failure.reason, "not published again: the broker can never take it");
                    refused += 1;
                }
                State::Failed(failure) | State::Unreached(failure) | State::Refused(failure) => {
                    why.get_or_insert(failure.reason);
                    rest.push(message);
                }
                State::Waiting | State::Untried => rest.push(message),
            }
        }
        (confirmed, refused, rest, why)
    }

    fn end(self) -> BatchEnd {
        let down = self.is_down();
        let mut end = BatchEnd::all(Vec::new(), End::Done(Outcome::Done));
        let mut left = Left {
            refused: self.is_refused(),
            unreached: self.is_unreached(),
            ..Left::default()
        };
        let mut given_back = false;
        for (nth, (message, state)) in self.messages.iter().zip(&self.states).enumerate() {
            let id: Uuid = message.envelope.id;
            match state {
                State::Confirmed => end.ids.push(id),
                State::Failed(failure) | State::Unreached(failure) | State::Refused(failure) => {
                    match down && is_of_all(state) {
                        true => left.tried.push((id, failure.clone())),
                        false => end.failed.push((id, failure.clone())),
                    }
                }
                // The database puts it behind what has failed of its key.
                State::Waiting if !down && self.is_behind(nth) => {}
                State::Waiting | State::Untried => given_back = true,
            }
        }
        if given_back || !left.tried.is_empty() {
            end.left = Some(left);
        }
        end
    }

    /// Whether what stopped its key has failed, and is not merely untried.
    fn is_behind(&self, nth: usize) -> bool {
        let key = &self.messages[nth].ordering_key;
        let mut earlier = self.messages[..nth].iter().zip(&self.states);
        key.is_some()
            && earlier.any(|(message, state)| {
                message.ordering_key == *key
                    && matches!(
                        state,
                        State::Failed(_) | State::Unreached(_) | State::Refused(_)
                    )
            })
    }
}

/// A failure that says nothing about its message.
fn is_of_all(state: &State) -> bool {
    match state {
        State::Failed(failure) => failure.class != Class::Permanent,
        State::Unreached(_) | State::Refused(_) => true,
        State::Waiting | State::Confirmed | State::Untried => false,
    }
}

fn state(NotSent { why, reason, .. }: NotSent) -> State {
    let words = format!("{why}: {reason}");
    State::Failed(match why {
        Why::Message => Failure::permanent(words),
        Why::Throttled => {
            let mut failure = Failure::throttled(THROTTLED);
            failure.reason = words;
            failure
        }
        Why::Unavailable => return State::Unreached(Failure::retry(words)),
        Why::Behind | Why::NotTried => return State::Untried,
        // Missing, denied, configuration, and what is not known yet: a person has to mend it, and no message is to blame.
        _ => return State::Refused(Failure::retry(words).after(REFUSED).uncharged()),
    })
}
