//! Cluster settings: what operators decide for all processes of a database. Read here, changed by [`apply`] alone.
//!
//! Names, kinds and defaults stand in one place, the SQL function `_settings`; this file reads its text.

pub(crate) mod difference;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::LazyLock,
    time::Duration,
};

use outlast_core::duration;
use tokio_postgres::{Client, Transaction, types::Type};

use crate::{
    Error,
    account::{self, Account, Accounts},
    endpoint::{self, Endpoints},
    outbox::{self, Outbox, Outboxes},
    relay::Route,
    schema::Schema,
};

/// One setting that there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name, such as `retention.log`.
    pub name: &'static str,
    /// What its value may be.
    pub kind: Kind,
    /// The value while nobody set another.
    pub standard: &'static str,
    /// What it is for, in a few words.
    pub what: &'static str,
}

/// What a value may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A time such as `12h` or `1d 12h`; at least a second.
    Duration,
    /// One of these words.
    OneOf(Vec<&'static str>),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duration => f.write_str("a time such as 90s, 12h or 30d"),
            Self::OneOf(words) => f.write_str(&words.join(" or ")),
        }
    }
}

/// Every setting that this program knows.
pub fn all() -> &'static [Setting] {
    static ALL: LazyLock<Vec<Setting>> = LazyLock::new(|| {
        let text = include_str!("../functions/setting.sql");
        text.lines().filter_map(Setting::from_line).collect()
    });
    &ALL
}

/// The setting of this name.
pub fn find(name: &str) -> Option<&'static Setting> {
    all().iter().find(|setting| setting.name == name)
}

impl Setting {
    /// Reads `    ('name', 'kind', 'standard', 'what'),`.
    fn from_line(line: &'static str) -> Option<Self> {
        let mut parts = line.strip_prefix("    ('")?.split('\'').step_by(2);
        let (name, kind) = (parts.next()?, parts.next()?);
        let kind = match kind {
            "duration" => Kind::Duration,
            words => Kind::OneOf(words.split('|').collect()),
        };
        let (standard, what) = (parts.next()?, parts.next()?);
        Some(Self {
            name,
            kind,
            standard,
            what,
        })
    }

    /// The one way in which a value is written.
    ///
    /// # Errors
    /// Says what would have been right.
    pub fn read(&self, value: &str) -> Result<String, String> {
        match &self.kind {
            Kind::Duration => {
                let read = duration::parse(value)?;
                if read < Duration::from_secs(1) {
                    return Err(format!("{value} is shorter than 1s"));
                }
                Ok(duration::show(read))
            }
            Kind::OneOf(words) if words.contains(&value) => Ok(value.to_owned()),
            Kind::OneOf(_) => Err(format!("`{value}` is not {}", self.kind)),
        }
    }
}

/// A value for every setting, every route of the relay, every outbox that it reads, every endpoint, every account of a provider
/// that is bounded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Values {
    texts: BTreeMap<&'static str, String>,
    routes: BTreeMap<String, Route>,
    outboxes: Outboxes,
    accounts: Accounts,
    /// The endpoints that events are pushed to.
    pub endpoints: Endpoints,
}

impl Default for Values {
    fn default() -> Self {
        let standard = |setting: &Setting| (setting.name, setting.standard.to_owned());
        Self {
            texts: all().iter().map(standard).collect(),
            routes: BTreeMap::new(),
            outboxes: Outboxes::new(),
            accounts: Accounts::new(),
            endpoints: Endpoints::new(),
        }
    }
}

impl Values {
    /// The value of this name; empty when there is no such setting.
    pub fn get(&self, name: &str) -> &str {
        self.texts.get(name).map_or("", String::as_str)
    }

    /// The value as a time; zero when it is none.
    pub fn duration(&self, name: &str) -> Duration {
        duration::parse(self.get(name)).unwrap_or_default()
    }

