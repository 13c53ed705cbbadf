//! Acks and their like, gathered: while one request is on its way, what comes in the meantime waits for the next one.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use futures_util::future::join_all;
use outlast_core::broker::{Acked, BoxFuture, Settle};
use prost::Message as _;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout},
};

use crate::{
    Server,
    rpc::Failed,
    wire::{Acknowledge, Deadline, ErrorInfo, Status},
};

/// The most of a request: its size is limited, and an id has some 200 bytes.
const AT_ONCE: usize = 1_000;
/// How long a request may take.
const REQUEST: Duration = Duration::from_secs(10);
/// Pub/Sub's longest.
const LONGEST: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Ack,
    /// So many seconds from now it is delivered again.
    Deadline(i32),
}

struct Order {
    what: What,
    ack_id: String,
    done: oneshot::Sender<Acked>,
}

/// Settles the deliveries of one subscription.
#[derive(Clone)]
pub(crate) struct Settler {
    orders: mpsc::Sender<Order>,
    /// Given back, it is nobody's for so long at least.
    least: i32,
}

impl Settler {
    /// It works as long as there is a clone of it.
    ///
    /// In order nothing is given back at once: what is nacked is not out any more, and while it waits to be delivered again the
    /// emulator delivers what follows it. What is given another time to settle stays out until that is over.
    pub(crate) fn start(
        server: Arc<Server>,
        subscription: String,
        exactly_once: bool,
        ordered: bool,
    ) -> Self {
        let (orders, mut waiting) = mpsc::channel(AT_ONCE);
        let desk = Desk {
            server,
            subscription,
            exactly_once,
        };
        tokio::spawn(async move {
            let mut batch: Vec<Order> = Vec::with_capacity(AT_ONCE);
            while !batch.is_empty() || waiting.recv_many(&mut batch, AT_ONCE).await > 0 {
                // What is said twice of one delivery goes one after the other, or the first could win.
                let mut named = HashSet::new();
                let (now, later): (Vec<Order>, Vec<Order>) = batch
                    .drain(..)
                    .partition(|order| named.insert(order.ack_id.clone()));
                batch = later;
                let mut kinds: BTreeMap<What, Vec<Order>> = BTreeMap::new();
                for order in now {
                    kinds.entry(order.what).or_default().push(order);
                }
                join_all(
                    kinds
                        .into_iter()
                        .map(|(what, orders)| desk.tell(what, orders)),
                )
                .await;
            }
        });
        Self {
            orders,
            least: i32::from(ordered),
        }
    }

    /// Gives them back: others get them after this time.
    pub(crate) async fn postpone(&self, ack_ids: Vec<String>, by: Duration) {
        let what = What::Deadline(seconds(by).max(self.least));
        join_all(ack_ids.into_iter().map(|id| self.order(what, id))).await;
    }

    async fn order(&self, what: What, ack_id: String) -> Acked {
        let (done, answer) = oneshot::channel();
        let order = Order { what, ack_id, done };
        if self.orders.send(order).await.is_err() {
            return Acked::Unknown;
        }
        answer.await.unwrap_or(Acked::Unknown)
    }
}

struct Desk {
    server: Arc<Server>,
    subscription: String,
    exactly_once: bool,
}

impl Desk {
    async fn tell(&self, what: What, orders: Vec<Order>) {
        let subscription = self.subscription.clone();
        let ack_ids: Vec<String> = orders.iter().map(|order| order.ack_id.clone()).collect();
        let until = Instant::now() + REQUEST;
        let rpc = &self.server.rpc;
        let answer = match what {
            What::Ack => {
                let call = Acknowledge {
                    subscription,
                    ack_ids,
                };
                rpc.call(call, until).await.map(drop)
            }
            What::Deadline(seconds) => {
                let call = Deadline {
                    subscription,
                    seconds,
                    ack_ids,
                };
                rpc.call(call, until).await.map(drop)
            }
        };
        if let Err(failed) = &answer {
            tracing::debug!(
                subscription = %self.subscription,
                "{what:?} of {} deliveries: {}", orders.len(), failed.reason
            );
        }
        for order in orders {
            let acked = came_of(self.exactly_once, &order.ack_id, &answer);
            // Whoever asked may have gone meanwhile.
            let _ = order.done.send(acked);
        }
    }
}

