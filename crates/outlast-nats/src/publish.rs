//! One call to publish: everything is sent at once, then the confirmations are awaited; one attempt, one outcome each.
//!
//! Of one ordering key a message goes when the one before it is confirmed: a stream may refuse one message and take the
//! next, and a connection may be lost between the two.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet, VecDeque},
};

use async_nats::{Message as Answer, StatusCode};
use outlast_core::broker::{Message, Published, Why};
use serde::Deserialize;
use tokio::{
    sync::broadcast::{Receiver, error::RecvError},
    time::{Instant, sleep_until, timeout_at},
};

use crate::{
    acks::Call,
    api::{Api, Refused},
    link::{GRACE, Link, denied_text, refused},
    message,
};

/// Publishes, and answers for every message.
pub(crate) async fn publish(
    link: &Link,
    api: &Api,
    messages: &[Message],
    by: Instant,
) -> Vec<Published> {
    if messages.is_empty() {
        return Vec::new();
    }
    // Half of the time for a connection, so that the rest is left for what is sent over it.
    let half = Instant::now() + by.saturating_duration_since(Instant::now()) / 2;
    if let Err(why) = link.ready(half).await {
        let all = messages.iter();
        // What can never be sent is told as that, whatever else is wrong.
        return all
            .map(|one| match message::check(one, link.max_payload()) {
                Ok(()) => Published::not_sent(why.why, &why.reason),
                Err(why) => Published::not_sent(Why::Message, why),
            })
            .collect();
    }
    let mut one = Publishing::new(link, messages, by);
    one.run().await;
    one.look_for_streams(api).await;
    one.outcomes()
}

struct Publishing<'a> {
    link: &'a Link,
    messages: &'a [Message],
    by: Instant,
    call: Call,
    /// Those whose turn it is.
    ready: VecDeque<usize>,
    /// The next one of the same key.
    next: Vec<Option<usize>>,
    said: Vec<Option<Published>>,
    flying: HashSet<usize>,
    /// Those that no stream has taken.
    nowhere: Vec<usize>,
}

impl<'a> Publishing<'a> {
    fn new(link: &'a Link, messages: &'a [Message], by: Instant) -> Self {
        let (mut ready, mut next) = (VecDeque::new(), vec![None; messages.len()]);
        let mut last = HashMap::new();
        for (n, message) in messages.iter().enumerate() {
            let key = message.ordering_key.as_deref();
            let before = key.and_then(|key| last.insert((&*message.topic, key), n));
            match before {
                Some(before) => next[before] = Some(n),
                None => ready.push_back(n),
            }
        }
        Self {
            link,
            messages,
            by,
            call: link.acks.call(),
            ready,
            next,
            said: vec![None; messages.len()],
            flying: HashSet::new(),
            nowhere: Vec::new(),
        }
    }

    async fn run(&mut self) {
        let (mut loss, mut denials) = (self.link.loss(), self.link.denials());
        loop {
            self.send().await;
            if self.flying.is_empty() {
                return;
            }
            tokio::select! {
                biased;
                (n, answer) = self.call.answer() => self.answered(n, &answer),
                denied = denials.recv() => self.denied(denied, &mut denials).await,
                () = loss.lost() => return self.give_up("the connection was lost before it was confirmed"),
                () = sleep_until(self.by) => return self.give_up("not confirmed in time"),
            }
        }
    }

    /// Sends everything whose turn it is.
    async fn send(&mut self) {
        while let Some(n) = self.ready.pop_front() {
            if let Err(said) = self.send_one(n).await {
                self.settle(n, said);
            } else {
                self.flying.insert(n);
            }
            while let Some((n, answer)) = self.call.answered() {
                self.answered(n, &answer);
            }
        }
    }

