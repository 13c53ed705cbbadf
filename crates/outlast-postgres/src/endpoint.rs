//! Endpoints that events are pushed to, as operators write them down: cluster settings of a kind of their own.
//!
//! Each is read by a consumer of its own, `push/NAME`. Keys and secret headers are only named here; `outlast run` has their values from its own
//! settings.

use std::{collections::BTreeMap, time::Duration};

use outlast_core::{duration, name};
use serde::{Deserialize, Serialize};
use tokio_postgres::{GenericClient, types::Type};

use crate::{
    Error,
    schema::Schema,
    setting::{Change, difference},
};

/// What a header's value begins with when it names a secret instead of saying it.
pub const SECRET: &str = "secret:";

/// What the consumer of an endpoint is called: this and the endpoint's name.
pub const CONSUMER: &str = "push/";

/// One endpoint, as `[cluster.endpoint.NAME]` says it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// Where events are sent.
    pub url: String,
    /// The event types, and patterns of them.
    pub types: Vec<String>,
    /// The name of the secret that holds its keys.
    pub key: String,
    /// Headers to send besides. A value `secret:NAME` is that secret.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// How many events are there at once, from one process. 8.
    #[serde(default = "eight")]
    pub concurrency: u32,
    /// At most so many requests a second, from one process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    /// How long an answer may take. 30 s.
    #[serde(default = "half_a_minute", with = "duration")]
    pub timeout: Duration,
    /// How long a try may take, also one that was accepted. 60 s.
    #[serde(default = "a_minute", with = "duration")]
    pub deadline: Duration,
    /// Whether the order of each key is kept.
    #[serde(default)]
    pub ordered: bool,
    /// Only events of these tenants; none named: of all.
    #[serde(default)]
    pub tenants: Vec<String>,
    /// Whom incidents name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

fn eight() -> u32 {
    8
}

fn half_a_minute() -> Duration {
    Duration::from_secs(30)
}

fn a_minute() -> Duration {
    Duration::from_mins(1)
}

/// Endpoints by name.
pub type Endpoints = BTreeMap<String, Definition>;

impl Definition {
    /// What is wrong with it; one sentence each. Whether its URL may be reached is for the process that does.
    pub fn problems(&self, endpoint: &str) -> Vec<String> {
        let mut problems = Vec::new();
        let mut require = |holds: bool, problem: String| {
            if !holds {
                problems.push(problem);
            }
        };
        let bad_name = |name: &str| name::check(name).err().map(|bad| bad.to_string());
        let (name, key) = (bad_name(endpoint), bad_name(&self.key));
        let short = endpoint.len() <= 90 && !endpoint.contains('/');
        require(
            name.is_none() && short,
            "its name: 1 to 90 of a-z, 0-9 and . _ - are expected".into(),
        );
        let why = key.unwrap_or_default();
        require(why.is_empty(), format!("key: {why}"));
        let web = self.url.starts_with("https://") || self.url.starts_with("http://");
        require(
            web && self.url.len() <= 2048,
            "url: https://… of at most 2048 bytes is expected".into(),
        );
        require(
            (1..=100).contains(&self.types.len()),
            format!(
                "types: {} event types, not between 1 and 100",
                self.types.len()
            ),
        );
        for (n, types) in self.types.iter().enumerate() {
            let why = name::check_types(types)
                .err()
                .map(|bad| bad.to_string())
                .unwrap_or_default();
            require(why.is_empty(), format!("types: {why}"));
            require(
                !self.types[..n].contains(types),
                format!("types: {types} is there twice"),
            );
        }
        for (header, value) in &self.headers {
            let secret = value.strip_prefix(SECRET);
            let why = secret.and_then(bad_name).unwrap_or_default();
            require(why.is_empty(), format!("headers: {header}: {why}"));
        }
        require(
            (1..=10_000).contains(&self.concurrency),
            format!(
                "concurrency is {}, not between 1 and 10000",
                self.concurrency
            ),
        );
        require(
            self.rate.is_none_or(|rate| (1..=1_000_000).contains(&rate)),
            "rate: requests a second, between 1 and 1000000".into(),
        );
        let (timeout, deadline) = (duration::show(self.timeout), duration::show(self.deadline));
        require(
            self.timeout >= Duration::from_millis(100) && self.timeout <= self.deadline,
            format!("timeout is {timeout}, not between 100ms and deadline ({deadline})"),
        );
        require(
            self.deadline <= Duration::from_hours(24),
            format!("deadline is {deadline}, over a day"),
        );
        problems
    }
}

