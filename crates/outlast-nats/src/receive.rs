//! Receiving: one pull request for each call, answered at once with what is there, else with the first message that comes.
//!
//! Nothing is asked for beyond that, so nothing waits in our memory. What comes too many times is put aside as dead before
//! anybody sees it.

use std::{sync::Arc, time::Duration};

use async_nats::{Message, Subscriber};
use futures_util::StreamExt;
use outlast_core::broker::{BoxFuture, BrokerError, Delivered, Subscribed, Subscription, Why};
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use crate::{
    api::{Api, nanos},
    dead::Dead,
    link::{Link, denied_of, denied_text},
    order,
    settle::{Place, delivered},
};

/// How much later than the end of a request its last word may come.
const LAST_WORD: Duration = Duration::from_millis(300);
/// How long a request that has been given something waits for more without a word. The server says when there is no more, but
/// not when too much is unsettled.
const QUIET: Duration = Duration::from_millis(100);
/// The server answers some requests at once with "not now".
const PAUSE: Duration = Duration::from_millis(20);

pub(crate) struct Reading {
    pub(crate) link: Arc<Link>,
    pub(crate) api: Api,
    pub(crate) stream: String,
    pub(crate) consumer: String,
    pub(crate) dead: Dead,
    pub(crate) wanted: Subscription,
    /// The most that can be unsettled.
    pub(crate) pending: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    No,
    ForTheFirst,
}

/// What ended a request.
enum End {
    /// There is no more now, or it was filled.
    Done,
    /// Not now; ask again.
    Again,
    /// The consumer is gone, or does not answer.
    Gone(String),
    /// The request is not understood.
    Refused(String),
    /// We may not ask.
    Denied(String),
}

impl Reading {
    async fn next_by(&self, most: usize, by: Instant) -> Result<Vec<Delivered>, BrokerError> {
        loop {
            self.link.ready(by).await?;
            let (came, end) = self.request(most, Wait::ForTheFirst, by).await?;
            let mut kept = Vec::with_capacity(came.len());
            for (message, place) in came {
                // Of a key in order nothing may go on without it: what is put aside would be overtaken.
                if self.dead.is_over(place.number) && !self.wanted.ordered {
                    self.dead.put_aside(&self.link, message, place).await;
                } else {
                    kept.push(delivered(&self.link, message, place));
                }
            }
            if !kept.is_empty() {
                return Ok(kept);
            }
            match end {
                End::Refused(why) => return Err(BrokerError::new(Why::Configuration, why)),
                End::Denied(why) => return Err(BrokerError::new(Why::Denied, why)),
                End::Gone(why) => return Err(self.gone(why, by).await),
                End::Done | End::Again if Instant::now() >= by => return Ok(kept),
                End::Done => {}
                End::Again => tokio::time::sleep_until((Instant::now() + PAUSE).min(by)).await,
            }
        }
    }

    /// What is there now, without waiting for more.
    pub(crate) async fn there(
        &self,
        most: usize,
        by: Instant,
    ) -> Result<Vec<(Message, Place)>, BrokerError> {
        match self.request(most, Wait::No, by).await? {
            (_, End::Refused(why)) => Err(BrokerError::new(Why::Configuration, why)),
            (_, End::Denied(why)) => Err(BrokerError::new(Why::Denied, why)),
            (_, End::Gone(why)) => Err(self.gone(why, by).await),
            (came, End::Done | End::Again) => Ok(came),
        }
    }