    /// Takes one value, in whatever way it is written.
    ///
    /// # Errors
    /// When there is no such setting, or its value cannot be this; says what would have been right.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let setting = find(name).ok_or_else(|| "unknown setting".to_owned())?;
        self.texts.insert(setting.name, setting.read(value)?);
        Ok(())
    }

    /// Takes one route.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn set_route(&mut self, name: &str, route: Route) -> Result<(), String> {
        let problems = route.problems(name);
        if !problems.is_empty() {
            return Err(problems.join("; "));
        }
        self.routes.insert(name.to_owned(), route);
        Ok(())
    }

    /// The routes, by name.
    pub fn routes(&self) -> &BTreeMap<String, Route> {
        &self.routes
    }

    /// Takes one outbox table of another system.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn set_outbox(&mut self, name: &str, outbox: Outbox) -> Result<(), String> {
        let problems = outbox.problems(name);
        if !problems.is_empty() {
            return Err(problems.join("; "));
        }
        self.outboxes.insert(name.to_owned(), outbox);
        Ok(())
    }

    /// Takes one account of a provider.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn set_account(&mut self, name: &str, account: Account) -> Result<(), String> {
        let problems = account.problems(name);
        if !problems.is_empty() {
            return Err(problems.join("; "));
        }
        self.accounts.insert(name.to_owned(), account);
        Ok(())
    }

    /// The accounts that are bounded, by name.
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// What is wrong with how the values fit together; one sentence each.
    pub fn problems(&self) -> Vec<String> {
        let endpoint = |(name, said): (&String, &endpoint::Definition)| {
            let told = |why| format!("endpoint.{name}: {why}");
            said.problems(name)
                .into_iter()
                .map(told)
                .collect::<Vec<_>>()
        };
        let relations = RELATIONS.iter().flat_map(|check| check(self));
        relations
            .chain(self.endpoints.iter().flat_map(endpoint))
            .collect()
    }
}

/// Each looks at how some values fit together.
const RELATIONS: &[fn(&Values) -> Vec<String>] = &[];

/// What the database says about one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InForce {
    /// The name.
    pub name: String,
    /// The value that counts.
    pub value: String,
    /// When an operator set it; none while it is the default.
    pub since: Option<String>,
}

/// The value of every setting in this database, by name.
///
/// # Errors
/// When the database cannot be asked.
pub async fn in_force(client: &Client, schema: Schema) -> Result<Vec<InForce>, Error> {
    let rows = client
        .query_typed(
            &schema.text("select d.name, coalesce(s.value, d.standard),
                    to_char(s.changed_at at time zone 'utc', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')
             from outlast._settings() d left join outlast._setting s on s.name = d.name order by d.name"),
            &[],
        )
        .await?;
    let one = |row: &tokio_postgres::Row| InForce {
        name: row.get(0),
        value: row.get(1),
        since: row.get(2),
    };
    Ok(rows.iter().map(one).collect())
}

/// One setting that has, or would get, another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The setting.
    pub name: String,
    /// The value in force.
    pub was: String,
    /// The value after it.
    pub becomes: String,
}

impl Change {
    fn of_route(name: &str, was: Option<&Route>, becomes: Option<&Route>) -> Self {
        let shown = |route: Option<&Route>| route.map_or_else(|| "none".to_owned(), Route::shown);
        Self {
            name: format!("route.{name}"),
            was: shown(was),
            becomes: shown(becomes),
        }
    }
}

/// What [`apply`] would change.
///
/// # Errors
/// When the database cannot be asked.
pub async fn plan(client: &Client, schema: Schema, wanted: &Values) -> Result<Vec<Change>, Error> {
    let mut changes = Vec::new();
    for now in in_force(client, schema).await? {
        // One that this program does not know belongs to a newer one.
        let Some(setting) = find(&now.name) else {
            continue;
        };
        let becomes = wanted.get(setting.name).to_owned();
        if now.value != becomes {
            changes.push(Change {
                name: now.name,
                was: now.value,
                becomes,
            });
        }
    }
    changes.extend(differences(&routes(client, schema).await?, &wanted.routes));
    changes.extend(outbox::differences(client, schema, &wanted.outboxes).await?);
    let endpoints = endpoint::in_force(client, schema).await?;
    changes.extend(endpoint::differences(&endpoints, &wanted.endpoints));
    changes.extend(account::differences(client, schema, &wanted.accounts).await?);
    Ok(changes)
}

/// Every route of this database.
///
/// # Errors
/// When the database cannot be asked.
pub async fn routes(client: &Client, schema: Schema) -> Result<BTreeMap<String, Route>, Error> {
    let sql = "select name, jsonb_build_object('broker', broker, 'topic', topic, 'types', types, 'ordered', ordered, 'start', start,
        'attributes', attributes) from outlast.route";
    let rows = client.query_typed(&schema.text(sql), &[]).await?;
    rows.iter()
        .map(|row| Ok((row.try_get(0)?, route(row.try_get(1)?)?)))
        .collect()
}

