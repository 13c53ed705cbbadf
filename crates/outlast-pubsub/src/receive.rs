//! Receiving: one pull at a time, of exactly as many as are asked for.
//!
//! The pulls are single requests, not Pub/Sub's stream: a stream is given its number of messages when it begins and holds
//! that many in memory, whatever the worker can take now. A pull that found nothing when its caller's time was over goes on,
//! for the next caller: a pull that is given up may be answered all the same, and then its messages lie with nobody until
//! their time is over. What comes when nobody asks any more is given back, after a drain at once.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use outlast_core::broker::{BoxFuture, BrokerError, Delivered, Subscribed, Subscription, Why};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep, sleep_until, timeout_at},
};

use crate::{
    Server,
    name::{self, What},
    outcome,
    rpc::Failed,
    settle::{Open, Settler},
    wire::{self, GetSubscription, Pull, Pulled, Received},
};

/// The most of a pull.
const AT_ONCE: usize = 1_000;
/// How long one pull may wait at the server, which ends it by itself after some 90 s. A shorter time of ours would leave pulls
/// there that nobody waits for.
const PULL: Duration = Duration::from_secs(100);
/// How long what has come waits for somebody to ask for it. To give it back costs it one of its deliveries.
const HELD: Duration = Duration::from_secs(5);
/// Between pulls that are answered with nothing at once.
const PAUSE: Duration = Duration::from_millis(50);
/// How long one waits for dead letters: nobody hurries with them, and mostly there are none.
const SOON: Duration = Duration::from_secs(1);
/// What a dead-letter topic adds to a message; not its own.
const DEAD: &str = "CloudPubSubDeadLetter";
const DEAD_COUNT: &str = "CloudPubSubDeadLetterSourceDeliveryCount";

/// A running subscription.
pub(crate) struct Receiver {
    server: Arc<Server>,
    name: String,
    /// Whether the order of keys is asked for.
    ordered: bool,
    settler: Settler,
    asks: mpsc::Sender<Ask>,
}

type Answer = Result<Vec<Received>, BrokerError>;

struct Ask {
    most: usize,
    until: Instant,
    answer: oneshot::Sender<Answer>,
}

/// Looks at the subscription, and begins with nothing fetched.
pub(crate) async fn subscribe(
    server: &Arc<Server>,
    subscription: &Subscription,
    until: Instant,
) -> Result<Receiver, BrokerError> {
    let topic = name::whole(What::Topic, &server.options.project, &subscription.topic);
    let topic = topic.map_err(wrong)?;
    let (mut stream, found) =
        open(server, &subscription.name, subscription.ack_within, until).await?;
    if found.topic != topic {
        let (name, reads) = (&stream.name, found.topic);
        return Err(wrong(format!(
            "the subscription {name} reads {reads}, not {topic}"
        )));
    }
    stream.ordered = subscription.ordered;
    stream.in_order(&found)?;
    Ok(stream)
}

/// A subscription, and what the server says of it.
async fn open(
    server: &Arc<Server>,
    name: &str,
    ack_within: Duration,
    until: Instant,
) -> Result<(Receiver, wire::Subscription), BrokerError> {
    let name = name::whole(What::Subscription, &server.options.project, name).map_err(wrong)?;
    let found = look(server, &name, until).await?;
    let (once, ordered) = (found.exactly_once, found.ordered);
    let settler = Settler::start(Arc::clone(server), name.clone(), once, ordered);
    let deadline = Duration::from_secs(u64::try_from(found.ack_deadline_seconds).unwrap_or(0));
    let (asks, waiting) = mpsc::channel(1);
    let puller = Puller {
        server: Arc::clone(server),
        name: name.clone(),
        settler: settler.clone(),
        ours: (ack_within != deadline).then_some(ack_within),
    };
    tokio::spawn(puller.run(waiting));
    let server = Arc::clone(server);
    let stream = Receiver {
        server,
        name,
        ordered: false,
        settler,
        asks,
    };
    Ok((stream, found))
}

impl Receiver {
    /// Refuses what does not keep the order that is asked for.
    fn in_order(&self, found: &wire::Subscription) -> Result<(), BrokerError> {
        if self.ordered && !found.ordered {
            let name = &self.name;
            return Err(wrong(format!(
                "the subscription {name} does not keep the order of keys, which cannot be switched on later: make a new one"
            )));
        }
        Ok(())
    }
}

