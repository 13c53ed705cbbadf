//! A broker in memory: topics, subscriptions, a dead list, and faults that a test scripts.
//!
//! It keeps the contract of [`Broker`] to the letter, and [`accepted`](Memory::accepted) says what it really took,
//! whatever it answered. So a test compares what somebody believes with what is so. Nothing of it is durable.
//!
//! ```
//! use outlast_core::broker::{Broker, Ensure, Topology};
//! use outlast_testkit::broker::memory::{Fault, Memory};
//! # async fn example(messages: Vec<outlast_core::broker::Message>) {
//! let broker = Memory::new().with_topic("bookings");
//! broker.then(Fault::ConfirmLost);
//! let said = broker.publish(&messages, std::time::Duration::from_secs(1)).await;
//! assert!(said.iter().all(|one| !one.is_confirmed()));
//! assert_eq!(broker.accepted().len(), messages.len());
//! # }
//! ```

mod fault;
mod receive;
mod store;

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use outlast_core::broker::{
    BoxFuture, Broker, BrokerError, Delivered, Ensure, Finding, Limits, Message, Published,
    Severity, Subscribed, Subscription, Topology, Why,
};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, sleep_until},
};

pub use fault::{Choice, Fault, Gate, Refusal, Taken};
use store::{Link, Store};

const LIMITS: Limits = Limits::new(1_000, 8 << 20, 1 << 20).with_ordered_batches();

/// A broker in memory. Its clones are the same broker: as if several processes were connected to it.
#[derive(Clone, Debug)]
pub struct Memory {
    limits: Limits,
    form: Form,
    inner: Arc<Inner>,
}

/// Whether it keeps anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Kept,
    Null,
}

#[derive(Debug)]
struct Inner {
    store: Mutex<Store>,
    /// Wakes subscribers: something may be there.
    news: Notify,
    /// How many messages were taken.
    taken: watch::Sender<usize>,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Memory {
    /// An empty one, that drops doubles and gives up on a message after 5 deliveries.
    pub fn new() -> Self {
        Self::of(Form::Kept)
    }

    /// Confirms everything at once and keeps nothing, but how many they were: for benchmarks. Every topic exists.
    pub fn null() -> Self {
        Self::of(Form::Null)
    }

    fn of(form: Form) -> Self {
        Self {
            limits: LIMITS,
            form,
            inner: Arc::new(Inner {
                store: Mutex::new(Store::new()),
                news: Notify::new(),
                taken: watch::Sender::new(0),
            }),
        }
    }

    /// With an ordered topic of this name.
    #[must_use]
    pub fn with_topic(self, topic: &str) -> Self {
        self.lock().topic(topic, true);
        self
    }

    /// With other limits. Only for this handle and those cloned from it.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Takes every copy, as a broker does that knows no ids of ours.
    #[must_use]
    pub fn without_dedup(self) -> Self {
        self.lock().dedup = false;
        self
    }

    /// Says that it keeps the order of keys, and gives what follows of a key to whoever asks while an earlier one is out.
    #[must_use]
    pub fn without_order(self) -> Self {
        self.lock().orderly = false;
        self
    }

    /// Gives out one message of an ordered subscription at a time, whatever its key, as NATS does.
    #[must_use]
    pub fn one_by_one(mut self) -> Self {
        self.lock().one_by_one = true;
        self.limits = self.limits.with_one_by_one();
        self
    }

    /// Gives up on a message after so many deliveries.
    #[must_use]
    pub fn with_deliveries(self, most: u32) -> Self {
        self.lock().max_deliveries = most;
        self
    }

    /// The next call to publish that has nothing else before it meets this fault. Once.
    pub fn then(&self, fault: Fault) -> &Self {
        self.lock().script.push_back(fault);
        self
    }

    /// Every call to publish meets this fault, until [`as_usual`](Self::as_usual); those of [`then`](Self::then) come first.
    pub fn meanwhile(&self, fault: Fault) {
        self.lock().meanwhile = Some(fault);
    }

    /// No more faults, of either kind.
    pub fn as_usual(&self) {
        let mut store = self.lock();
        store.meanwhile = None;
        store.script.clear();
    }

    /// From now on nobody reaches it: publish, probe, receive, settle all fail at once.
    pub fn down(&self) {
        self.set(Link::Down);
    }

    /// From now on it stands still, as a process after SIGSTOP: nobody gets an answer, and every call takes all of its time.
    /// What is published meanwhile is not taken.
    pub fn freeze(&self) {
        self.set(Link::Frozen);
    }

    /// It answers again, with everything that it had.
    pub fn up(&self) {
        self.set(Link::Up);
    }

    fn set(&self, link: Link) {
        self.lock().link = link;
        self.inner.news.notify_waiters();
    }

    /// Loses every message and what it knows of doubles; topics and subscriptions stay, the journal too.
    pub fn wipe(&self) {
        self.lock().wipe();
    }

    /// Loses a topic and its subscriptions, as if somebody had deleted it.
    pub fn delete(&self, topic: &str) {
        self.lock().topics.remove(topic);
    }

    /// What it has taken so far, in that order, without the copies that it dropped. A wipe does not shorten it.
    pub fn accepted(&self) -> Vec<Message> {
        self.lock().journal.clone()
    }

    /// How many it has taken so far. In the null form that is all there is.
    pub fn accepted_count(&self) -> usize {
        *self.inner.taken.borrow()
    }

    /// How many copies it has dropped because it had one of that id.
    pub fn doubles(&self) -> usize {
        self.lock().doubles
    }

    /// What each call to publish was asked for, in the order in which they came.
    pub fn calls(&self) -> Vec<Vec<Message>> {
        self.lock().calls.clone()
    }

    /// How often somebody wanted to read a subscription in order that keeps none.
    pub fn refused(&self) -> usize {
        self.lock().refused
    }

    /// How many messages of a subscription are neither settled nor given up on.
    pub fn unsettled(&self, subscription: &Subscription) -> usize {
        let mut store = self.lock();
        store
            .reader(subscription)
            .map_or(0, |one| one.pending.len())
    }

    /// Waits until it has taken so many in all.
    ///
    /// # Panics
    /// After the deadline.
    pub async fn accepted_at_least(&self, count: usize, deadline: Duration) {
        let mut taken = self.inner.taken.subscribe();
        let enough = taken.wait_for(|taken| *taken >= count);
        let came = tokio::time::timeout(deadline, enough).await.is_ok();
        let is = self.accepted_count();
        assert!(came, "waited {deadline:?} for {count} messages: {is} came");
    }

    fn lock(&self) -> MutexGuard<'_, Store> {
        let store = self.inner.store.lock();
        store.unwrap_or_else(PoisonError::into_inner)
    }

