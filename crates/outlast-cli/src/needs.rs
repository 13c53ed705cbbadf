//! What routes and consumers need of brokers, as the database has them: topics and subscriptions, and where each is looked for.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use outlast_core::{
    Broker, Start,
    broker::{Subscription, Topology},
};
use outlast_postgres::setting;
use serde::Serialize;
use tokio_postgres::types::Type;

use crate::{
    database::Database,
    problem::{Answer, Tried},
};

/// A broker of this process, by the name in its file.
pub(crate) type Named = (String, Arc<dyn Broker>);

/// One route.
pub(crate) struct Route {
    pub(crate) name: String,
    pub(crate) broker: String,
    pub(crate) topic: String,
    pub(crate) types: Vec<String>,
    pub(crate) ordered: bool,
    pub(crate) start: Start,
    /// What `emit` knows of the largest message.
    pub(crate) message_bytes: Option<i64>,
    /// None: no relay has served it yet.
    pub(crate) state: Option<String>,
    pub(crate) reason: Option<String>,
    /// Why it does not publish, while it does not.
    pub(crate) outage: Option<String>,
    pub(crate) quarantined: i64,
    pub(crate) ids_behind: i64,
    pub(crate) moved_seconds_ago: Option<i64>,
    /// Over how many lanes it spreads its keys.
    pub(crate) lanes: Option<i32>,
    /// While that is being changed: to how many.
    pub(crate) lanes_wanted: Option<i32>,
}

/// One outbox table of another system.
pub(crate) struct Outbox {
    pub(crate) name: String,
    pub(crate) broker: String,
    pub(crate) topic: String,
    pub(crate) ordered: bool,
    /// None: no relay has served it yet.
    pub(crate) state: Option<String>,
    pub(crate) reason: Option<String>,
    /// Why it does not publish, while it does not.
    pub(crate) outage: Option<String>,
    pub(crate) quarantined: i64,
    /// Its topic; where its rows say the topic, those of the rows that wait and of what is parked.
    topics: Vec<String>,
    /// Why the rows were not looked at.
    pub(crate) problem: Option<String>,
}

/// One consumer that reads a broker.
pub(crate) struct Reader {
    pub(crate) name: String,
    /// What kind of broker; the database does not know what a process calls it.
    pub(crate) kind: String,
    pub(crate) subscription: Subscription,
    pub(crate) state: String,
    pub(crate) reason: Option<String>,
    pub(crate) outage: Option<String>,
    pub(crate) quarantined: i64,
    pub(crate) unreadable: i64,
}

/// What is needed, and by whom.
#[derive(Clone, Debug)]
pub(crate) struct Need {
    /// `route orders`, `consumer mailer`.
    pub(crate) of: String,
    pub(crate) what: What,
    pub(crate) topology: Topology,
}

/// What a person calls it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum What {
    /// A topic of this name.
    Topic(String),
    /// A subscription of this name, on this topic.
    Subscription(String, String),
}

impl std::fmt::Display for What {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Topic(topic) => write!(f, "topic {topic}"),
            Self::Subscription(name, topic) => write!(f, "subscription {name} of {topic}"),
        }
    }
}

/// These routes; without names all.
pub(crate) async fn routes(database: &Database, names: Option<&[String]>) -> Answer<Vec<Route>> {
    let sql = include_str!("../sql/relay/needs.sql");
    let given: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 1] =
        [(&names, Type::TEXT_ARRAY)];
    let rows = database.rows("look at the routes", sql, &given).await?;
    let one = |row: &tokio_postgres::Row| Route {
        name: row.get("name"),
        broker: row.get("broker"),
        topic: row.get("topic"),
        types: row.get("types"),
        ordered: row.get("ordered"),
        start: match row.get("start") {
            "earliest" => Start::Earliest,
            _ => Start::Now,
        },
        message_bytes: row.get("message_bytes"),
        state: row.get("state"),
        reason: row.get("reason"),
        outage: outage(row),
        quarantined: row.get("quarantined"),
        ids_behind: row.get("ids_behind"),
        moved_seconds_ago: row.get("moved_seconds_ago"),
        lanes: row.get("lanes"),
        lanes_wanted: row.get("lanes_wanted"),
    };
    Ok(rows.iter().map(one).collect())
}

/// The outboxes of other systems.
pub(crate) async fn outboxes(database: &Database) -> Answer<Vec<Outbox>> {
    let sql = include_str!("../sql/relay/outbox_needs.sql");
    let rows = database.rows("look at the outboxes", sql, &[]).await?;
    let one = |row: &tokio_postgres::Row| Outbox {
        name: row.get("name"),
        broker: row.get("broker"),
        topic: row.get("topic"),
        ordered: row.get("ordered"),
        state: row.get("state"),
        reason: row.get("reason"),
        outage: outage(row),
        quarantined: row.get("quarantined"),
        topics: row.get("topics"),
        problem: row.get("problem"),
    };
    Ok(rows.iter().map(one).collect())
}