fn route(value: serde_json::Value) -> Result<Route, Error> {
    serde_json::from_value(value).map_err(|why| Error::Unexpected(format!("a route: {why}")))
}

fn differences(now: &BTreeMap<String, Route>, wanted: &BTreeMap<String, Route>) -> Vec<Change> {
    let names: BTreeSet<_> = now.keys().chain(wanted.keys()).collect();
    let differ = names
        .into_iter()
        .filter(|name| now.get(*name) != wanted.get(*name));
    differ
        .map(|name| Change::of_route(name, now.get(name), wanted.get(name)))
        .collect()
}

/// Makes these the settings, if that changes exactly what was shown before. All in one transaction, each change with its
/// line in the audit; durable on return. If this process dies in between, all of it is there or nothing.
///
/// # Errors
/// [`Error::Config`] when they do not fit together, or when somebody else applied others meanwhile: nothing is changed
/// then. [`Error::Database`], also when a setting is refused by the database.
pub async fn apply(
    client: &mut Client,
    schema: Schema,
    wanted: &Values,
    shown: &[Change],
) -> Result<(), Error> {
    let problems = wanted.problems();
    if !problems.is_empty() {
        return Err(Error::Config(problems.join("; ")));
    }
    let tx = client.transaction().await?;
    if write(&tx, schema, wanted).await? != shown {
        return Err(Error::Config(
            "the settings were changed by somebody else meanwhile: look at the difference again"
                .into(),
        ));
    }
    tx.commit().await?;
    Ok(())
}

async fn write(
    tx: &Transaction<'_>,
    schema: Schema,
    wanted: &Values,
) -> Result<Vec<Change>, Error> {
    let (names, values): (Vec<&str>, Vec<&String>) = wanted.texts.iter().unzip();
    let rows = tx
        .query_typed(
            &schema.text("select name, was, becomes from outlast._apply($1, $2)"),
            &[(&names, Type::TEXT_ARRAY), (&values, Type::TEXT_ARRAY)],
        )
        .await?;
    let one = |row: &tokio_postgres::Row| Change {
        name: row.get(0),
        was: row.get(1),
        becomes: row.get(2),
    };
    let mut changes: Vec<_> = rows.iter().map(one).collect();
    let routes = serde_json::to_value(&wanted.routes)
        .map_err(|why| Error::Unexpected(format!("routes: {why}")))?;
    let rows = tx
        .query_typed(
            &schema.text("select name, was, becomes from outlast._apply_routes($1)"),
            &[(&routes, Type::JSONB)],
        )
        .await?;
    for row in rows {
        let read = |nth| {
            let value: Option<serde_json::Value> = row.try_get(nth)?;
            value.map(route).transpose()
        };
        let (was, becomes) = (read(1)?, read(2)?);
        let name: String = row.try_get(0)?;
        changes.push(Change::of_route(&name, was.as_ref(), becomes.as_ref()));
    }
    changes.extend(outbox::write(tx, schema, &wanted.outboxes).await?);
    // The lock of the texts is held, so nobody else changes these either.
    changes.extend(endpoint::write(tx, schema, &wanted.endpoints).await?);
    changes.extend(account::write(tx, schema, &wanted.accounts).await?);
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_read_from_its_text_and_every_default_is_a_value() {
        assert!(all().len() > 5, "{:?}", all());
        for setting in all() {
            assert_eq!(
                setting.read(setting.standard).as_deref(),
                Ok(setting.standard),
                "{}",
                setting.name
            );
            assert!(!setting.what.is_empty() && !setting.what.contains('"'));
        }
        assert_eq!(
            find("wake").expect("is a setting").kind,
            Kind::OneOf(vec!["poll", "notify"])
        );
        assert_eq!(Values::default().problems(), Vec::<String>::new());
    }

    #[test]
    fn a_value_is_written_in_one_way_and_a_wrong_one_says_what_would_be_right() {
        let mut values = Values::default();
        values.set("retention.log", "36h").unwrap();
        assert_eq!(values.get("retention.log"), "1d 12h");
        assert_eq!(values.duration("retention.log"), Duration::from_hours(36));
        let wrong = [
            ("retention.log", "soon", "is not a duration such as"),
            ("retention.log", "0s", "shorter than 1s"),
            ("wake", "often", "`often` is not poll or notify"),
            ("colour", "red", "unknown setting"),
        ];
        for (name, value, why) in wrong {
            let said = values.set(name, value).unwrap_err();
            assert!(said.contains(why), "{name}: {said}");
        }
    }
}
