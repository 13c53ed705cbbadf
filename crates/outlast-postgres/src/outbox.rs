//! Outbox tables of other systems, as operators write them down: which table, which columns, where its rows go. How they are
//! claimed and settled is in `claim`.

mod claim;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use outlast_core::{duration, name};
use serde::{Deserialize, Serialize};
use tokio_postgres::{GenericClient, types::Type};

use crate::{Error, schema::Schema, setting::Change};

pub use claim::{Looked, State};

/// What the consumer of an outbox is called: this and the outbox's name.
pub const CONSUMER: &str = "outbox/";

/// An outbox table of another system that a relay publishes from. Set by `outlast apply`, read by whoever relays.
///
/// What is not said is as Encore makes it: `outbox (id, topic, data, inserted_at)` in the schema `public`.
///
/// ```toml
/// [cluster.outbox.shop]
/// broker = "nats"
///
/// [cluster.outbox.billing]
/// broker = "nats"
/// table = "outboxevent"
/// topic = "outbox.event.{topic}"
/// columns = { id = "id", topic = "aggregatetype", key = "aggregateid", type = "type", payload = "payload" }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outbox {
    /// Which of the relay's brokers.
    pub broker: String,
    /// The schema of the table. `public`.
    #[serde(default = "public")]
    pub schema: String,
    /// The table. `outbox`.
    #[serde(default = "outbox")]
    pub table: String,
    /// Which of its columns is what.
    #[serde(default = "Columns::of_encore")]
    pub columns: Columns,
    /// The broker's topic; `{topic}` in it is the row's column of that, `{type}` the event's type. `{topic}`.
    #[serde(default = "topic")]
    pub topic: String,
    /// The event's type; `{type}` and `{topic}` in it are the row's columns, in lower case. The type if there is such a column,
    /// else the topic.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// What the payload is. `application/json`.
    #[serde(default = "json")]
    pub content_type: String,
    /// Keys are kept in order. Part of what its consumer is: to change it, give the other kind another name.
    #[serde(default)]
    pub ordered: bool,
    /// The source of its events, and what their ids are derived from. The deployment, the schema and the table, as they are when
    /// the outbox is first applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// How often a relay looks for new rows while it finds none. 200 ms.
    #[serde(default = "poll", with = "duration")]
    pub poll: Duration,
    /// Attributes that are sent beside those of the envelope.
    #[serde(default)]
    pub attributes: BTreeMap<String, String>,
}

/// Which column of a table is what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Columns {
    /// What a row is known by: a number, a UUID or a text, unique.
    pub id: String,
    /// The payload: `bytea`, `json`, `jsonb` or text.
    pub payload: String,
    /// When it was written. A table whose ids are numbers must have one: numbers come again when a sequence is reset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// Where it goes, as its writer calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// What has happened.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// What it is about: order is kept per tenant and key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Whose it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// What of a key comes first: a column that rises from one commit to the next. The id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    /// Headers, an object: `jsonb`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<String>,
    /// What marks a row as published, instead of deleting it: a boolean, or a time that is null before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<String>,
}

/// Outboxes by name.
pub type Outboxes = BTreeMap<String, Outbox>;

fn public() -> String {
    "public".into()
}

fn outbox() -> String {
    "outbox".into()
}

fn topic() -> String {
    "{topic}".into()
}

fn json() -> String {
    "application/json".into()
}

fn poll() -> Duration {
    Duration::from_millis(200)
}

impl Columns {
    fn of_encore() -> Self {
        Self {
            id: "id".into(),
            payload: "data".into(),
            time: Some("inserted_at".into()),
            topic: Some("topic".into()),
            kind: None,
            key: None,
            tenant: None,
            order: None,
            headers: None,
            mark: None,
        }
    }

    fn named(&self) -> Vec<(&'static str, &str)> {
        let all = [
            ("id", Some(&self.id)),
            ("payload", Some(&self.payload)),
            ("time", self.time.as_ref()),
            ("topic", self.topic.as_ref()),
            ("type", self.kind.as_ref()),
            ("key", self.key.as_ref()),
            ("tenant", self.tenant.as_ref()),
            ("order", self.order.as_ref()),
            ("headers", self.headers.as_ref()),
            ("mark", self.mark.as_ref()),
        ];
        let named = all.into_iter();
        named
            .filter_map(|(what, column)| Some((what, column?.as_str())))
            .collect()
    }
}

