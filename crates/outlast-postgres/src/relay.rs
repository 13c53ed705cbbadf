//! The relay's rows: routes, which are cluster settings, and what of them is published once more.

use std::{collections::BTreeMap, time::Duration};

use outlast_core::{
    Start,
    broker::{Beside, Limits},
    name,
};
use serde::{Deserialize, Serialize};
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::{
    Error,
    store::{Claim, Claimed, Store, int, millis},
};

/// Over how many lanes a route spreads its keys when it is first served. A broker takes many keys with one call, so that more lanes would
/// only make smaller batches; and the places of a consumer are enough for all of these, so that one claim reads for all that are free.
/// One that was registered with more keeps them until somebody changes that.
pub const LANES: i32 = 4;

/// Where events of some types go: one topic of one broker. Set by `outlast apply`, read by whoever relays.
///
/// ```toml
/// [cluster.route.orders]
/// broker = "nats"
/// topic = "orders.{type}"
/// types = ["order.*", "refund.made"]
/// ordered = true
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// Which of the relay's brokers.
    pub broker: String,
    /// Its topic; `{type}` in it stands for the event's type.
    pub topic: String,
    /// Event types, or patterns that end with `*`.
    pub types: Vec<String>,
    /// Keys are kept in order. Part of what a route is: to change it, give the other kind another name.
    #[serde(default)]
    pub ordered: bool,
    /// Where it begins: at what is emitted from now on, or at the oldest event that is still kept. It counts when a relay serves
    /// it for the first time; later it changes nothing.
    #[serde(default)]
    pub start: Start,
    /// Attributes that are sent beside those of the envelope.
    #[serde(default)]
    pub attributes: BTreeMap<String, String>,
}

impl Route {
    /// What is wrong with it; one sentence each.
    pub fn problems(&self, route: &str) -> Vec<String> {
        let mut problems = Vec::new();
        // Both are part of other names: relay/ROUTE.
        for (what, named) in [("route", route), ("broker", &self.broker)] {
            match name::check(named) {
                Err(bad) => problems.push(format!("{what} {bad}")),
                Ok(()) if named.len() > 90 || named.contains('/') => problems.push(format!(
                    "{what} `{named}` cannot be a name: at most 90 characters, without a /"
                )),
                Ok(()) => {}
            }
        }
        if self.topic.is_empty() || self.topic.chars().count() > 500 {
            problems.push("topic: 1 to 500 characters".into());
        }
        if self.types.is_empty() || self.types.len() > 1000 {
            problems.push("types: 1 to 1000 event types or patterns".into());
        }
        problems.extend(self.types.iter().filter_map(|types| {
            let bad = name::check_types(types).err()?;
            Some(format!("event type {bad}"))
        }));
        for name in self.attributes.keys() {
            let ours = ["ce-", "outlast-"].iter().any(|own| name.starts_with(own));
            if name.is_empty() || ours || name == "traceparent" || name == "content-type" {
                problems.push(format!(
                    "attribute `{name}`: its name is empty, or belongs to the envelope"
                ));
            }
        }
        problems
    }

    /// In one line, for people.
    pub fn shown(&self) -> String {
        let mut line = format!("{} to {} {}", self.types.join(" "), self.broker, self.topic);
        if self.ordered {
            line.push_str(" ordered");
        }
        if self.start != Start::default() {
            line.push_str(&format!(" from {}", self.start.as_str()));
        }
        for (name, value) in &self.attributes {
            line.push_str(&format!(" {name}={value}"));
        }
        line
    }
}

/// Part of a rewind, under its lease.
#[derive(Debug)]
pub struct Page {
    /// Events in the order of the log.
    pub events: Vec<Claimed>,
    /// The place behind them; none when the rewind was cancelled.
    pub place: Option<(i64, i64)>,
    /// It is the last one.
    pub over: bool,
}

/// A rewind that this process works on.
#[derive(Clone, Copy, Debug)]
pub struct Rewinding {
    /// Its lease.
    pub token: Uuid,
    /// Its id.
    pub id: i64,
    /// Which rewind of its route, from 1.
    pub round: u32,
}

impl Store {
    /// The routes of one broker, by name.
    pub async fn routes(&self, broker: &str) -> Result<BTreeMap<String, Route>, Error> {
        let rows = self
            .rows(
                "select name, to_jsonb(r) - 'name' - 'limits' - 'changed_at' from outlast._routes($1) r",
                &[(&broker, Type::TEXT)],
            )
            .await?;
        rows.iter()
            .map(|row| {
                let route = serde_json::from_value(row.try_get(1)?)
                    .map_err(|why| Error::Unexpected(format!("a route: {why}")))?;
                Ok((row.try_get(0)?, route))
            })
            .collect()
    }

