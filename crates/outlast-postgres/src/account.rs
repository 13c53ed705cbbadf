//! Accounts of providers, as operators bound them: cluster settings of a kind of their own. How claims keep to them is
//! `functions/account.sql`; that an account is paused is no setting.

use std::{collections::BTreeMap, time::Duration};

use outlast_core::duration;
use serde::{Deserialize, Serialize};
use tokio_postgres::{GenericClient, types::Type};

use crate::{
    Error,
    schema::Schema,
    setting::{Change, difference},
};

/// What the commands of one provider account may do together, over all processes. Set by `outlast apply`, or by the SQL function
/// `limit_account`.
///
/// ```toml
/// [cluster.account.acme]
/// concurrency = 10
/// rate = 50
/// burst = 20
///
/// [cluster.account."acme/*"]      # each account that begins with acme/, by itself, unless it is named
/// concurrency = 1
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Account {
    /// How many of its commands are in work at once. As many as there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// How many may begin in a second, on average. As many as there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// How many may begin at once within the rate. 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub burst: u32,
    /// From so many failures one after the other on it is left alone, and one try at a time finds out. 5.
    #[serde(default = "five", skip_serializing_if = "is_five")]
    pub circuit: u32,
    /// How long it is left alone at a time, at most. 1 min.
    #[serde(
        default = "a_minute",
        with = "duration",
        skip_serializing_if = "is_a_minute"
    )]
    pub circuit_pause: Duration,
}

/// A number of tries a second; may be less than one.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rate(pub f64);

// Invariant: what is read from a file or a table is compared with itself; a NaN is refused with the other problems.
impl Eq for Rate {}

fn one() -> u32 {
    1
}

fn five() -> u32 {
    5
}

fn a_minute() -> Duration {
    Duration::from_mins(1)
}

fn is_one(n: &u32) -> bool {
    *n == one()
}

fn is_five(n: &u32) -> bool {
    *n == five()
}

fn is_a_minute(pause: &Duration) -> bool {
    *pause == a_minute()
}

/// Accounts by name.
pub type Accounts = BTreeMap<String, Account>;

impl Default for Account {
    fn default() -> Self {
        Self {
            concurrency: None,
            rate: None,
            burst: one(),
            circuit: five(),
            circuit_pause: a_minute(),
        }
    }
}

impl Account {
    /// What is wrong with it; one sentence each.
    pub fn problems(&self, account: &str) -> Vec<String> {
        let mut problems = Vec::new();
        let mut require = |holds: bool, problem: String| {
            if !holds {
                problems.push(problem);
            }
        };
        let length = account.chars().count();
        require(
            (1..=200).contains(&length) && !account.chars().any(char::is_control),
            "its name: 1 to 200 characters, none of them a control character, are expected".into(),
        );
        let within = |n: u32, most: u32| (1..=most).contains(&n);
        if let Some(n) = self.concurrency {
            require(
                within(n, 10_000),
                format!("concurrency is {n}, not between 1 and 10000"),
            );
        }
        if let Some(Rate(rate)) = self.rate {
            require(
                rate > 0.0 && rate <= 100_000.0,
                format!("rate is {rate}, not more than 0 and at most 100000 a second"),
            );
        }
        require(
            within(self.burst, 100_000),
            format!("burst is {}, not between 1 and 100000", self.burst),
        );
        require(
            self.rate.is_none() || !account.ends_with("/*"),
            "rate is of one account: for each that begins so there are concurrency and circuit"
                .into(),
        );
        require(
            self.rate.is_some() || is_one(&self.burst),
            "burst without rate: it is how many may begin at once within a rate".into(),
        );
        require(
            within(self.circuit, 1000),
            format!(
                "circuit is {}, not between 1 and 1000 failures",
                self.circuit
            ),
        );
        let (pause, shown) = (self.circuit_pause, duration::show(self.circuit_pause));
        require(
            pause >= Duration::from_secs(1) && pause <= Duration::from_hours(1),
            format!("circuit_pause is {shown}, not between 1s and 1h"),
        );
        require(
            pause.subsec_nanos() == 0,
            format!("circuit_pause is {shown}: whole seconds are expected"),
        );
        require(
            *self != Self::default(),
            "it says nothing: concurrency, rate, circuit or circuit_pause is expected".into(),
        );
        problems
    }