impl Outbox {
    /// What is wrong with it; one sentence each. Whether there is such a table is for the database to say.
    pub fn problems(&self, outbox: &str) -> Vec<String> {
        let mut problems = Vec::new();
        for (what, named) in [("outbox", outbox), ("broker", &self.broker)] {
            match name::check(named) {
                Err(bad) => problems.push(format!("{what} {bad}")),
                Ok(()) if named.len() > 90 || named.contains('/') => problems.push(format!(
                    "{what} `{named}` cannot be a name: at most 90 characters, without a /"
                )),
                Ok(()) => {}
            }
        }
        let mut require = |holds: bool, problem: String| {
            if !holds {
                problems.push(problem);
            }
        };
        let identifier = |name: &str| (1..=63).contains(&name.len()) && !name.contains('\0');
        require(
            identifier(&self.schema) && identifier(&self.table),
            "schema, table: 1 to 63 bytes, each by itself and without quotes around it".into(),
        );
        for (what, column) in self.columns.named() {
            require(
                identifier(column),
                format!("columns.{what}: the name of a column is expected, 1 to 63 bytes"),
            );
        }
        let has = |column: &str| self.columns.named().iter().any(|(what, _)| *what == column);
        for (what, template) in [("topic", Some(&self.topic)), ("type", self.kind.as_ref())] {
            let Some(template) = template else { continue };
            require(
                (1..=500).contains(&template.chars().count()),
                format!("{what}: 1 to 500 characters"),
            );
            require(
                !template.contains("{topic}") || has("topic"),
                format!("{what} has {{topic}} in it, and columns.topic names no column"),
            );
            // What a topic calls {type} is the event's, which there is always.
            require(
                what == "topic" || !template.contains("{type}") || has("type"),
                format!("{what} has {{type}} in it, and columns.type names no column"),
            );
        }
        require(
            !self.ordered || has("key"),
            "ordered, and columns.key names no column".into(),
        );
        require(
            media_type(&self.content_type),
            "content_type: a media type such as application/json is expected".into(),
        );
        require(
            self.source
                .as_ref()
                .is_none_or(|s| (1..=500).contains(&s.chars().count())),
            "source: 1 to 500 characters".into(),
        );
        require(
            (Duration::from_millis(10)..=Duration::from_secs(60)).contains(&self.poll),
            format!(
                "poll is {}, not between 10ms and 1m",
                duration::show(self.poll)
            ),
        );
        for name in self.attributes.keys() {
            let ours = ["ce-", "outlast-"].iter().any(|own| name.starts_with(own));
            require(
                !(name.is_empty() || ours || name == "traceparent" || name == "content-type"),
                format!("attribute `{name}`: its name is empty, or belongs to the envelope"),
            );
        }
        problems
    }

    /// The table, for people.
    pub fn shown_table(&self) -> String {
        format!("{}.{}", self.schema, self.table)
    }

    /// In one line, for people.
    pub fn shown(&self) -> String {
        let mut line = format!("{} to {} {}", self.shown_table(), self.broker, self.topic);
        if self.ordered {
            line.push_str(" ordered");
        }
        for (what, column) in self.columns.named() {
            line.push_str(&format!(" {what}={column}"));
        }
        for (what, value) in [("type", &self.kind), ("source", &self.source)] {
            if let Some(value) = value {
                line.push_str(&format!(" as {what} {value}"));
            }
        }
        if self.content_type != json() {
            line.push_str(&format!(" {}", self.content_type));
        }
        if self.poll != poll() {
            line.push_str(&format!(" every {}", duration::show(self.poll)));
        }
        for (name, value) in &self.attributes {
            line.push_str(&format!(" {name}={value}"));
        }
        line
    }
}

fn change(name: &str, was: Option<&Outbox>, becomes: Option<&Outbox>) -> Change {
    let shown = |outbox: Option<&Outbox>| outbox.map_or_else(|| "none".to_owned(), Outbox::shown);
    Change {
        name: format!("outbox.{name}"),
        was: shown(was),
        becomes: shown(becomes),
    }
}

fn read(value: Option<serde_json::Value>) -> Result<Option<Outbox>, Error> {
    let read = value.map(serde_json::from_value).transpose();
    read.map_err(|why| Error::Unexpected(format!("an outbox: {why}")))
}

