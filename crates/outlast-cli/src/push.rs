//! The endpoints of the cluster as consumers of this process, and what may be wrong with them.
//!
//! Secrets are not in the database: `OUTLAST_SECRET_NAME` holds what an endpoint calls `name`. Where requests may go is a matter
//! of the process too: `OUTLAST_EGRESS_ALLOW` and `OUTLAST_EGRESS_PORTS`.

use std::{collections::BTreeSet, env, sync::Arc, time::Duration};

use outlast_engine::Consumer;
use outlast_http::{
    HttpEndpoint,
    egress::{Client, Egress, Net, Rules, Target},
    signature::Keys,
};
use outlast_postgres::{
    Error,
    connect::{self, Target as Database},
    endpoint::{self, CONSUMER, Definition, Endpoints, SECRET as NAMED},
    setting::Change,
};

use crate::{
    exit::Exit,
    problem::{Answer, Problem, Tried},
};

/// Networks that may be reached though they are not of the public internet, with spaces or commas in between.
pub(crate) const ALLOW: &str = "OUTLAST_EGRESS_ALLOW";
/// Ports that may be reached besides 443.
pub(crate) const PORTS: &str = "OUTLAST_EGRESS_PORTS";
/// Before the name of a secret, in capitals and with `_` for what is no letter or digit.
pub(crate) const SECRET: &str = "OUTLAST_SECRET_";

/// How often a running process looks whether operators have changed the endpoints.
const LOOK: Duration = Duration::from_secs(5);

/// What no process could do; one sentence each, for whoever writes endpoints down.
pub(crate) fn problems(endpoints: &Endpoints) -> Vec<String> {
    if endpoints.is_empty() {
        return Vec::new();
    }
    let rules = match rules() {
        Ok(rules) => rules,
        Err(problems) => return problems,
    };
    let wrong = |(name, said): (&String, &Definition)| {
        let told = |why: String| format!("endpoint.{name}: url: {why}");
        match Target::parse(&said.url) {
            Ok(target) => rules
                .judge_early(&target)
                .err()
                .map(|why| told(format!("{why}; if it is your own network, set {ALLOW}"))),
            Err(why) => Some(told(why.to_string())),
        }
    };
    endpoints.iter().filter_map(wrong).collect()
}

/// What is allowed and may still not be meant.
pub(crate) fn warnings(changes: &[Change]) -> Vec<String> {
    let removed = |change: &Change| {
        let name = change
            .name
            .strip_prefix("endpoint.")?
            .strip_suffix(".url")?;
        change.becomes.is_empty().then(|| {
            format!(
                "nobody works for the consumer {CONSUMER}{name} any more, and what it has not done is kept for it: \
                 `outlast consumers retire {CONSUMER}{name}` ends that"
            )
        })
    };
    let narrowed = |change: &Change| {
        let name = change
            .name
            .strip_prefix("endpoint.")?
            .strip_suffix(".types")?;
        let left: Vec<&str> = change.becomes.split(", ").collect();
        let gone: Vec<&str> = change
            .was
            .split(", ")
            .filter(|types| !left.contains(types))
            .collect();
        (!change.was.is_empty() && !change.becomes.is_empty() && !gone.is_empty()).then(|| {
            format!(
                "events of {} wait at the consumer {CONSUMER}{name} until each is taken from it: \
                 `outlast consumers remove-type {CONSUMER}{name} TYPE`",
                gone.join(", ")
            )
        })
    };
    let told = |change| removed(change).or_else(|| narrowed(change));
    changes.iter().filter_map(told).collect()
}

/// The endpoints of this database now.
pub(crate) async fn endpoints(database: &Database) -> Answer<Endpoints> {
    read(database)
        .await
        .tried("read the endpoints of the cluster")
}

async fn read(database: &Database) -> Result<Endpoints, Error> {
    let (client, _driver) = connect::connect(database).await?;
    endpoint::in_force(&client, database.in_schema()).await
}

/// Resolves when the endpoints are not these any more.
pub(crate) async fn changed(database: &Database, from: &Endpoints) {
    loop {
        tokio::time::sleep(LOOK).await;
        match read(database).await {
            Ok(now) if now != *from => {
                tracing::info!(
                    "the endpoints of the cluster have changed: draining, then working for the new ones"
                );
                return;
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "could not look for changed endpoints"),
        }
    }
}

