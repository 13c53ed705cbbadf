//! Publishing: messages into requests, requests to the server, and one honest outcome for each message.
//!
//! Pub/Sub takes messages of one ordering key in a request, so a call becomes lanes: one for each topic and key, whose
//! requests go one after the other, and one for each request of messages without a key. Lanes run beside each other, within
//! a bound. A request that is refused as invalid is halved until the message that spoils it stands alone.

use std::{
    collections::{HashMap, HashSet, VecDeque, hash_map::Entry},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures_util::{StreamExt, stream::FuturesUnordered};
use outlast_core::broker::{Message, Published, Why};
use tokio::time::{Instant, timeout_at};
use tonic::Code;

use crate::{
    Server, check,
    name::{self, What},
    outcome,
    rpc::Failed,
    wire::Publish,
};

/// The most messages of a request.
const REQUEST_MESSAGES: usize = 1_000;
/// The most bytes of a request of several messages; one alone may be larger.
const REQUEST_BYTES: usize = 9_000_000;
/// A message's frame within a request, at most.
const FRAME: usize = 8;

/// A message that is to be sent: its place in the call, and its bytes.
struct Item<'a> {
    at: usize,
    /// Its own ordering key, whatever Pub/Sub orders it by.
    key: Option<&'a str>,
    encoded: Bytes,
}

/// Requests that go one after the other.
struct Lane<'a> {
    topic: Arc<str>,
    requests: VecDeque<Vec<Item<'a>>>,
}

impl<'a> Lane<'a> {
    fn new(topic: Arc<str>, first: Item<'a>) -> Self {
        let requests = VecDeque::from([vec![first]]);
        Self { topic, requests }
    }
}

pub(crate) async fn publish(
    server: &Server,
    messages: &[Message],
    within: Duration,
) -> Vec<Published> {
    let until = Instant::now() + within;
    let mut outcomes: Vec<Option<Published>> = vec![None; messages.len()];
    let lanes = lanes(server, messages, &mut outcomes);
    let lanes = lanes.into_iter();
    let mut running: FuturesUnordered<_> = lanes.map(|lane| run(server, lane, until)).collect();
    while let Some(done) = running.next().await {
        for (at, outcome) in done {
            outcomes[at] = Some(outcome);
        }
    }
    let outcomes = outcomes.into_iter();
    // Invariant: every message is refused here or in exactly one lane.
    outcomes
        .map(|outcome| outcome.expect("each message has an outcome"))
        .collect()
}

/// Sorts the messages into lanes. What cannot be sent gets its outcome at once, and what is behind it of its key.
fn lanes<'a>(
    server: &Server,
    messages: &'a [Message],
    outcomes: &mut [Option<Published>],
) -> Vec<Lane<'a>> {
    let mut lanes: Vec<Lane<'a>> = Vec::new();
    // The newest lane of a topic and a key of Pub/Sub's, and the bytes of its last request.
    let mut open: HashMap<(Arc<str>, Option<String>), (usize, usize)> = HashMap::new();
    let mut topics: HashMap<&str, Result<Arc<str>, String>> = HashMap::new();
    let mut stopped: HashSet<(&str, &str)> = HashSet::new();
    for (at, message) in messages.iter().enumerate() {
        let key = message.ordering_key.as_deref();
        let whose = key.map(|key| (&*message.topic, key));
        if whose.is_some_and(|whose| stopped.contains(&whose)) {
            outcomes[at] = Some(behind());
            continue;
        }
        let ordered_by = server.ordered_by(key);
        // A topic that cannot be is a matter of the route, not of the message.
        let whole = || name::whole(What::Topic, &server.options.project, &message.topic);
        let topic = topics.entry(&message.topic);
        let topic = topic.or_insert_with(|| whole().map(Arc::from)).clone();
        let topic = topic.map_err(|why| (Why::Missing, why));
        let checked = topic.and_then(|topic| {
            let encoded = check::message(message, ordered_by.as_deref());
            Ok((topic, encoded.map_err(|why| (Why::Message, why))?))
        });
        let (topic, encoded) = match checked {
            Ok(checked) => checked,
            Err((what, why)) => {
                outcomes[at] = Some(Published::not_sent(what, why));
                stopped.extend(whose);
                continue;
            }
        };
        let size = encoded.len() + FRAME;
        let item = Item { at, key, encoded };
        let ordered = ordered_by.is_some();
        match open.entry((topic.clone(), ordered_by)) {
            Entry::Occupied(mut lane) => {
                let (lane, bytes) = lane.get_mut();
                let requests = &mut lanes[*lane].requests;
                let last = requests.back_mut().expect("a lane has a request");
                if last.len() < REQUEST_MESSAGES && *bytes + size <= REQUEST_BYTES {
                    *bytes += size;
                    last.push(item);
                    continue;
                }
                *bytes = size;
                if ordered {
                    requests.push_back(vec![item]);
                    continue;
                }
                *lane = lanes.len();
                lanes.push(Lane::new(topic, item));
            }
            Entry::Vacant(lane) => {
                lane.insert((lanes.len(), size));
                lanes.push(Lane::new(topic, item));
            }
        }
    }
    lanes
}