/// What an answer says of one ack. Only exactly-once subscriptions say it, in the details of an error that names those which
/// failed; the others of that request are done.
fn came_of(exactly_once: bool, ack_id: &str, answer: &Result<(), Failed>) -> Acked {
    let failed = match answer {
        Ok(()) if exactly_once => return Acked::Confirmed,
        Ok(()) => return Acked::Sent,
        Err(failed) => failed,
    };
    let told = told(failed);
    match told.get(ack_id) {
        Some(told) if told.starts_with(LOST) => Acked::Lost,
        None if exactly_once && told.values().any(|told| is_of_acks(told)) => Acked::Confirmed,
        _ => Acked::Unknown,
    }
}

const LOST: &str = "PERMANENT_FAILURE_";

fn is_of_acks(told: &str) -> bool {
    told.starts_with(LOST) || told.starts_with("TRANSIENT_FAILURE_")
}

fn told(failed: &Failed) -> HashMap<String, String> {
    let Ok(status) = Status::decode(failed.details.clone()) else {
        return HashMap::new();
    };
    let infos = status
        .details
        .into_iter()
        .filter(|any| any.type_url.ends_with("/google.rpc.ErrorInfo"));
    infos
        .filter_map(|any| ErrorInfo::decode(any.value).ok())
        .flat_map(|info| info.metadata)
        .collect()
}

/// Whole seconds, rounded up, at most ten minutes.
fn seconds(by: Duration) -> i32 {
    let by = by.min(LONGEST);
    let up = u64::from(by.subsec_nanos() > 0);
    i32::try_from(by.as_secs() + up).unwrap_or(600)
}

/// One delivery, to be settled.
pub(crate) struct Open {
    pub(crate) settler: Settler,
    pub(crate) ack_id: String,
}

impl Settle for Open {
    fn ack(self: Box<Self>, within: Duration) -> BoxFuture<'static, Acked> {
        Box::pin(async move {
            let ack = self.settler.order(What::Ack, self.ack_id);
            timeout(within, ack).await.unwrap_or(Acked::Unknown)
        })
    }

    /// Pub/Sub waits at most ten minutes.
    fn release(self: Box<Self>, after: Duration) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let later = What::Deadline(seconds(after).max(self.settler.least));
            self.settler.order(later, self.ack_id).await;
        })
    }

    /// Pub/Sub extends by at most ten minutes.
    fn extend(&self, by: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // 0 would give it back.
            let later = What::Deadline(seconds(by).max(1));
            self.settler.order(later, self.ack_id.clone()).await;
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tonic::Code;

    use super::*;
    use crate::wire::Any;

    fn failed(told: &[(&str, &str)]) -> Result<(), Failed> {
        let metadata = told
            .iter()
            .map(|(id, what)| ((*id).to_owned(), (*what).to_owned()));
        let info = ErrorInfo {
            metadata: metadata.collect(),
        };
        let any = Any {
            type_url: "type.googleapis.com/google.rpc.ErrorInfo".into(),
            value: info.encode_to_vec().into(),
        };
        let details = Status { details: vec![any] };
        Err(Failed {
            sent: true,
            tried: true,
            code: Code::FailedPrecondition,
            reason: String::new(),
            details: details.encode_to_vec().into(),
        })
    }

    #[test]
    fn an_ack_is_confirmed_lost_or_unknown_as_the_server_says_of_that_one() {
        let some = failed(&[
            ("a", "PERMANENT_FAILURE_INVALID_ACK_ID"),
            ("b", "TRANSIENT_FAILURE_UNORDERED_ACK_ID"),
        ]);
        assert_eq!(came_of(true, "a", &some), Acked::Lost);
        assert_eq!(came_of(true, "b", &some), Acked::Unknown);
        assert_eq!(came_of(true, "c", &some), Acked::Confirmed);
        assert_eq!(came_of(false, "c", &some), Acked::Unknown);
        let other = failed(&[("service", "pubsub.googleapis.com")]);
        assert_eq!(came_of(true, "c", &other), Acked::Unknown);
        assert_eq!(came_of(true, "a", &Ok(())), Acked::Confirmed);
        assert_eq!(came_of(false, "a", &Ok(())), Acked::Sent);
        let Err(mut silent) = failed(&[]) else {
            unreachable!("it failed")
        };
        silent.details = Bytes::from_static(b"\xff no status");
        assert_eq!(came_of(true, "a", &Err(silent)), Acked::Unknown);
    }

    #[test]
    fn a_time_is_whole_seconds_never_less_and_never_over_ten_minutes() {
        for (ms, is) in [
            (0, 0),
            (1, 1),
            (1000, 1),
            (1001, 2),
            (600_000, 600),
            (9_000_000, 600),
        ] {
            assert_eq!(seconds(Duration::from_millis(ms)), is, "{ms} ms");
        }
    }
}
