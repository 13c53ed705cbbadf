//! Brokers that are broken on purpose, each in one way.

use std::time::Duration;

use outlast_core::broker::{
    Acked, BoxFuture, Broker, BrokerError, Delivered, Ensure, Finding, Limits, Message, Published,
    Settle, Severity, Subscribed, Subscription, Topology, Why,
};
use outlast_testkit::broker::Memory;

/// What is wrong with a twin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// The last message of each call is confirmed and not stored.
    ConfirmsWithoutStoring,
    /// What is too large is confirmed, and gone.
    DropsTheOversize,
    /// One bad message fails its whole call.
    FailsAllForOne,
    /// What is too large is not refused beforehand.
    ValidatesNothing,
    /// The messages of a call are stored from the last to the first.
    Reorders,
    /// What is behind a refused message of its key is sent all the same.
    GoesOnBehind,
    /// Waits for a confirmation for ever.
    BlocksForEver,
    /// What may be stored is called not sent.
    SaysNotSent,
    /// What is lost is called confirmed, when the server does not answer.
    ConfirmsInTheDark,
    /// Every round is the same to it.
    ForgetsTheRound,
    /// Every copy is a new round to it.
    DropsNoDoubles,
    /// Attributes lose what is beside their words.
    TrimsAttributes,
    /// Bodies go through text.
    ReadsBodiesAsText,
    /// Takes more than it was asked for, and keeps it for the next time.
    Prefetches,
    /// Answers an ack by itself.
    AcksNothing,
    /// Releases without the delay.
    ReleasesAtOnce,
    /// Does not extend.
    ExtendsNothing,
    /// Asks nobody whether it lives.
    IsAlwaysHealthy,
    /// Finds everything good.
    FindsNothing,
    /// Makes what it was asked to look at.
    MakesWhatItSees,
    /// Finds nobody dead.
    BuriesNobody,
    /// Answers late when there is nothing.
    WakesLate,
    /// Gives to another what follows of a key.
    Overtakes,
    /// Reads as ordered what is not.
    PromisesOrder,
}

/// Each with the case that has to find it out.
pub(crate) const LIES: [(Lie, &str); 24] = [
    (
        Lie::ConfirmsWithoutStoring,
        "what_is_confirmed_arrives_with_the_same_attributes_and_bytes",
    ),
    (
        Lie::DropsTheOversize,
        "a_message_over_the_limit_is_refused_and_fails_alone",
    ),
    (
        Lie::FailsAllForOne,
        "a_message_over_the_limit_is_refused_and_fails_alone",
    ),
    (
        Lie::ValidatesNothing,
        "a_message_over_the_limit_is_refused_and_fails_alone",
    ),
    (
        Lie::Reorders,
        "a_key_keeps_its_order_within_and_across_calls",
    ),
    (
        Lie::GoesOnBehind,
        "nothing_of_a_key_is_sent_after_what_was_not_taken",
    ),
    (
        Lie::BlocksForEver,
        "a_frozen_server_is_answered_for_in_time_and_honestly",
    ),
    (
        Lie::SaysNotSent,
        "a_frozen_server_is_answered_for_in_time_and_honestly",
    ),
    (
        Lie::ConfirmsInTheDark,
        "without_a_server_calls_end_in_time_and_go_on_when_it_is_back",
    ),
    (
        Lie::ForgetsTheRound,
        "a_higher_round_arrives_again_with_the_same_envelope",
    ),
    (Lie::DropsNoDoubles, "the_same_round_again_is_never_lost"),
    (
        Lie::TrimsAttributes,
        "an_attribute_is_refused_alone_or_arrives_as_it_was",
    ),
    (
        Lie::ReadsBodiesAsText,
        "what_is_confirmed_arrives_with_the_same_attributes_and_bytes",
    ),
    (Lie::Prefetches, "never_more_are_taken_than_were_asked_for"),
    (
        Lie::AcksNothing,
        "what_is_extended_stays_ours_and_acked_never_comes_again",
    ),
    (
        Lie::ReleasesAtOnce,
        "what_is_released_comes_again_and_not_before_its_delay",
    ),
    (
        Lie::ExtendsNothing,
        "what_is_extended_stays_ours_and_acked_never_comes_again",
    ),
    (
        Lie::IsAlwaysHealthy,
        "health_and_probe_notice_a_server_that_stands_still",
    ),
    (
        Lie::FindsNothing,
        "what_somebody_else_made_with_other_settings_is_found_and_not_changed",
    ),
    (
        Lie::MakesWhatItSees,
        "what_is_missing_is_told_and_then_made",
    ),
    (
        Lie::BuriesNobody,
        "what_was_given_up_on_is_found_dead_with_its_envelope",
    ),
    (
        Lie::WakesLate,
        "next_waits_as_long_as_told_and_wakes_for_the_first_message",
    ),
    (
        Lie::Overtakes,
        "of_a_key_in_order_nothing_is_given_while_an_earlier_one_is_out",
    ),
    (
        Lie::PromisesOrder,
        "what_keeps_no_order_is_not_read_as_if_it_did",
    ),
];