/// Sends the requests of a lane in turn. A key of which something was not confirmed sends nothing more.
async fn run(server: &Server, lane: Lane<'_>, until: Instant) -> Vec<(usize, Published)> {
    let Lane {
        topic,
        mut requests,
    } = lane;
    let mut done = Vec::new();
    let mut stopped: HashSet<&str> = HashSet::new();
    while let Some(mut request) = requests.pop_front() {
        let stops = |item: &Item<'_>| item.key.is_some_and(|key| stopped.contains(key));
        done.extend(
            request
                .extract_if(.., |item| stops(item))
                .map(|item| (item.at, behind())),
        );
        if request.is_empty() {
            continue;
        }
        match send(server, &topic, &request, until).await {
            Ok(()) => done.extend(request.iter().map(|item| (item.at, Published::Confirmed))),
            // One bad message spoils all of its request: only alone can it be told.
            Err(failed) if failed.code == Code::InvalidArgument && request.len() > 1 => {
                let rest = request.split_off(request.len() / 2);
                requests.push_front(rest);
                requests.push_front(request);
            }
            Err(failed) => {
                let outcome = outcome::published(&failed);
                for item in request {
                    stopped.extend(item.key);
                    done.push((item.at, outcome.clone()));
                }
            }
        }
    }
    done
}