    async fn request(
        &self,
        most: usize,
        wait: Wait,
        by: Instant,
    ) -> Result<(Vec<(Message, Place)>, End), BrokerError> {
        let client = self.link.client();
        let inbox = client.new_inbox();
        let unavailable = |why: &dyn std::fmt::Display| BrokerError::new(Why::Unavailable, why);
        let subscribed = timeout_at(by, client.subscribe(inbox.clone())).await;
        let mut answers = match subscribed {
            Ok(Ok(answers)) => answers,
            Ok(Err(why)) => return Err(unavailable(&why)),
            Err(_) => return Ok((Vec::new(), End::Again)),
        };
        let rest = by.saturating_duration_since(Instant::now());
        let body = match wait {
            Wait::No => json!({ "batch": most, "no_wait": true }),
            // One at a time: the server has it ready when the one before is settled, and would else say "not now" until then.
            Wait::ForTheFirst if self.wanted.ordered => json!({
                "batch": 1,
                "expires": nanos(rest.max(Duration::from_millis(1))),
            }),
            // Both together: at once what is there, else the first that comes.
            Wait::ForTheFirst => json!({
                "batch": most,
                "expires": nanos(rest.max(Duration::from_millis(1))),
                "no_wait": true,
            }),
        };
        let what = format!("CONSUMER.MSG.NEXT.{}.{}", self.stream, self.consumer);
        let subject = self.api.subject(&what);
        let mut denials = self.link.denials();
        let asked = client.publish_with_reply(subject.clone(), inbox, body.to_string().into());
        match timeout_at(by, asked).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return Err(unavailable(&why)),
            Err(_) => return Ok((Vec::new(), End::Again)),
        }
        let collected = tokio::select! {
            collected = self.collect(&mut answers, most, by) => collected,
            () = denied_of(&mut denials, &subject) => (Vec::new(), End::Denied(denied_text(&subject))),
        };
        Ok(collected)
    }

    /// Takes what comes until the server says that it was all.
    async fn collect(
        &self,
        answers: &mut Subscriber,
        most: usize,
        by: Instant,
    ) -> (Vec<(Message, Place)>, End) {
        let (mut came, mut loss) = (Vec::new(), self.link.loss());
        let last_word = by + LAST_WORD;
        while came.len() < most {
            let until = match came.is_empty() {
                true => last_word,
                false => (Instant::now() + QUIET).min(last_word),
            };
            let answer = tokio::select! {
                biased;
                answer = timeout_at(until, answers.next()) => answer,
                () = loss.lost() => return (came, End::Again),
            };
            let Ok(Some(message)) = answer else {
                return (came, End::Done);
            };
            if let Some(status) = message.status {
                let words = message.description.clone().unwrap_or_default();
                match end(status.as_u16(), &words) {
                    None => continue,
                    Some(end) => return (came, end),
                }
            }
            if let Some(place) = message.reply.as_deref().and_then(Place::read) {
                came.push((message, place));
            }
        }
        (came, End::Done)
    }

    async fn gone(&self, why: String, by: Instant) -> BrokerError {
        let by = by.max(Instant::now() + LAST_WORD);
        let there = self
            .api
            .consumer(&self.link, &self.stream, &self.consumer, by)
            .await;
        match there {
            Ok(None) => BrokerError::new(
                Why::Missing,
                format!("the consumer {} is gone", self.consumer),
            ),
            Ok(Some(_)) => BrokerError::new(Why::Unavailable, why),
            Err(why) => why,
        }
    }
}

/// What a status means for a request. None: it goes on.
fn end(status: u16, words: &str) -> Option<End> {
    match status {
        100 => None,
        404 => Some(End::Done),
        // Its time is over; or others have asked before us.
        408 => Some(match words {
            "Requests Pending" => End::Again,
            _ => End::Done,
        }),
        // The consumer is deleted, has another leader, has too much unsettled; the server stops.
        409 if words.contains("Consumer Deleted") => Some(End::Gone(words.to_owned())),
        409 => Some(End::Again),
        503 => Some(End::Gone("nobody answers for the consumer".into())),
        _ => Some(End::Refused(format!("{status} {words}"))),
    }
}

impl Subscribed for Reading {
    fn next(
        &mut self,
        most: usize,
        within: Duration,
    ) -> BoxFuture<'_, Result<Vec<Delivered>, BrokerError>> {
        let by = Instant::now() + within;
        Box::pin(async move {
            if most == 0 {
                return Ok(Vec::new());
            }
            self.next_by(most.min(self.pending), by).await
        })
    }

    fn health(&mut self, within: Duration) -> BoxFuture<'_, Result<(), BrokerError>> {
        let by = Instant::now() + within;
        Box::pin(async move {
            self.link.ready(by).await?;
            let found = self
                .api
                .consumer(&self.link, &self.stream, &self.consumer, by)
                .await?;
            let found = found.ok_or_else(|| {
                let what = format!("there is no consumer {} on {}", self.consumer, self.stream);
                BrokerError::new(Why::Missing, what)
            })?;
            order::check(&self.wanted, &self.consumer, &found.config)
        })
    }

    fn drain(self: Box<Self>, _within: Duration) -> BoxFuture<'static, ()> {
        // Between two calls nothing is asked for.
        Box::pin(std::future::ready(()))
    }
}