    /// What it says, as a person reads it in one line.
    pub fn shown(&self) -> String {
        let said = difference::said(self);
        let one = |(name, value): (&String, &String)| format!("{name} {value}");
        said.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

/// What the database says about one account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InForce {
    /// What it may do.
    pub account: Account,
    /// Since when.
    pub since: String,
}

/// The accounts of this database that are bounded.
///
/// # Errors
/// When the database cannot be asked.
pub async fn in_force(
    client: &impl GenericClient,
    schema: Schema,
) -> Result<BTreeMap<String, InForce>, Error> {
    let sql = "select a.name, a.concurrency, a.rate, a.burst, a.circuit, a.circuit_pause_s,
            to_char(a.changed_at at time zone 'utc', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')
        from outlast._account_limit a order by a.name";
    let rows = client.query_typed(&schema.text(sql), &[]).await;
    let rows = rows.map_err(|error| Error::from(error).in_schema(schema))?;
    let one = |row: &tokio_postgres::Row| {
        // Invariant: the table's checks let nothing negative in.
        let number = |nth: usize| row.get::<_, i32>(nth).unsigned_abs();
        let account = Account {
            concurrency: row.get::<_, Option<i32>>(1).map(i32::unsigned_abs),
            rate: row.get::<_, Option<f64>>(2).map(Rate),
            burst: number(3),
            circuit: number(4),
            circuit_pause: Duration::from_secs(number(5).into()),
        };
        let since = row.get(6);
        (row.get(0), InForce { account, since })
    };
    Ok(rows.iter().map(one).collect())
}

async fn now(client: &impl GenericClient, schema: Schema) -> Result<Accounts, Error> {
    let in_force = in_force(client, schema).await?;
    let bare = |(name, now): (String, InForce)| (name, now.account);
    Ok(in_force.into_iter().map(bare).collect())
}

/// What differs, one line for each thing that an account says.
///
/// # Errors
/// When the database cannot be asked.
pub(crate) async fn differences(
    client: &impl GenericClient,
    schema: Schema,
    wanted: &Accounts,
) -> Result<Vec<Change>, Error> {
    Ok(difference::lines(
        "account",
        &now(client, schema).await?,
        wanted,
    ))
}

/// Makes these the accounts that are bounded, in the caller's transaction, and answers what changed.
pub(crate) async fn write(
    tx: &impl GenericClient,
    schema: Schema,
    wanted: &Accounts,
) -> Result<Vec<Change>, Error> {
    let now = now(tx, schema).await?;
    let unbounded = Account::default();
    let gone = now.keys().filter(|name| !wanted.contains_key(*name));
    let gone = gone.map(|name| (name, &unbounded));
    let changed = wanted
        .iter()
        .filter(|(name, said)| now.get(*name) != Some(*said));
    let sql = &*schema.text("select outlast.limit_account($1, $2, $3, $4, $5, $6)::text");
    for (name, said) in gone.chain(changed) {
        let whole = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
        let pause = i32::try_from(said.circuit_pause.as_secs()).unwrap_or(i32::MAX);
        tx.query_typed(
            sql,
            &[
                (name, Type::TEXT),
                (&said.concurrency.map(whole), Type::INT4),
                (&said.rate.map(|rate| rate.0), Type::FLOAT8),
                (&whole(said.burst), Type::INT4),
                (&whole(said.circuit), Type::INT4),
                (&pause, Type::INT4),
            ],
        )
        .await?;
    }
    Ok(difference::lines("account", &now, wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(said: &str) -> Account {
        serde_json::from_str(said).unwrap()
    }

    #[test]
    fn what_an_account_does_not_say_has_a_default_and_everything_wrong_is_told_at_once() {
        let acme = read(r#"{"rate": 50, "burst": 20}"#);
        assert_eq!(
            (acme.rate, acme.concurrency, acme.circuit),
            (Some(Rate(50.0)), None, 5)
        );
        assert_eq!(acme.problems("acme/7"), Vec::<String>::new());
        assert_eq!(acme.shown(), "burst 20, rate 50");
        let wrong = Account {
            concurrency: Some(0),
            rate: Some(Rate(f64::NAN)),
            burst: 0,
            circuit: 0,
            circuit_pause: Duration::from_millis(10),
        };
        let problems = wrong.problems("a\nb").join("; ");
        for why in [
            "its name: 1 to 200",
            "concurrency is 0",
            "rate is NaN",
            "burst is 0",
            "circuit is 0",
            "circuit_pause is 10ms, not between 1s and 1h",
            "whole seconds",
        ] {
            assert!(problems.contains(why), "{why} is missing in: {problems}");
        }
        let alone = read(r#"{"burst": 5}"#).problems("acme").join("; ");
        assert!(alone.contains("burst without rate"), "{alone}");
        let nothing = read("{}").problems("acme").join("; ");
        assert!(nothing.contains("it says nothing"), "{nothing}");
        let unknown = serde_json::from_str::<Account>(r#"{"rat": 1}"#).unwrap_err();
        assert!(
            unknown.to_string().contains("unknown field `rat`"),
            "{unknown}"
        );
    }
}
