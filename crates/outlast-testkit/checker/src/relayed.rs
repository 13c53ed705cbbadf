//! What was relayed: a broker's messages against the events of the log, and the order in which a consumer did them.

use std::collections::{HashMap, HashSet};

use anyhow::Result;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::{Report, broker::Message};

/// Numbers of one client: each of them emits the next one when the last one was committed.
const CLIENT: i64 = 10_000;

/// What must be there.
#[derive(Clone, Debug, Default)]
pub struct Relayed<'a> {
    /// The type of the events that go there.
    pub event_type: &'a str,
    /// Intents whose events are not published: those in quarantine.
    pub kept: HashSet<i64>,
    /// Consumers that keep the order of each key, with effects in `drill.effect`.
    pub ordered: &'a [String],
    /// The route keeps the order of each key.
    pub in_order: bool,
}

#[derive(Clone, Debug)]
struct Event {
    n: i64,
    key: Option<String>,
    digest: String,
}

/// Compares them. Answers what is wrong, and how many messages are there beyond the first of their event.
///
/// # Errors
/// When the database does not answer.
pub async fn relayed(
    client: &Client,
    messages: &[Message],
    expect: &Relayed<'_>,
) -> Result<(Report, usize)> {
    let mut report = Report::default();
    let events = events(client, expect.event_type).await?;
    let again = messages_of(&events, messages, expect, &mut report);
    for consumer in expect.ordered {
        let sql = "select e.key, d.n from drill.effect d join outlast._event e using (event_id)
                   where d.consumer = $1 and e.key is not null order by d.at";
        let done = client.query(sql, &[consumer]).await?;
        let done = done.iter().map(|row| (row.get(0), row.get(1)));
        report.tell(inversions(done, consumer));
    }
    Ok((report, again))
}

async fn events(client: &Client, event_type: &str) -> Result<HashMap<Uuid, Event>> {
    let sql = "select event_id, (convert_from(payload, 'UTF8')::json ->> 'n')::bigint, key, encode(sha256(payload), 'hex')
               from outlast._event where type = $1";
    let rows = client.query(sql, &[&event_type]).await?;
    let event = |row: &tokio_postgres::Row| {
        let event = Event {
            n: row.get(1),
            key: row.get(2),
            digest: row.get(3),
        };
        (row.get(0), event)
    };
    Ok(rows.iter().map(event).collect())
}

/// Every event is there, under its own id and with its own bytes, and nothing else is.
fn messages_of(
    events: &HashMap<Uuid, Event>,
    messages: &[Message],
    expect: &Relayed<'_>,
    report: &mut Report,
) -> usize {
    report.events = events.len();
    let mut first = Vec::new();
    let mut seen = HashSet::new();
    report.tell(messages.iter().filter_map(|message| {
        let Some(id) = message.event_id else {
            return Some("the broker has a message without an id".to_owned());
        };
        let Some(event) = events.get(&id) else {
            return Some(format!(
                "the broker has a message of event {id}, and there is no such event"
            ));
        };
        if seen.insert(id) {
            first.push(event);
        }
        if expect.kept.contains(&event.n) {
            return Some(format!(
                "event {id} ({}): published, and it should be in quarantine",
                event.n
            ));
        }
        (event.digest != message.digest)
            .then(|| format!("event {id} ({}): the broker has other bytes", event.n))
    }));
    let missing = events
        .iter()
        .filter(|(id, event)| !seen.contains(*id) && !expect.kept.contains(&event.n));
    report.tell(
        missing
            .map(|(id, event)| format!("event {id} ({}): lost, the broker never had it", event.n)),
    );
    if expect.in_order {
        let first = first.into_iter();
        let first = first.filter_map(|event| Some((event.key.clone()?, event.n)));
        report.tell(inversions(first, "the broker"));
    }
    messages.len() - seen.len()
}

/// Where what a client did later comes before what it did earlier, of the same key.
fn inversions(of: impl Iterator<Item = (String, i64)>, whom: &str) -> Vec<String> {
    let mut last: HashMap<(String, i64), i64> = HashMap::new();
    let mut all = Vec::new();
    for (key, n) in of {
        let before = last.insert((key.clone(), n / CLIENT), n);
        if let Some(before) = before.filter(|before| *before > n) {
            all.push(format!(
                "{key}: {whom} has {before} before {n}, which was committed earlier"
            ));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: i64) -> Uuid {
        Uuid::from_u128(n.unsigned_abs().into())
    }

    fn message(n: i64) -> Message {
        Message {
            event_id: Some(id(n)),
            digest: format!("digest {n}"),
        }
    }

    /// Events 2, 4 and 6 of one client, all of one key.
    fn judged(messages: &[Message], kept: &[i64]) -> (Vec<String>, usize) {
        let event = |n: i64| {
            let event = Event {
                n,
                key: Some("k".into()),
                digest: format!("digest {n}"),
            };
            (id(n), event)
        };
        let events = [2, 4, 6].map(event).into();
        let expect = Relayed {
            kept: kept.iter().copied().collect(),
            in_order: true,
            ..Relayed::default()
        };
        let mut report = Report::default();
        let again = messages_of(&events, messages, &expect, &mut report);
        (report.violations, again)
    }

    #[test]
    fn copies_are_counted_and_nothing_else_is_found_where_all_is_well() {
        let all = [2, 4, 2, 6, 4].map(message);
        assert_eq!(judged(&all, &[]), (Vec::new(), 2));
        assert_eq!(judged(&[2, 6].map(message), &[4]), (Vec::new(), 0));
    }

    #[test]
    fn what_is_missing_foreign_changed_or_out_of_order_is_told() {
        let caught = |messages: &[Message], kept: &[i64], what: &str| {
            let (said, _) = judged(messages, kept);
            assert!(
                said.len() == 1 && said[0].contains(what),
                "{what}: {said:?}"
            );
        };
        caught(&[2, 4].map(message), &[], "the broker never had it");
        caught(&[2, 4, 6, 8].map(message), &[], "there is no such event");
        caught(&[2, 4, 6].map(message), &[6], "should be in quarantine");
        caught(&[4, 2, 6].map(message), &[], "before 2");
        let mut changed = [2, 4, 6].map(message);
        changed[1].digest.clear();
        caught(&changed, &[], "other bytes");
        changed[1] = Message {
            event_id: None,
            ..message(4)
        };
        let (said, _) = judged(&changed, &[4]);
        assert_eq!(said, ["the broker has a message without an id"]);
    }
}