/// One request. Answered with anything but one id for each message it is as if it had not been answered.
async fn send(
    server: &Server,
    topic: &str,
    request: &[Item<'_>],
    until: Instant,
) -> Result<(), Failed> {
    let permit = timeout_at(until, server.requests.acquire()).await;
    let _permit = match permit {
        Ok(permit) => permit.expect("it is never closed"),
        Err(_) => return Err(Failed::not_tried()),
    };
    let call = Publish {
        topic: topic.to_owned(),
        messages: request.iter().map(|item| item.encoded.clone()).collect(),
    };
    let ids = server.rpc.call(call, until).await?.message_ids;
    if ids.len() == request.len() {
        return Ok(());
    }
    Err(Failed::strange(format!(
        "{} messages were answered with {} ids",
        request.len(),
        ids.len()
    )))
}

fn behind() -> Published {
    Published::not_sent(
        Why::Behind,
        "an earlier message of its key was not confirmed",
    )
}

#[cfg(test)]
mod tests {
    use outlast_core::broker::{Envelope, NotSent};
    use outlast_testkit::broker::emulator;
    use prost::Message as _;

    use super::*;
    use crate::{
        Options, PubSub,
        wire::{PubsubMessage, Topic},
    };

    const PATIENCE: Duration = Duration::from_secs(20);

    fn pubsub(endpoint: &str, project: &str) -> PubSub {
        let mut options = Options::new(project);
        options.endpoint = Some(endpoint.to_owned());
        PubSub::new(options).expect("the options are right")
    }

    fn message(key: Option<&str>, bytes: usize) -> Message {
        let at = std::time::UNIX_EPOCH;
        let envelope = Envelope::new(Default::default(), "booking.confirmed", at);
        let mut message = Message::new("events", Arc::new(envelope), vec![b'x'; bytes].into());
        message.ordering_key = key.map(str::to_owned);
        message
    }

    /// One that our own check would not let through; Pub/Sub refuses a whole request for it.
    fn bad() -> Bytes {
        PubsubMessage::default().encode_to_vec().into()
    }

    fn good(n: usize) -> Bytes {
        let data = n.to_string().into();
        let wire = PubsubMessage {
            data,
            ..PubsubMessage::default()
        };
        wire.encode_to_vec().into()
    }

    fn why(outcome: &Published) -> Option<Why> {
        match outcome {
            Published::NotSent(NotSent { why, .. }) => Some(*why),
            _ => None,
        }
    }

    #[tokio::test]
    async fn one_bad_message_of_a_request_is_found_and_the_others_are_confirmed() {
        let Some((address, project)) = emulator::shared().await else {
            return;
        };
        let pubsub = pubsub(&format!("http://{address}"), &project);
        let server = &*pubsub.server;
        let topic = format!("projects/{project}/topics/events");
        let until = Instant::now() + PATIENCE;
        let make = Topic {
            name: topic.clone(),
            ..Topic::default()
        };
        server.rpc.call(make, until).await.expect("made");
        const SPOILT: [usize; 3] = [0, 41, 42];
        for (key, behind) in [(None, false), (Some("a"), true)] {
            let item = |at: usize| Item {
                at,
                key: key.filter(|_| at % 2 == 1),
                encoded: if SPOILT.contains(&at) {
                    bad()
                } else {
                    good(at)
                },
            };
            let request: Vec<Item<'_>> = (0..100).map(item).collect();
            // Together they are refused: without taking them apart nothing would be confirmed.
            let together = send(server, &topic, &request, until).await;
            let together = together.expect_err("one spoils it");
            assert_eq!(together.code, Code::InvalidArgument, "{together:?}");
            let lane = Lane {
                topic: topic.as_str().into(),
                requests: VecDeque::from([request]),
            };
            let said = run(server, lane, until).await;
            assert_eq!(said.len(), 100);
            for (at, outcome) in said {
                let waits = behind && at > 41 && at % 2 == 1;
                let expected = match () {
                    () if SPOILT.contains(&at) => Some(Why::Message),
                    () if waits => Some(Why::Behind),
                    () => None,
                };
                assert_eq!(why(&outcome), expected, "{at}: {outcome:?}");
                assert_eq!(outcome.is_confirmed(), expected.is_none());
            }
        }
    }

    #[tokio::test]
    async fn requests_keep_to_the_limits_and_to_the_order_of_each_key() {
        let pubsub = pubsub("http://127.0.0.1:1", "p-1");
        let requests = |messages: &[Message]| {
            let mut outcomes = vec![None; messages.len()];
            let lanes = lanes(&pubsub.server, messages, &mut outcomes);
            assert_eq!(outcomes.iter().flatten().count(), 0);
            let of = |lane: Lane<'_>| -> Vec<Vec<usize>> {
                let requests = lane.requests.into_iter();
                requests
                    .map(|request| request.into_iter().map(|item| item.at).collect())
                    .collect()
            };
            lanes.into_iter().map(of).collect::<Vec<_>>()
        };
        // Without a key each request is a lane of its own, and they may run at once.
        let plain = vec![message(None, 1); 2_001];
        let sizes = requests(&plain);
        let sizes: Vec<usize> = sizes.iter().map(|lane| lane[0].len()).collect();
        assert_eq!(sizes, [1_000, 1_000, 1]);
        // Of a key they go one after the other.
        let keyed = vec![message(Some("a"), 1); 2_001];
        let lanes = requests(&keyed);
        assert_eq!(lanes.len(), 1);
        assert_eq!(lanes[0].concat(), (0..2_001).collect::<Vec<_>>());
        // A request has 9 MB; a message that is larger goes alone.
        let large = [
            message(None, 4_000_000),
            message(None, 4_000_000),
            message(None, 4_000_000),
            message(None, 9_500_000),
            message(None, 1),
        ];
        let lanes = requests(&large);
        assert_eq!(
            lanes,
            [
                vec![vec![0, 1]],
                vec![vec![2]],
                vec![vec![3]],
                vec![vec![4]]
            ]
        );
        let mixed: Vec<_> = ["a", "b", "a", "", "b"]
            .iter()
            .map(|key| message(Some(key), 1))
            .collect();
        assert_eq!(
            requests(&mixed),
            [vec![vec![0, 2]], vec![vec![1, 4]], vec![vec![3]]]
        );
    }

    #[tokio::test]
    async fn without_time_nothing_is_tried_and_without_a_server_nothing_was_sent() {
        // A port that nobody listens on.
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = free.local_addr().expect("it is bound");
        drop(free);
        let pubsub = pubsub(&format!("http://{address}"), "p-1");
        let messages = [
            message(None, 1),
            message(Some("a"), 1),
            message(Some("a"), 1),
        ];
        for (within, expected) in [
            (Duration::ZERO, Why::NotTried),
            (PATIENCE, Why::Unavailable),
        ] {
            let said = publish(&pubsub.server, &messages, within).await;
            let said: Vec<_> = said.iter().map(why).collect();
            assert_eq!(said, [Some(expected); 3]);
        }
    }
}