/// The endpoints of this database.
///
/// # Errors
/// When the database cannot be asked.
pub async fn in_force(client: &impl GenericClient, schema: Schema) -> Result<Endpoints, Error> {
    // By no function: whoever may read the table may read it so.
    let sql = "select e.name, (jsonb_strip_nulls(to_jsonb(e) - 'name' - 'changed_at'))::text
        from outlast._endpoint e order by e.name";
    let rows = client.query_typed(&schema.text(sql), &[]).await;
    let rows = rows.map_err(|error| Error::from(error).in_schema(schema))?;
    let mut endpoints = Endpoints::new();
    for row in &rows {
        let (name, said): (String, &str) = (row.get(0), row.get(1));
        let definition = serde_json::from_str(said)
            .map_err(|error| Error::Config(format!("endpoint {name}: {error}")))?;
        endpoints.insert(name, definition);
    }
    Ok(endpoints)
}

/// What differs, one line for each thing that an endpoint says.
pub(crate) fn differences(now: &Endpoints, wanted: &Endpoints) -> Vec<Change> {
    difference::lines("endpoint", now, wanted)
}

/// Makes these the endpoints, in the caller's transaction, and answers what changed.
pub(crate) async fn write(
    tx: &impl GenericClient,
    schema: Schema,
    wanted: &Endpoints,
) -> Result<Vec<Change>, Error> {
    let now = in_force(tx, schema).await?;
    let sql = &*schema.text("select outlast._set_endpoint($1, $2::text::jsonb)::text");
    for name in now.keys().filter(|name| !wanted.contains_key(*name)) {
        let nothing: Option<&str> = None;
        tx.query_typed(sql, &[(name, Type::TEXT), (&nothing, Type::TEXT)])
            .await?;
    }
    for (name, definition) in wanted
        .iter()
        .filter(|(name, wanted)| now.get(*name) != Some(*wanted))
    {
        let said = serde_json::to_string(definition).unwrap_or_default();
        tx.query_typed(sql, &[(name, Type::TEXT), (&said, Type::TEXT)])
            .await?;
    }
    Ok(differences(&now, wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shop() -> Definition {
        let said =
            r#"{"url": "https://shop.example/events", "types": ["booking.*"], "key": "shop"}"#;
        serde_json::from_str(said).unwrap()
    }

    #[test]
    fn what_an_endpoint_does_not_say_has_a_default_and_what_it_cannot_say_is_refused() {
        let shop = shop();
        assert_eq!(
            (shop.concurrency, shop.timeout, shop.ordered),
            (8, Duration::from_secs(30), false)
        );
        assert_eq!(shop.problems("shop"), Vec::<String>::new());
        let wrong = Definition {
            url: "ftp://x".into(),
            types: vec!["a".into(), "a".into(), "B c".into()],
            key: String::new(),
            headers: BTreeMap::from([("x-key".into(), "secret:A b".into())]),
            concurrency: 0,
            rate: Some(0),
            timeout: Duration::from_mins(2),
            ..shop.clone()
        };
        let problems = wrong.problems("No good").join("; ");
        for why in [
            "its name: 1 to 90",
            "key: `` cannot",
            "url: https://",
            "a is there twice",
            "types: `B c` cannot",
            "headers: x-key: `A b` cannot",
            "concurrency is 0",
            "rate: requests",
            "timeout is 2m, not between",
        ] {
            assert!(problems.contains(why), "{why} is missing in: {problems}");
        }
        let unknown = serde_json::from_str::<Definition>(r#"{"ulr": "https://x"}"#).unwrap_err();
        assert!(
            unknown.to_string().contains("unknown field `ulr`"),
            "{unknown}"
        );
    }

    #[test]
    fn a_difference_names_each_thing_that_changes() {
        let now = Endpoints::from([("gone".into(), shop()), ("shop".into(), shop())]);
        let mut other = shop();
        other.types.push("payment.*".into());
        other.rate = Some(5);
        let wanted = Endpoints::from([("shop".into(), other)]);
        let lines: Vec<_> = differences(&now, &wanted)
            .into_iter()
            .map(|change| format!("{} {} -> {}", change.name, change.was, change.becomes))
            .filter(|line| !line.starts_with("endpoint.gone.") || line.contains(".url"))
            .collect();
        assert_eq!(
            lines,
            [
                "endpoint.gone.url https://shop.example/events -> ",
                "endpoint.shop.rate  -> 5",
                "endpoint.shop.types booking.* -> booking.*, payment.*",
            ]
        );
    }
}