    async fn reachable(&self, within: Duration) -> Result<(), BrokerError> {
        let link = self.lock().link;
        match link {
            Link::Up => return Ok(()),
            Link::Down => {}
            Link::Frozen => sleep(within).await,
        }
        Err(BrokerError::new(Why::Unavailable, "the broker is down"))
    }

    /// Takes what can be taken, and tells the truth about it.
    fn take(
        &self,
        messages: &[&Message],
        refuse: impl Fn(&Message) -> Option<Why>,
    ) -> Vec<Published> {
        let mut store = self.lock();
        let before = store.journal.len();
        let said = store.take(messages, |message| {
            if let Err(why) = self.validate(message) {
                return Some((Why::Message, why));
            }
            refuse(message).map(|why| (why, "as the script says".to_owned()))
        });
        let new = store.journal.len() - before;
        drop(store);
        self.inner.taken.send_modify(|taken| *taken += new);
        self.inner.news.notify_waiters();
        said
    }

    /// Whoever calls has to keep to the limits: this is where a test finds out that he does not.
    fn check_call(&self, messages: &[Message]) {
        let Limits {
            messages: most,
            bytes,
            ordered_batches,
            ..
        } = self.limits;
        assert!(
            messages.len() <= most,
            "{} messages in a call that takes {most}",
            messages.len()
        );
        let good = messages.iter().filter(|one| self.validate(one).is_ok());
        let size: usize = good.map(Message::size).sum();
        assert!(size <= bytes, "{size} bytes in a call that takes {bytes}");
        let mut keys = HashSet::new();
        let keyed = messages.iter().filter(|one| one.ordering_key.is_some());
        for one in keyed.filter(|_| !ordered_batches) {
            let first = keys.insert((&one.topic, &one.ordering_key));
            assert!(
                first,
                "two messages of the key {:?} in one call",
                one.ordering_key
            );
        }
    }

