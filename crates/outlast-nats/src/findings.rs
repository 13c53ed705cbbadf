//! What the server has, judged: what of it keeps a promise, and what breaks one.

use outlast_core::{
    broker::{Finding, Severity, Subscription},
    duration,
};
use std::time::Duration;

use crate::{
    api::{Consumer, Stream, nanos},
    dead::ADVISORY,
    order,
};
use Severity::{Bad, Good, Warning};

/// What a message may have by our own default.
const PAYLOAD: i64 = 256 << 10;
const WINDOW: Duration = Duration::from_mins(2);
/// Fewer than this and one slow handler stops the others.
const PENDING: i64 = 100;

pub(crate) fn server(version: &str) -> Finding {
    Finding::new(Good, "server", format!("NATS {version}"), "")
}

pub(crate) fn no_name(name: &str, why: &str) -> Finding {
    let name = outlast_core::text::clean(name, 100);
    Finding::new(
        Bad,
        format!("name {name}"),
        why,
        "use letters, digits, - and _, and dots between words",
    )
}

pub(crate) fn missing_stream(topic: &str) -> Finding {
    let advice = format!(
        "nothing can be published without one; by hand: nats stream add NAME --subjects {topic} --storage file --retention limits --discard new --replicas 3"
    );
    Finding::new(Bad, format!("topic {topic}"), "no stream takes it", advice).missing()
}

pub(crate) fn missing_consumer(wanted: &Subscription, stream: &str) -> Finding {
    let about = format!("subscription {}", wanted.name);
    let found = format!("the stream {stream} has no such consumer");
    Finding::new(Bad, about, found, "nothing is delivered without it").missing()
}

/// Collects what is not as it should be; if nothing is, says that it is good.
struct Judged {
    about: String,
    /// What a command calls it.
    name: String,
    found: Vec<Finding>,
}

impl Judged {
    fn new(about: String, name: String) -> Self {
        Self {
            about,
            name,
            found: Vec::new(),
        }
    }

    fn wrong(&mut self, severity: Severity, if_so: bool, found: impl Into<String>, advice: &str) {
        if if_so {
            // Whoever reads it wants to paste it.
            let advice = advice.replace("NAME", &self.name);
            self.found
                .push(Finding::new(severity, &self.about, found, advice));
        }
    }

    fn done(mut self, all: String) -> Vec<Finding> {
        self.found
            .insert(0, Finding::new(Good, self.about, all, ""));
        self.found
    }
}

pub(crate) fn stream(topic: &str, stream: &Stream) -> Vec<Finding> {
    let config = &stream.config;
    let mut judged = Judged::new(format!("stream {}", config.name), config.name.clone());
    let limited = config.max_bytes > 0 || config.max_msgs > 0;
    let old = config.discard != "new";
    judged.wrong(
        if limited { Bad } else { Warning },
        old,
        format!("discard: {}", config.discard),
        "when it is full it drops what was confirmed: nats stream edit NAME --discard new",
    );
    let per_subject = config.max_msgs_per_subject > 0;
    let refuses = config.discard_new_per_subject && !old;
    judged.wrong(
        Bad,
        per_subject && !refuses,
        format!(
            "at most {} messages of a subject",
            config.max_msgs_per_subject
        ),
        "older ones are dropped, read or not: nats stream edit NAME --max-msgs-per-subject=-1",
    );
    let interest = config.retention == "interest";
    judged.wrong(
        if stream.state.consumer_count == 0 {
            Bad
        } else {
            Warning
        },
        interest,
        format!(
            "retention: interest, {} consumers",
            stream.state.consumer_count
        ),
        "without a consumer it drops what it confirms: nats stream edit NAME --retention limits",
    );
    judged.wrong(
        Warning,
        config.retention == "workqueue",
        "retention: workqueue",
        "only one consumer of a subject can be, and nothing can be read again",
    );
    judged.wrong(
        Bad,
        config.storage != "file",
        format!("storage: {}", config.storage),
        "a restart loses everything: make another stream with --storage file",
    );
    judged.wrong(
        Bad,
        config.no_ack || config.sealed,
        "it confirms nothing (no_ack), or takes nothing (sealed)",
        "use another stream for this subject",
    );
    judged.wrong(
        Warning,
        config.num_replicas < 3,
        format!("replicas: {}", config.num_replicas),
        "the loss of one server's disk loses what was confirmed; in a cluster: nats stream edit NAME --replicas 3",
    );
    judged.wrong(
        Warning,
        config.duplicate_window < nanos(WINDOW),
        format!("copies are known for {}", shown(config.duplicate_window)),
        "what is published again later comes twice: nats stream edit NAME --dupe-window 2m",
    );
    judged.wrong(
        Warning,
        config.max_age > 0,
        format!("max age: {}", shown(config.max_age)),
        "what is older is dropped, read or not; longer than any consumer is ever behind, or: nats stream edit NAME --max-age=0",
    );
    judged.wrong(
        Warning,
        (1..PAYLOAD).contains(&config.max_msg_size),
        format!("messages of at most {} bytes", config.max_msg_size),
        "payloads have up to 256 KiB: nats stream edit NAME --max-msg-size=-1",
    );
    judged.done(format!(
        "takes {topic} by {}, {} messages, discard {}, retention {}, storage {}, replicas {}",
        config.subjects.join(" "),
        stream.state.messages,
        config.discard,
        config.retention,
        config.storage,
        config.num_replicas,
    ))
}