/// A broker in memory that lies.
#[derive(Clone)]
pub(crate) struct Twin {
    truth: Memory,
    lie: Lie,
}

impl Twin {
    pub(crate) fn new(truth: Memory, lie: Lie) -> Self {
        let truth = match lie {
            Lie::DropsNoDoubles => truth.without_dedup(),
            _ => truth,
        };
        Self { truth, lie }
    }

    fn too_large(&self, message: &Message) -> bool {
        self.truth.validate(message).is_err()
    }

    async fn publish_lying(&self, messages: &[Message], within: Duration) -> Vec<Published> {
        let truth = &self.truth;
        let mut sent = messages.to_vec();
        match self.lie {
            Lie::ConfirmsWithoutStoring => _ = sent.pop(),
            Lie::DropsTheOversize => sent.retain(|one| !self.too_large(one)),
            Lie::FailsAllForOne if messages.iter().any(|one| self.too_large(one)) => {
                return vec![Published::not_sent(Why::Message, "one is bad"); messages.len()];
            }
            Lie::Reorders => sent.reverse(),
            Lie::GoesOnBehind => sent.iter_mut().for_each(|one| one.ordering_key = None),
            Lie::ForgetsTheRound => sent.iter_mut().for_each(|one| one.round = 0),
            Lie::TrimsAttributes => sent.iter_mut().for_each(trim),
            Lie::ReadsBodiesAsText => {
                for one in &mut sent {
                    one.body = String::from_utf8_lossy(&one.body).into_owned().into();
                }
            }
            // A server that stands still has it in its buffers, and takes it when it goes on.
            Lie::SaysNotSent if truth.probe(Duration::ZERO).await.is_err() => {
                let late = (self.clone(), sent);
                tokio::spawn(async move {
                    let (twin, sent) = late;
                    while twin.truth.probe(Duration::from_millis(5)).await.is_err() {
                        tokio::task::yield_now().await;
                    }
                    twin.truth.publish(&sent, Duration::from_secs(1)).await
                });
                return vec![Published::not_sent(Why::Unavailable, "frozen"); messages.len()];
            }
            _ => {}
        }
        let mut said = truth.publish(&sent, within).await;
        match self.lie {
            Lie::ConfirmsWithoutStoring | Lie::DropsTheOversize => {
                vec![Published::Confirmed; messages.len()]
            }
            Lie::BlocksForEver if !said.iter().all(Published::is_confirmed) => {
                std::future::pending().await
            }
            Lie::ConfirmsInTheDark => vec![Published::Confirmed; messages.len()],
            Lie::Reorders => {
                said.reverse();
                said
            }
            _ => said,
        }
    }
}

fn trim(message: &mut Message) {
    let trimmed = message.attributes.iter();
    let trimmed = trimmed.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
    message.attributes = trimmed.collect();
}