    /// Writes down what the broker of a route takes, so that `emit` refuses what it never will. Committed when it returns; answers
    /// whether it was news.
    pub async fn route_limits(
        &self,
        route: &str,
        broker: &str,
        limits: &Limits,
    ) -> Result<bool, Error> {
        let limits = written(limits);
        let row = self
            .one(
                "select outlast._route_limits($1, $2, $3)",
                &[
                    (&route, Type::TEXT),
                    (&broker, Type::TEXT),
                    (&limits, Type::JSONB),
                ],
            )
            .await?;
        Ok(row.get(0))
    }

    /// Takes the rewind of a route's consumer that nobody works on. Committed when it returns.
    pub async fn claim_rewind(
        &self,
        consumer: i32,
        lease: Duration,
    ) -> Result<Option<Rewinding>, Error> {
        let rows = self
            .rows(
                "select token, rewind, round from outlast._rewind_claim($1, $2, $3)",
                &[
                    (&consumer, Type::INT4),
                    (&self.place().process(), Type::UUID),
                    (&millis(lease), Type::INT4),
                ],
            )
            .await?;
        let row = rows.first();
        row.map(|row| {
            Ok(Rewinding {
                token: row.try_get(0)?,
                id: row.try_get(1)?,
                round: u32::try_from(row.try_get::<_, i32>(2)?).unwrap_or(1),
            })
        })
        .transpose()
    }

    /// What comes next of a rewind: at most so many events and bytes (one at least).
    ///
    /// # Errors
    /// [`Error::LeaseLost`] when somebody newer works on it.
    pub async fn page_of_rewind(
        &self,
        token: Uuid,
        events: usize,
        bytes: u64,
        scanned: u32,
    ) -> Result<Page, Error> {
        let rows = self
            .rows(
                "select (p.event).*, p.period, p.at_id, p.over from outlast._rewind_page($1, $2, $3, $4) p",
                &[
                    (&token, Type::UUID),
                    (&int(events), Type::INT4),
                    (&i64::try_from(bytes).unwrap_or(i64::MAX), Type::INT8),
                    (&i32::try_from(scanned).unwrap_or(i32::MAX), Type::INT4),
                ],
            )
            .await?;
        let events = Claim::from_rows(&rows)?.events;
        let last = rows
            .last()
            .ok_or_else(|| Error::Unexpected("a page of a rewind without an end".into()))?;
        let place: (Option<i64>, Option<i64>) = (last.try_get("period")?, last.try_get("at_id")?);
        Ok(Page {
            events,
            place: place.0.zip(place.1),
            over: last.try_get("over")?,
        })
    }

    /// Moves a rewind over a page. Committed when it returns; over the last one, the lease is gone.
    ///
    /// # Errors
    /// [`Error::LeaseLost`] when somebody newer works on it.
    pub async fn move_rewind(
        &self,
        token: Uuid,
        page: &Page,
        (sent, refused): (usize, usize),
    ) -> Result<(), Error> {
        let (period, at_id) = page.place.unzip();
        self.rows(
            "select outlast._rewind_moved($1, $2, $3, $4, $5, $6)::text",
            &[
                (&token, Type::UUID),
                (&period, Type::INT8),
                (&at_id, Type::INT8),
                (&int(sent), Type::INT4),
                (&int(refused), Type::INT4),
                (&page.over, Type::BOOL),
            ],
        )
        .await
        .map(drop)
    }
}

/// Limits as `functions/sendable.sql` reads them; what has none is not there.
fn written(limits: &Limits) -> serde_json::Value {
    let Beside {
        attributes,
        name_bytes,
        value_bytes,
        attribute_bytes,
        key_bytes,
        ..
    } = limits.beside;
    let all = [
        ("message_bytes", limits.message_bytes),
        ("attributes", attributes),
        ("name_bytes", name_bytes),
        ("value_bytes", value_bytes),
        ("attribute_bytes", attribute_bytes),
        ("key_bytes", key_bytes),
    ];
    all.into_iter()
        .filter(|(_, most)| *most != usize::MAX)
        .map(|(name, most)| (name.to_owned(), most.into()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route() -> Route {
        Route {
            broker: "nats".into(),
            topic: "orders".into(),
            types: vec!["order.*".into()],
            ordered: true,
            start: Start::Now,
            attributes: BTreeMap::new(),
        }
    }

    #[test]
    fn a_limit_that_is_none_is_not_written() {
        let limits = Limits::new(1, 2, 3).with_beside(Beside::ANYTHING.key_bytes(4));
        assert_eq!(
            written(&limits),
            serde_json::json!({"message_bytes": 3, "key_bytes": 4})
        );
    }

    #[test]
    fn every_problem_of_a_route_is_told_at_once() {
        assert_eq!(route().problems("orders"), Vec::<String>::new());
        let mut bad = route();
        bad.broker = "a/b".into();
        bad.topic.clear();
        bad.types = vec!["Order".into()];
        bad.attributes.insert("ce-id".into(), "1".into());
        let problems = bad.problems("no way").join("; ");
        for expected in [
            "route `no way` cannot be a name",
            "broker `a/b`",
            "topic: 1 to 500",
            "event type `Order`",
            "attribute `ce-id`",
        ] {
            assert!(problems.contains(expected), "{expected}: {problems}");
        }
    }
}