    async fn publish_kept(&self, messages: &[Message], within: Duration) -> Vec<Published> {
        self.check_call(messages);
        let end = Instant::now() + within;
        // No broker answers before others had a turn.
        tokio::task::yield_now().await;
        let fault = {
            let mut store = self.lock();
            store.calls.push(messages.to_vec());
            if store.link == Link::Down {
                let down = Published::not_sent(Why::Unavailable, "the broker is down");
                return vec![down; messages.len()];
            }
            let frozen = (store.link == Link::Frozen).then_some(Fault::Silent(Taken::No));
            frozen
                .or_else(|| store.script.pop_front())
                .or_else(|| store.meanwhile.clone())
        };
        let in_order: Vec<_> = messages.iter().collect();
        let all_as_usual = || self.take(&in_order, |_| None);
        let all = |what: Published| vec![what; messages.len()];
        match fault {
            None => all_as_usual(),
            Some(Fault::ConfirmLost) => {
                let said = all_as_usual();
                said.into_iter().map(fault::confirm_lost).collect()
            }
            Some(Fault::RequestLost) => all(Published::unknown("sent and not answered")),
            Some(Fault::NotSent(why)) => all(Published::not_sent(why, "as the script says")),
            Some(Fault::Refuse(refuse)) => self.take(&in_order, |message| refuse(message)),
            Some(Fault::Lose(lose)) => {
                let said = messages.iter().zip(all_as_usual());
                said.map(|(message, said)| match lose(message) {
                    true => fault::confirm_lost(said),
                    false => said,
                })
                .collect()
            }
            Some(Fault::Reorder) => {
                let reversed: Vec<_> = messages.iter().rev().collect();
                let mut said = self.take(&reversed, |_| None);
                said.reverse();
                said
            }
            Some(Fault::Silent(taken)) => {
                let said = match taken {
                    Taken::Yes => all_as_usual(),
                    Taken::No => all(Published::Confirmed),
                };
                sleep_until(end).await;
                said.into_iter().map(fault::confirm_lost).collect()
            }
            Some(Fault::Hang(taken)) => {
                if taken == Taken::Yes {
                    _ = all_as_usual();
                }
                std::future::pending().await
            }
            Some(Fault::Held(gate)) => {
                gate.pass().await;
                all_as_usual()
            }
            Some(Fault::Late(gate)) => {
                let said = all_as_usual();
                gate.pass().await;
                said
            }
            Some(Fault::Panic) => panic!("the script says that this broker panics"),
        }
    }
}

impl Broker for Memory {
    fn kind(&self) -> &'static str {
        "memory"
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn validate(&self, message: &Message) -> Result<(), String> {
        let (size, most) = (message.size(), self.limits.message_bytes);
        if size > most {
            return Err(format!("it has {size} bytes, and at most {most} are taken"));
        }
        if message.topic.is_empty() {
            return Err("it has no topic".into());
        }
        let plain = |text: &str| text.bytes().all(|b| matches!(b, b' '..=b'~'));
        let own = message.envelope.to_attributes();
        for (name, value) in message.attributes.iter() {
            if name.is_empty() || !plain(name) || !plain(value) {
                return Err(format!("the attribute {name:?} is not printable ASCII"));
            }
            if own
                .iter()
                .any(|(taken, _)| taken.eq_ignore_ascii_case(name))
            {
                return Err(format!("the attribute {name} is the envelope's"));
            }
        }
        Ok(())
    }

    fn publish<'a>(
        &'a self,
        messages: &'a [Message],
        within: Duration,
    ) -> BoxFuture<'a, Vec<Published>> {
        if self.form == Form::Null {
            self.inner
                .taken
                .send_modify(|taken| *taken += messages.len());
            return Box::pin(std::future::ready(vec![
                Published::Confirmed;
                messages.len()
            ]));
        }
        Box::pin(self.publish_kept(messages, within))
    }

    fn ensure<'a>(
        &'a self,
        topology: &'a Topology,
        how: Ensure,
        within: Duration,
    ) -> BoxFuture<'a, Result<Vec<Finding>, BrokerError>> {
        Box::pin(async move {
            self.reachable(within).await?;
            if self.form == Form::Null {
                let advice = "it is only good for measuring";
                return Ok(vec![Finding::new(
                    Severity::Warning,
                    "null",
                    "keeps nothing",
                    advice,
                )]);
            }
            Ok(self.lock().ensure(topology, how))
        })
    }

    fn subscribe<'a>(
        &'a self,
        subscription: &'a Subscription,
        within: Duration,
    ) -> BoxFuture<'a, Result<Box<dyn Subscribed>, BrokerError>> {
        Box::pin(async move {
            self.reachable(within).await?;
            self.lock().readable(subscription)?;
            Ok(receive::subscribed(self.clone(), subscription.clone()))
        })
    }

    fn probe(&self, within: Duration) -> BoxFuture<'_, Result<(), BrokerError>> {
        Box::pin(self.reachable(within))
    }

    fn dead<'a>(
        &'a self,
        subscription: &'a Subscription,
        most: usize,
        within: Duration,
    ) -> BoxFuture<'a, Result<Vec<Delivered>, BrokerError>> {
        Box::pin(async move {
            self.reachable(within).await?;
            receive::dead(self, subscription, most)
        })
    }
}