impl Broker for Twin {
    fn kind(&self) -> &'static str {
        "twin"
    }

    fn limits(&self) -> Limits {
        self.truth.limits()
    }

    fn validate(&self, message: &Message) -> Result<(), String> {
        match self.lie {
            Lie::ValidatesNothing => Ok(()),
            _ => self.truth.validate(message),
        }
    }

    fn publish<'a>(
        &'a self,
        messages: &'a [Message],
        within: Duration,
    ) -> BoxFuture<'a, Vec<Published>> {
        Box::pin(self.publish_lying(messages, within))
    }

    fn ensure<'a>(
        &'a self,
        topology: &'a Topology,
        how: Ensure,
        within: Duration,
    ) -> BoxFuture<'a, Result<Vec<Finding>, BrokerError>> {
        Box::pin(async move {
            match self.lie {
                Lie::FindsNothing => {
                    self.truth.ensure(topology, how, within).await?;
                    Ok(vec![Finding::new(Severity::Good, "all", "good", "")])
                }
                Lie::Overtakes => {
                    let mut topology = topology.clone();
                    if let Topology::Subscription(subscription) = &mut topology {
                        subscription.ordered = false;
                    }
                    self.truth.ensure(&topology, how, within).await
                }
                Lie::MakesWhatItSees => self.truth.ensure(topology, Ensure::Create, within).await,
                _ => self.truth.ensure(topology, how, within).await,
            }
        })
    }

    fn subscribe<'a>(
        &'a self,
        subscription: &'a Subscription,
        within: Duration,
    ) -> BoxFuture<'a, Result<Box<dyn Subscribed>, BrokerError>> {
        Box::pin(async move {
            let mut subscription = subscription.clone();
            if matches!(self.lie, Lie::Overtakes | Lie::PromisesOrder) {
                subscription.ordered = false;
            }
            let truth = self.truth.subscribe(&subscription, within).await?;
            let reading = Reading {
                truth,
                lie: self.lie,
                kept: Vec::new(),
            };
            Ok(Box::new(reading) as Box<dyn Subscribed>)
        })
    }

    fn probe(&self, within: Duration) -> BoxFuture<'_, Result<(), BrokerError>> {
        match self.lie {
            Lie::IsAlwaysHealthy => Box::pin(std::future::ready(Ok(()))),
            _ => self.truth.probe(within),
        }
    }

    fn dead<'a>(
        &'a self,
        subscription: &'a Subscription,
        most: usize,
        within: Duration,
    ) -> BoxFuture<'a, Result<Vec<Delivered>, BrokerError>> {
        let most = if self.lie == Lie::BuriesNobody {
            0
        } else {
            most
        };
        self.truth.dead(subscription, most, within)
    }
}

struct Reading {
    truth: Box<dyn Subscribed>,
    lie: Lie,
    kept: Vec<Delivered>,
}

impl Subscribed for Reading {
    fn next(
        &mut self,
        most: usize,
        within: Duration,
    ) -> BoxFuture<'_, Result<Vec<Delivered>, BrokerError>> {
        Box::pin(async move {
            if self.lie == Lie::WakesLate {
                tokio::time::sleep(within.min(Duration::from_secs(4))).await;
                return self.truth.next(most, Duration::ZERO).await;
            }
            let asked = if self.lie == Lie::Prefetches {
                most * 10
            } else {
                most
            };
            if self.kept.is_empty() {
                self.kept = self.truth.next(asked, within).await?;
            }
            let rest = self.kept.split_off(most.min(self.kept.len()));
            let given = std::mem::replace(&mut self.kept, rest);
            let lie = self.lie;
            let lying = given.into_iter().map(|mut one| {
                let truth = one.settle;
                one.settle = Box::new(Settling { truth, lie });
                one
            });
            Ok(lying.collect())
        })
    }

    fn health(&mut self, within: Duration) -> BoxFuture<'_, Result<(), BrokerError>> {
        match self.lie {
            Lie::IsAlwaysHealthy => Box::pin(std::future::ready(Ok(()))),
            _ => self.truth.health(within),
        }
    }

    fn drain(self: Box<Self>, within: Duration) -> BoxFuture<'static, ()> {
        self.truth.drain(within)
    }
}

struct Settling {
    truth: Box<dyn Settle>,
    lie: Lie,
}

impl Settle for Settling {
    fn ack(self: Box<Self>, within: Duration) -> BoxFuture<'static, Acked> {
        match self.lie {
            Lie::AcksNothing => Box::pin(std::future::ready(Acked::Confirmed)),
            _ => self.truth.ack(within),
        }
    }

    fn release(self: Box<Self>, after: Duration) -> BoxFuture<'static, ()> {
        match self.lie {
            Lie::ReleasesAtOnce => self.truth.release(Duration::ZERO),
            _ => self.truth.release(after),
        }
    }

    fn extend(&self, by: Duration) -> BoxFuture<'_, ()> {
        match self.lie {
            Lie::ExtendsNothing => Box::pin(std::future::ready(())),
            _ => self.truth.extend(by),
        }
    }
}