    async fn send_one(&self, n: usize) -> Result<(), Published> {
        let message = &self.messages[n];
        let headers = message::headers(message, self.link.max_payload());
        let headers = headers.map_err(|why| Published::not_sent(Why::Message, why))?;
        if !self.link.is_up() {
            // What is handed over now would be sent later, when nobody asks for it.
            return Err(Published::not_sent(
                Why::Unavailable,
                "no connection to NATS",
            ));
        }
        let sent = self.link.client().publish_with_reply_and_headers(
            message.topic.to_string(),
            self.call.reply(n),
            headers,
            message.body.clone(),
        );
        match timeout_at(self.by, sent).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(why)) => Err(Published::not_sent(refused(why.kind()), why)),
            // The client takes it whole or not at all.
            Err(_) => {
                let why = "the time was over before it was sent";
                Err(Published::not_sent(Why::NotTried, why))
            }
        }
    }

    fn answered(&mut self, n: usize, answer: &Answer) {
        if !self.flying.remove(&n) {
            return;
        }
        if answer.status == Some(StatusCode::NO_RESPONDERS) {
            self.nowhere.push(n);
            return self.settle(
                n,
                Published::not_sent(Why::Unavailable, "no stream has taken it"),
            );
        }
        self.settle(n, read(answer));
    }

    /// The server has refused a subject, without saying for which message. It has taken what it has confirmed, and
    /// nothing that comes after.
    async fn denied(&mut self, denied: Result<String, RecvError>, denials: &mut Receiver<String>) {
        let subject = match denied {
            Ok(subject) => subject,
            Err(RecvError::Lagged(_)) => return,
            Err(RecvError::Closed) => {
                *denials = self.link.denials();
                return;
            }
        };
        if !self
            .flying
            .iter()
            .any(|n| *self.messages[*n].topic == *subject)
        {
            return;
        }
        tokio::time::sleep(GRACE).await;
        while let Some((n, answer)) = self.call.answered() {
            self.answered(n, &answer);
        }
        let refused = self.flying.iter().copied();
        let refused: Vec<_> = refused
            .filter(|n| *self.messages[*n].topic == *subject)
            .collect();
        for n in refused {
            self.flying.remove(&n);
            self.settle(n, Published::not_sent(Why::Denied, denied_text(&subject)));
        }
    }

    fn give_up(&mut self, why: &str) {
        while let Some((n, answer)) = self.call.answered() {
            self.answered(n, &answer);
        }
        for n in std::mem::take(&mut self.flying) {
            self.settle(n, Published::unknown(why));
        }
        // A confirmation that came just now has made another one ready: it was not sent.
        for n in std::mem::take(&mut self.ready) {
            let why = "the time was over before it was sent";
            self.settle(n, Published::not_sent(Why::NotTried, why));
        }
    }

    fn settle(&mut self, n: usize, said: Published) {
        let confirmed = said.is_confirmed();
        self.said[n] = Some(said);
        if confirmed {
            self.ready.extend(self.next[n]);
            return;
        }
        let mut behind = self.next[n];
        while let Some(n) = behind {
            let why = "an earlier message of its key was not confirmed";
            self.said[n] = Some(Published::not_sent(Why::Behind, why));
            behind = self.next[n];
        }
    }

    /// No stream has answered: is there none, or has it no leader?
    async fn look_for_streams(&mut self, api: &Api) {
        let mut seen: HashMap<&str, Published> = HashMap::new();
        for &n in &self.nowhere {
            let topic = &*self.messages[n].topic;
            if !seen.contains_key(topic) {
                let said = match api.stream_of(self.link, topic, self.by).await {
                    Ok(None) => {
                        let why = format!("no stream takes the subject {topic}");
                        Published::not_sent(Why::Missing, why)
                    }
                    Ok(Some(stream)) => {
                        let why =
                            format!("the stream {stream} does not answer: it may have no leader");
                        Published::not_sent(Why::Unavailable, why)
                    }
                    Err(why) => Published::not_sent(Why::Unavailable, why),
                };
                seen.insert(topic, said);
            }
            self.said[n] = seen.get(topic).cloned();
        }
    }

    fn outcomes(self) -> Vec<Published> {
        let said = self.said.into_iter();
        // Invariant: whatever has no turn any more has been settled with the one before it.
        said.map(|said| said.unwrap_or_else(|| Published::not_sent(Why::NotTried, "not sent")))
            .collect()
    }
}

#[derive(Deserialize)]
struct Ack<'a> {
    error: Option<Refused>,
    #[serde(borrow)]
    stream: Option<Cow<'a, str>>,
    seq: Option<u64>,
}

/// What a stream says of a message.
pub(crate) fn read(answer: &Answer) -> Published {
    match serde_json::from_slice::<Ack<'_>>(&answer.payload) {
        Ok(Ack {
            error: Some(refused),
            ..
        }) => Published::not_sent(refused.why(), refused),
        Ok(Ack {
            stream: Some(_),
            seq: Some(1..),
            ..
        }) => Published::Confirmed,
        // Somebody else listens there, and answers.
        _ => Published::unknown("the answer is none of a stream"),
    }
}