/// A consumer for each endpoint. One that this process cannot work for is told, and left to others: they are not affected.
pub(crate) fn consumers(endpoints: &Endpoints) -> Answer<Vec<Consumer<()>>> {
    if endpoints.is_empty() {
        return Ok(Vec::new());
    }
    let rules = rules().map_err(Problem::of_configuration)?;
    let client = Egress::new(rules).client();
    let client = client.map_err(|error| Problem::new(Exit::Failed, "push", error.to_string()))?;
    let mut consumers = Vec::new();
    for (name, said) in endpoints {
        match consumer(&client, name, said) {
            Ok(consumer) => consumers.push(consumer),
            Err(why) => {
                tracing::error!(endpoint = %name, "no event is pushed to this endpoint from here: {why}");
            }
        }
    }
    Ok(consumers)
}

fn consumer(client: &Client, name: &str, said: &Definition) -> Result<Consumer<()>, String> {
    let (variable, key) = secret(&said.key)?;
    let keys: Keys = key.parse().map_err(|why| format!("{variable}: {why}"))?;
    let mut endpoint = HttpEndpoint::new(client, &said.url, keys)
        .map_err(|why| why.to_string())?
        .timeout(said.timeout);
    if let Some(rate) = said.rate {
        endpoint = endpoint.rate(rate);
    }
    for (header, value) in &said.headers {
        let value = match value.strip_prefix(NAMED) {
            Some(name) => secret(name)?.1,
            None => value.clone(),
        };
        endpoint = endpoint
            .header(header, &value)
            .map_err(|why| why.to_string())?;
    }
    let endpoint = Arc::new(endpoint);
    let mut consumer = Consumer::new(&format!("{CONSUMER}{name}"))
        .concurrency(usize::try_from(said.concurrency).unwrap_or(8))
        .deadline(said.deadline)
        .optional();
    if said.ordered {
        consumer = consumer.ordered();
    }
    if let Some(owner) = &said.owner {
        consumer = consumer.owner(owner);
    }
    for tenant in &said.tenants {
        consumer = consumer.tenant(tenant);
    }
    for types in said.types.iter().collect::<BTreeSet<_>>() {
        consumer = consumer.push(types, endpoint.clone());
    }
    Ok(consumer)
}

/// A secret of this process, and the variable that holds it.
fn secret(name: &str) -> Result<(String, String), String> {
    let capital = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_uppercase()
        } else {
            '_'
        }
    };
    let variable: String = SECRET.chars().chain(name.chars().map(capital)).collect();
    match env::var(&variable) {
        Ok(value) if !value.is_empty() => Ok((variable, value)),
        _ => Err(format!(
            "{variable} is not set: it holds the secret `{name}`"
        )),
    }
}

fn rules() -> Result<Rules, Vec<String>> {
    let list = |variable: &'static str| {
        let text = env::var(variable).unwrap_or_default();
        let parts = text.split([' ', ',']).filter(|part| !part.is_empty());
        parts.map(str::to_owned).collect::<Vec<_>>()
    };
    let (mut rules, mut problems) = (Rules::new(), Vec::new());
    for text in list(ALLOW) {
        match text.parse::<Net>() {
            Ok(net) => rules = rules.allow(net),
            Err(why) => problems.push(format!("{ALLOW}: {why}")),
        }
    }
    for text in list(PORTS) {
        match text.parse() {
            Ok(port) => rules = rules.port(port),
            Err(_) => problems.push(format!(
                "{PORTS}: a number of a port is expected, not `{}`",
                crate::out::text::line(&text)
            )),
        }
    }
    if problems.is_empty() {
        Ok(rules)
    } else {
        Err(problems)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_removes_an_endpoint_or_a_type_of_it_is_told_of_its_consumer() {
        let change = |name: &str, was: &str, becomes: &str| Change {
            name: name.into(),
            was: was.into(),
            becomes: becomes.into(),
        };
        let changes = [
            change("endpoint.gone.url", "https://a.example", ""),
            change("endpoint.new.url", "", "https://b.example"),
            change("endpoint.new.types", "", "a"),
            change("endpoint.less.types", "a, b.*, c", "a, d"),
            change("retention.log", "3d", "2d"),
        ];
        let told = warnings(&changes);
        assert_eq!(told.len(), 2);
        assert!(told[0].contains("consumers retire push/gone"), "{told:?}");
        assert!(told[1].starts_with("events of b.*, c wait at"), "{told:?}");
    }

    #[test]
    fn a_secret_that_is_not_there_names_its_variable_and_no_value() {
        let why = secret("shop/eu-1").unwrap_err();
        assert_eq!(
            why,
            "OUTLAST_SECRET_SHOP_EU_1 is not set: it holds the secret `shop/eu-1`"
        );
    }
}