fn wrong(why: String) -> BrokerError {
    BrokerError::new(Why::Configuration, why)
}

/// The subscription, if it is there and can be pulled from.
async fn look(
    server: &Server,
    name: &str,
    until: Instant,
) -> Result<wire::Subscription, BrokerError> {
    let subscription = name.to_owned();
    let asked = server.rpc.call(GetSubscription { subscription }, until);
    let found = asked
        .await
        .map_err(|failed| outcome::error(&format!("look at the subscription {name}"), &failed))?;
    let broken = |why: &str| Err(wrong(format!("the subscription {name} {why}")));
    if found.detached {
        return broken("is detached from its topic");
    }
    if found.pushes() {
        return broken("pushes, and cannot be pulled from");
    }
    Ok(found)
}

/// Streams of dead letters, by name and time to ack, between two questions. A new one for each question would leave its last
/// pull behind, and a message would go from one pull that nobody waits for to the next.
pub(crate) type Dead = Mutex<HashMap<(String, Duration), Receiver>>;

/// What lies in the dead-letter subscription, as it was before it died.
pub(crate) async fn dead(
    server: &Arc<Server>,
    streams: &Dead,
    subscription: &Subscription,
    most: usize,
    within: Duration,
) -> Result<Vec<Delivered>, BrokerError> {
    let until = Instant::now() + within;
    let streams = || streams.lock().unwrap_or_else(PoisonError::into_inner);
    let name = format!("{}{}", subscription.name, server.options.dead_suffix);
    let which = (name, subscription.ack_within);
    let known = streams().remove(&which);
    let mut stream = match known {
        Some(stream) => stream,
        None => open(server, &which.0, which.1, until).await?.0,
    };
    let left = until.saturating_duration_since(Instant::now());
    // One that fails is not kept.
    let mut all = stream.next(most, left.min(SOON)).await?;
    streams().insert(which, stream);
    for delivered in &mut all {
        let mut count = delivered.attributes.iter();
        let count = count.find(|(name, _)| name == DEAD_COUNT);
        delivered.number = count.and_then(|(_, count)| count.parse().ok());
        delivered
            .attributes
            .retain(|(name, _)| !name.starts_with(DEAD));
    }
    Ok(all)
}

impl Subscribed for Receiver {
    fn next(
        &mut self,
        most: usize,
        within: Duration,
    ) -> BoxFuture<'_, Result<Vec<Delivered>, BrokerError>> {
        Box::pin(async move {
            let until = Instant::now() + within;
            let (answer, answered) = oneshot::channel();
            let ask = Ask {
                most,
                until,
                answer,
            };
            let gone = || BrokerError::new(Why::Unavailable, "the runtime of this stream is gone");
            self.asks.send(ask).await.map_err(|_| gone())?;
            let received = answered.await.map_err(|_| gone())??;
            let delivered = received.into_iter();
            Ok(delivered
                .map(|received| delivered_of(&self.settler, received))
                .collect())
        })
    }

    fn health(&mut self, within: Duration) -> BoxFuture<'_, Result<(), BrokerError>> {
        Box::pin(async move {
            let until = Instant::now() + within;
            let found = look(&self.server, &self.name, until).await?;
            self.in_order(&found)
        })
    }

    /// The last pull goes on by itself until the server ends it, and what it brings is given back.
    fn drain(self: Box<Self>, _within: Duration) -> BoxFuture<'static, ()> {
        Box::pin(async move { drop(self) })
    }
}

fn delivered_of(settler: &Settler, received: Received) -> Delivered {
    let message = received.message.unwrap_or_default();
    let mut attributes: Vec<_> = message.attributes.into_iter().collect();
    attributes.sort();
    let settler = settler.clone();
    let ack_id = received.ack_id;
    Delivered {
        attributes,
        body: message.data,
        broker_id: message.message_id,
        number: u32::try_from(received.delivery).ok().filter(|n| *n > 0),
        settle: Box::new(Open { settler, ack_id }),
    }
}

/// Pulls for whoever asks.
struct Puller {
    server: Arc<Server>,
    name: String,
    settler: Settler,
    /// How long what is given out is ours, if the server would say another time.
    ours: Option<Duration>,
}