/// What would change if these were the outboxes.
pub(crate) async fn differences(
    client: &impl GenericClient,
    schema: Schema,
    wanted: &Outboxes,
) -> Result<Vec<Change>, Error> {
    let sql = "select o.name, o.definition from outlast.outbox o";
    let rows = client.query_typed(&schema.text(sql), &[]).await?;
    let mut now = Outboxes::new();
    for row in rows {
        if let Some(outbox) = read(row.try_get(1)?)? {
            now.insert(row.try_get(0)?, outbox);
        }
    }
    let names: BTreeSet<&String> = now.keys().chain(wanted.keys()).collect();
    let both = names
        .into_iter()
        .map(|name| (name, now.get(name), wanted.get(name)));
    let changes = both.filter(|(_, was, becomes)| was != becomes);
    Ok(changes
        .map(|(name, was, becomes)| change(name, was, becomes))
        .collect())
}

/// Makes these the outboxes, in the caller's transaction, and answers what changed.
pub(crate) async fn write(
    tx: &impl GenericClient,
    schema: Schema,
    wanted: &Outboxes,
) -> Result<Vec<Change>, Error> {
    let all = serde_json::to_value(wanted)
        .map_err(|why| Error::Unexpected(format!("outboxes: {why}")))?;
    let sql = "select name, was, becomes from outlast._apply_outboxes($1)";
    let rows = tx
        .query_typed(&schema.text(sql), &[(&all, Type::JSONB)])
        .await?;
    rows.iter()
        .map(|row| {
            let (was, becomes) = (read(row.try_get(1)?)?, read(row.try_get(2)?)?);
            Ok(change(row.try_get(0)?, was.as_ref(), becomes.as_ref()))
        })
        .collect()
}

fn media_type(text: &str) -> bool {
    let part = |part: &str| {
        let plain =
            |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "!#$&^_.+-".contains(c);
        (1..=80).contains(&part.len()) && part.chars().all(plain)
    };
    let (named, parameters) = text.split_once(';').unwrap_or((text, ""));
    let parts = named.trim_end().split_once('/');
    parts.is_some_and(|(kind, of)| part(kind) && part(of))
        && parameters.len() <= 200
        && parameters.bytes().all(|b| matches!(b, b' '..=b'~'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shop() -> Outbox {
        serde_json::from_str(r#"{"broker": "nats"}"#).expect("a broker is enough")
    }

    #[test]
    fn what_is_not_said_is_as_encore_makes_it() {
        let shop = shop();
        assert_eq!(shop.problems("shop"), Vec::<String>::new());
        assert_eq!(
            shop.shown(),
            "public.outbox to nats {topic} id=id payload=data time=inserted_at topic=topic"
        );
        let kept = serde_json::to_value(&shop).expect("it is JSON");
        let read: Outbox = serde_json::from_value(kept).expect("it comes back");
        assert_eq!(read, shop);
    }

    #[test]
    fn every_problem_of_an_outbox_is_told_at_once() {
        let mut bad = shop();
        bad.broker = "a/b".into();
        bad.table.clear();
        bad.columns.topic = None;
        bad.columns.time = Some("x".repeat(64));
        bad.kind = Some("{type}".into());
        bad.ordered = true;
        bad.content_type = "json".into();
        bad.poll = Duration::ZERO;
        bad.attributes.insert("ce-id".into(), "1".into());
        let problems = bad.problems("no way").join("; ");
        for expected in [
            "outbox `no way` cannot be a name",
            "broker `a/b`",
            "schema, table: 1 to 63",
            "columns.time: the name",
            "topic has {topic} in it",
            "type has {type} in it",
            "ordered, and columns.key",
            "content_type: a media type",
            "poll is 0s",
            "attribute `ce-id`",
        ] {
            assert!(problems.contains(expected), "{expected}: {problems}");
        }
    }

    #[test]
    fn an_unknown_column_is_refused_and_the_known_ones_are_told() {
        let said =
            r#"{"broker": "nats", "columns": {"id": "id", "payload": "data", "topc": "topic"}}"#;
        let error = serde_json::from_str::<Outbox>(said)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("unknown field `topc`") && error.contains("`topic`"),
            "{error}"
        );
    }
}