pub(crate) fn consumer(wanted: &Subscription, stream: &str, consumer: &Consumer) -> Vec<Finding> {
    let config = &consumer.config;
    let named = format!("{stream} {}", config.durable_name);
    let mut judged = Judged::new(format!("subscription {}", wanted.name), named);
    let theirs = "somebody else made it: delete it when nothing of it is needed any more, or use another name";
    let filters = config
        .filter_subjects
        .iter()
        .chain((!config.filter_subject.is_empty()).then_some(&config.filter_subject));
    let filters: Vec<_> = filters.map(String::as_str).collect();
    judged.wrong(
        Bad,
        filters != [wanted.topic.as_str()],
        format!(
            "it reads {}",
            if filters.is_empty() {
                ">".into()
            } else {
                filters.join(" ")
            }
        ),
        theirs,
    );
    judged.wrong(
        Bad,
        config.ack_policy != "explicit",
        format!("acks: {}", config.ack_policy),
        "one ack settles others too, or nothing is settled",
    );
    judged.wrong(
        Bad,
        config.ack_wait != nanos(wanted.ack_within),
        format!(
            "to settle: {}, and {} are wanted",
            shown(config.ack_wait),
            duration::show(wanted.ack_within)
        ),
        theirs,
    );
    judged.wrong(
        Bad,
        config
            .deliver_subject
            .as_ref()
            .is_some_and(|subject| !subject.is_empty()),
        "it pushes",
        "flow control is ours: a pull consumer is needed",
    );
    judged.wrong(
        Bad,
        config.headers_only,
        "headers only",
        "bodies are not delivered",
    );
    judged.wrong(
        Bad,
        config.inactive_threshold > 0,
        format!("deleted when idle for {}", shown(config.inactive_threshold)),
        "what comes while no worker runs is never read: nats consumer edit NAME --inactive-threshold=0",
    );
    judged.wrong(
        Bad,
        !config.backoff.is_empty(),
        "backoff",
        "it replaces the time to settle",
    );
    judged.wrong(
        Warning,
        consumer.paused,
        "paused",
        "nats consumer resume NAME",
    );
    judged.wrong(
        Warning,
        config.max_deliver > 0,
        format!(
            "the server gives up after {} deliveries",
            config.max_deliver
        ),
        "it says so once, to who listens then; ours counts itself: nats consumer edit NAME --max-deliver=-1",
    );
    if let Err((found, advice)) = order::keeps(wanted, config) {
        judged.wrong(Bad, true, found, advice);
    }
    judged.wrong(
        Warning,
        config.deliver_policy != "all",
        format!("it began at: {}", config.deliver_policy),
        "what was there before is not delivered",
    );
    judged.wrong(
        Warning,
        config.mem_storage,
        "its state is in memory",
        "a restart forgets what was acked",
    );
    let pending = config.max_ack_pending;
    judged.wrong(
        Warning,
        !wanted.ordered && (1..PENDING).contains(&pending),
        format!("at most {pending} unsettled at once, released ones too"),
        "a few that wait stop all others: nats consumer edit NAME --max-pending 10000",
    );
    judged.done(format!(
        "on the stream {stream}, to settle {}, at most {pending} unsettled at once",
        shown(config.ack_wait)
    ))
}

/// Whether a stream keeps what a subscription has not settled for as long as it should.
pub(crate) fn kept(wanted: &Subscription, stream: &Stream) -> Option<Finding> {
    let config = &stream.config;
    (config.max_age > 0 && config.max_age < nanos(wanted.keep)).then(|| {
        Finding::new(
            Warning,
            format!("subscription {}", wanted.name),
            format!(
                "its stream keeps messages for {}, and the log keeps events for {}",
                shown(config.max_age),
                duration::show(wanted.keep)
            ),
            format!(
                "what a consumer misses in a longer outage is gone until a rewind: nats stream edit {} --max-age={}s",
                config.name,
                wanted.keep.as_secs()
            ),
        )
    })
}