type Flight = Pin<Box<dyn Future<Output = Result<Pulled, Failed>> + Send>>;

impl Puller {
    async fn run(self, mut asks: mpsc::Receiver<Ask>) {
        let mut asking: Option<Ask> = None;
        let mut flight: Option<Flight> = None;
        let mut held: Option<(Answer, Instant)> = None;
        let mut began = Instant::now();
        loop {
            tokio::select! {
                ask = asks.recv(), if asking.is_none() => match ask {
                    Some(ask) => asking = Some(ask),
                    None => break,
                },
                got = landed(&mut flight) => {
                    flight = None;
                    let empty = matches!(&got, Ok(pulled) if pulled.messages.is_empty());
                    if empty && began.elapsed() < PAUSE {
                        sleep(PAUSE).await;
                    }
                    held = self.judged(got).map(|answer| (answer, Instant::now() + HELD));
                }
                () = until(asking.as_ref().map(|ask| ask.until)) => {
                    answer(asking.take(), Ok(Vec::new()));
                }
                () = until(held.as_ref().map(|(_, until)| *until)), if asking.is_none() => {
                    self.give_back(held.take().map(|(answer, _)| answer)).await;
                }
            }
            match (&asking, &held) {
                (Some(_), Some(_)) => {
                    let answer = held.take().map(|(answer, _)| answer);
                    self.hand_over(asking.take(), answer).await;
                }
                (Some(ask), None) if flight.is_none() => {
                    began = Instant::now();
                    flight = Some(self.pull(ask.most));
                }
                _ => {}
            }
        }
        // Nobody asks any more.
        self.give_back(held.map(|(answer, _)| answer)).await;
        if let Some(flight) = flight {
            self.give_back(self.judged(flight.await)).await;
        }
    }

    fn pull(&self, most: usize) -> Flight {
        let server = Arc::clone(&self.server);
        let call = Pull {
            subscription: self.name.clone(),
            most: i32::try_from(most.clamp(1, AT_ONCE)).unwrap_or(1),
        };
        Box::pin(async move { server.rpc.wait(call, Instant::now() + PULL).await })
    }

    /// What a pull brought; `None`: nothing, and the next one may begin.
    fn judged(&self, got: Result<Pulled, Failed>) -> Option<Answer> {
        match got {
            Ok(pulled) => Some(pulled.messages).filter(|all| !all.is_empty()).map(Ok),
            Err(failed) if failed.is_timeout() => None,
            Err(failed) => {
                let what = format!("pull from {}", self.name);
                Some(Err(outcome::error(&what, &failed)))
            }
        }
    }

    /// Hands out what is held. What was not asked for now, or comes too late, goes back.
    async fn hand_over(&self, ask: Option<Ask>, held: Option<Answer>) {
        let (Some(ask), Some(held)) = (ask, held) else {
            return;
        };
        let back = match held {
            Err(why) => answer(Some(ask), Err(why)),
            Ok(mut all) => {
                let over = all.split_off(all.len().min(ask.most));
                if let Some(ours) = self.ours {
                    // Before they are handed out, or it could come after a word of theirs.
                    let ids = all.iter().map(|received| received.ack_id.clone());
                    let postponed = self.settler.postpone(ids.collect(), ours);
                    let _ = timeout_at(ask.until, postponed).await;
                }
                self.give_back(Some(Ok(over))).await;
                answer(Some(ask), Ok(all))
            }
        };
        self.give_back(back).await;
    }

    async fn give_back(&self, held: Option<Answer>) {
        let Some(Ok(all)) = held else { return };
        let ids: Vec<String> = all.into_iter().map(|received| received.ack_id).collect();
        if !ids.is_empty() {
            self.settler.postpone(ids, Duration::ZERO).await;
        }
    }
}

/// Answers; gives the answer back if nobody is there to take it.
fn answer(ask: Option<Ask>, answer: Answer) -> Option<Answer> {
    match ask {
        Some(ask) => ask.answer.send(answer).err(),
        None => Some(answer),
    }
}

/// The pull that is under way, or never.
async fn landed(flight: &mut Option<Flight>) -> Result<Pulled, Failed> {
    match flight {
        Some(flight) => flight.await,
        None => std::future::pending().await,
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