/// The consumers that read a broker; without a name all.
pub(crate) async fn readers(database: &Database, name: Option<&str>) -> Answer<Vec<Reader>> {
    let keep = setting::in_force(database.client(), database.schema())
        .await
        .tried("read the settings of the cluster")?
        .into_iter()
        .find(|setting| setting.name == "retention.log")
        .and_then(|setting| outlast_core::duration::parse(&setting.value).ok());
    let sql = include_str!("../sql/consumer/on_brokers.sql");
    let rows = database
        .rows(
            "look at the consumers on brokers",
            sql,
            &[(&name, Type::TEXT)],
        )
        .await?;
    let one = |row: &tokio_postgres::Row| {
        let mut subscription = Subscription::new(
            row.get::<_, String>("subscription"),
            row.get::<_, String>("topic"),
        );
        subscription.ordered = row.get("ordered");
        let ack_ms = row
            .get::<_, Option<i32>>("ack_ms")
            .and_then(|ms| u64::try_from(ms).ok());
        subscription.ack_within = ack_ms.map_or(subscription.ack_within, Duration::from_millis);
        subscription.keep = keep.unwrap_or(subscription.keep);
        Reader {
            name: row.get("name"),
            kind: row.get("broker"),
            subscription,
            state: row.get("state"),
            reason: row.get("reason"),
            outage: outage(row),
            quarantined: row.get("quarantined"),
            unreadable: row.get("unreadable"),
        }
    };
    Ok(rows.iter().map(one).collect())
}

fn outage(row: &tokio_postgres::Row) -> Option<String> {
    let why: Option<String> = row.get("outage");
    (row.get::<_, i64>("outages") > 0).then(|| why.unwrap_or_else(|| "it fails".into()))
}

/// Types that the log has now, of its newest events.
pub(crate) async fn types_seen(database: &Database) -> Answer<Vec<String>> {
    let sql = include_str!("../sql/relay/types_seen.sql");
    let rows = database
        .rows("look at the types of the log", sql, &[])
        .await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

impl Route {
    /// Its topics. Where the type is part of their name: those of the types that it names, and of those seen that its patterns
    /// take.
    pub(crate) fn topics(&self, seen: &[String]) -> Vec<String> {
        if !self.topic.contains("{type}") {
            return vec![self.topic.clone()];
        }
        let whole = self.types.iter().filter(|types| !types.ends_with('*'));
        let taken = seen.iter().filter(|kind| self.takes(kind));
        let all: BTreeSet<&String> = whole.chain(taken).collect();
        all.into_iter()
            .map(|kind| self.topic.replace("{type}", kind))
            .collect()
    }

    fn takes(&self, kind: &str) -> bool {
        self.types
            .iter()
            .any(|types| match types.strip_suffix('*') {
                Some(prefix) => kind.starts_with(prefix),
                None => kind == types,
            })
    }

    pub(crate) fn needs(&self, seen: &[String]) -> Vec<Need> {
        let need = |topic: String| Need {
            of: format!("route {}", self.name),
            topology: Topology::topic(topic.clone(), self.ordered),
            what: What::Topic(topic),
        };
        self.topics(seen).into_iter().map(need).collect()
    }
}

impl Outbox {
    /// What is known to be needed: its topic, or those that its rows name now.
    pub(crate) fn needs(&self) -> Vec<Need> {
        let need = |topic: &String| Need {
            of: format!("outbox {}", self.name),
            topology: Topology::topic(topic.clone(), self.ordered),
            what: What::Topic(topic.clone()),
        };
        self.topics.iter().map(need).collect()
    }
}

impl Reader {
    pub(crate) fn need(&self) -> Need {
        let Subscription { name, topic, .. } = &self.subscription;
        Need {
            of: format!("consumer {}", self.name),
            what: What::Subscription(name.clone(), topic.clone()),
            topology: Topology::Subscription(self.subscription.clone()),
        }
    }

    /// The brokers of this process that it may read: all of its kind.
    pub(crate) fn brokers<'a>(&self, brokers: &'a [Named]) -> Vec<&'a Named> {
        brokers
            .iter()
            .filter(|(_, broker)| broker.kind() == self.kind)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_with_a_topic_for_each_type_has_those_that_it_names_and_those_that_were_seen() {
        let mut route = Route {
            name: "r".into(),
            broker: "b".into(),
            topic: "x.{type}".into(),
            types: vec!["booking.*".into(), "paid".into()],
            ordered: false,
            start: Start::Now,
            message_bytes: None,
            state: None,
            reason: None,
            outage: None,
            quarantined: 0,
            ids_behind: 0,
            moved_seconds_ago: None,
            lanes: None,
            lanes_wanted: None,
        };
        let seen = ["booking.made", "other", "paid"].map(String::from);
        assert_eq!(route.topics(&seen), ["x.booking.made", "x.paid"]);
        assert_eq!(route.topics(&[]), ["x.paid"]);
        route.topic = "one".into();
        assert_eq!(route.topics(&seen), ["one"]);
    }
}