pub(crate) fn dead_stream(name: &str, stream: Option<&Stream>) -> Finding {
    let about = format!("stream {name}");
    let Some(stream) = stream else {
        let advice = "a message that kills its workers comes for ever without it";
        return Finding::new(Warning, about, "missing", advice).missing();
    };
    let advisories = stream
        .config
        .subjects
        .iter()
        .any(|subject| subject.starts_with(ADVISORY));
    let found = format!("{} dead messages wait", stream.state.messages);
    if advisories {
        return Finding::new(Good, about, found, "");
    }
    let found = format!("{found}; advisories of the server go to another stream");
    Finding::new(
        Warning,
        about,
        found,
        "consumers with a limit of their own lose their dead",
    )
}

fn shown(nanos: u64) -> String {
    duration::show(Duration::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::{ConsumerConfig, StreamConfig, StreamState},
        topology::worst,
    };

    fn good_stream() -> Stream {
        Stream {
            config: StreamConfig {
                name: "s".into(),
                subjects: vec!["a".into()],
                retention: "limits".into(),
                discard: "new".into(),
                storage: "file".into(),
                num_replicas: 3,
                max_msgs: -1,
                max_bytes: -1,
                max_msgs_per_subject: -1,
                max_msg_size: -1,
                duplicate_window: nanos(WINDOW),
                ..StreamConfig::default()
            },
            state: StreamState::default(),
        }
    }

    /// Changes one thing.
    type Change<T> = fn(&mut T);

    #[test]
    fn each_setting_that_breaks_a_promise_is_found() {
        let changes: [(Severity, Change<Stream>); 12] = [
            (Good, |_| {}),
            (Warning, |s| s.config.discard = "old".into()),
            (Bad, |s| {
                s.config.discard = "old".into();
                s.config.max_bytes = 1;
            }),
            (Bad, |s| s.config.max_msgs_per_subject = 1),
            (Bad, |s| s.config.retention = "interest".into()),
            (Warning, |s| {
                s.config.retention = "interest".into();
                s.state.consumer_count = 1;
            }),
            (Bad, |s| s.config.storage = "memory".into()),
            (Bad, |s| s.config.no_ack = true),
            (Bad, |s| s.config.sealed = true),
            (Warning, |s| s.config.num_replicas = 1),
            (Warning, |s| s.config.duplicate_window = 1),
            (Warning, |s| s.config.max_age = 1),
        ];
        for (n, (severity, change)) in changes.into_iter().enumerate() {
            let mut one = good_stream();
            change(&mut one);
            let found = stream("a", &one);
            assert_eq!(worst(&found), severity, "{n}: {found:?}");
        }
    }

    #[test]
    fn each_setting_of_a_consumer_that_differs_is_found() {
        let mut wanted = Subscription::new("r", "a");
        let good = Consumer {
            config: ConsumerConfig {
                ack_policy: "explicit".into(),
                ack_wait: nanos(wanted.ack_within),
                max_deliver: -1,
                filter_subject: "a".into(),
                deliver_policy: "all".into(),
                max_ack_pending: 1_000,
                ..ConsumerConfig::default()
            },
            paused: false,
        };
        let changes: [(Severity, Change<Consumer>); 12] = [
            (Good, |_| {}),
            (Good, |c| {
                c.config.filter_subjects = vec![std::mem::take(&mut c.config.filter_subject)];
            }),
            (Bad, |c| c.config.filter_subject = "b".into()),
            (Bad, |c| c.config.filter_subject.clear()),
            (Bad, |c| c.config.ack_policy = "all".into()),
            (Bad, |c| c.config.ack_wait += 1),
            (Bad, |c| c.config.deliver_subject = Some("x".into())),
            (Bad, |c| c.config.inactive_threshold = 1),
            (Bad, |c| c.config.backoff = vec![1]),
            (Warning, |c| c.config.max_deliver = 5),
            (Warning, |c| c.config.max_ack_pending = 1),
            (Warning, |c| c.paused = true),
        ];
        for (n, (severity, change)) in changes.into_iter().enumerate() {
            let mut one = good.clone();
            change(&mut one);
            let found = consumer(&wanted, "s", &one);
            assert_eq!(worst(&found), severity, "{n}: {found:?}");
        }
        // Of what is in order nothing overtakes.
        wanted.ordered = true;
        assert_eq!(worst(&consumer(&wanted, "s", &good)), Bad);
        let mut one_by_one = good.clone();
        one_by_one.config.max_ack_pending = 1;
        assert_eq!(worst(&consumer(&wanted, "s", &one_by_one)), Good);
        one_by_one.config.max_deliver = 5;
        assert_eq!(worst(&consumer(&wanted, "s", &one_by_one)), Bad);
    }
}
