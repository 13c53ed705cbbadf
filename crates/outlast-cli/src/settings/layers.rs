//! One layer after the other: the file, the environment, the flags.

use std::{collections::BTreeMap, env, io::ErrorKind, path::Path};

use outlast_engine::Settings;
use toml::{Spanned, Value, de::DeTable};

use super::{
    Base, Origin,
    brokers::{self, Brokers},
    cluster::{self, Section},
    keys::{self, DATABASE, DATABASE_VARIABLES},
};
use crate::{args::Global, out::text, push};

/// The file that is read if it is there.
pub(super) const FILE: &str = "outlast.toml";

/// Variables of ours that are no settings.
const OTHERS: [&str; 6] = [
    push::ALLOW,
    push::PORTS,
    "OUTLAST_CONFIG",
    "OUTLAST_LOG",
    "OUTLAST_PG_BIN",
    "OUTLAST_DATABASE_URL",
];

#[derive(Debug)]
pub(super) struct Layers {
    pub(super) settings: Settings,
    pub(super) database: Option<(String, Origin)>,
    pub(super) problems: Vec<String>,
    /// What the file says about the cluster; it counts when it is applied.
    pub(super) cluster: Option<Section>,
    /// The brokers of this process.
    pub(super) brokers: Brokers,
    /// The merged values, each of which fits its key.
    values: toml::Table,
    origins: BTreeMap<String, Origin>,
}

impl Layers {
    pub(super) fn read(global: &Global, set: &[String], base: &Base) -> Self {
        let defaults = keys::table(&Settings::default());
        let values = keys::table(&base.settings);
        let differs = |(key, value): (&String, &Value)| {
            (defaults.get(key) != Some(value)).then(|| (key.clone(), "code".into()))
        };
        let origins = values.iter().filter_map(differs).collect();
        let database = base.database.clone().map(|url| (url, "code".into()));
        let settings = base.settings.clone();
        let mut layers = Self {
            settings,
            database,
            problems: Vec::new(),
            cluster: None,
            brokers: Brokers::default(),
            values,
            origins,
        };
        layers.file(global.config.as_deref());
        layers.environment();
        layers.flags(global, set);
        layers
    }

    pub(super) fn origin(&self, key: &str) -> Origin {
        self.origins
            .get(key)
            .cloned()
            .unwrap_or_else(|| "default".into())
    }

    fn file(&mut self, path: Option<&Path>) {
        let file = path.unwrap_or(Path::new(FILE));
        let shown = text::line(&file.display().to_string());
        let content = match std::fs::read_to_string(file) {
            Ok(content) => content,
            Err(error) if error.kind() == ErrorKind::NotFound && path.is_none() => return,
            Err(error) => return self.problems.push(format!("{shown}: {error}")),
        };
        let (spans, table) = match parse(&content, &shown) {
            Ok(both) => both,
            Err(problem) => return self.problems.push(problem),
        };
        self.cluster = Section::read(&spans, &content, &shown);
        let wrong = self.cluster.iter().flat_map(|section| &section.problems);
        self.problems.extend(wrong.cloned());
        self.brokers = Brokers::read(&spans, &table, &content, &shown);
        self.problems.extend(self.brokers.problems.iter().cloned());
        for key in spans.get_ref().keys() {
            let (at, key) = (line(&content, key.span().start), key.get_ref().as_ref());
            if key == cluster::SECTION || key == brokers::SECTION {
                continue;
            }
            if let Some(value) = table.get(key) {
                self.put(key, value.clone(), format!("{shown}:{at}"));
            }
        }
    }

    fn environment(&mut self) {
        let mut found: Vec<(String, String)> = env::vars_os()
            .filter_map(|(name, value)| {
                Some((
                    name.into_string().ok()?,
                    value.to_string_lossy().into_owned(),
                ))
            })
            .filter(|(name, value)| name.starts_with("OUTLAST_") && !value.is_empty())
            .collect();
        found.sort();
        for (variable, value) in found {
            let key = variable["OUTLAST_".len()..].to_lowercase();
            if keys::names()
                .any(|name| name == key && name != DATABASE && variable == keys::variable(name))
            {
                self.put_text(&key, &value, variable);
            } else if !OTHERS.contains(&variable.as_str())
                && !variable.starts_with("OUTLAST_TEST_")
                && !variable.starts_with(push::SECRET)
                && !variable.starts_with(brokers::VARIABLE)
            {
                self.unknown_variable(&variable, &key);
            }
        }
        // The first that is set counts.
        for variable in DATABASE_VARIABLES.into_iter().rev() {
            if let Some(url) = env::var(variable).ok().filter(|url| !url.is_empty()) {
                self.database = Some((url, variable.into()));
            }
        }
    }

    /// Refused when it looks like a slip. Others are left alone: Kubernetes gives every pod variables such as
    /// `OUTLAST_PORT` for a service that is called outlast.
    fn unknown_variable(&mut self, variable: &str, key: &str) {
        let variable = text::line(variable);
        match keys::meant(key) {
            Some(DATABASE) => self.problems.push(format!(
                "{variable}: did you mean {}?",
                DATABASE_VARIABLES[0]
            )),
            Some(name) => self.problems.push(format!(
                "{variable}: did you mean {}?",
                keys::variable(name)
            )),
            None => tracing::warn!(
                "{variable} in the environment is no setting of Outlast and is left alone"
            ),
        }
    }

    fn flags(&mut self, global: &Global, set: &[String]) {
        for flag in set {
            match flag.split_once('=') {
                Some((key, value)) => self.put_text(key.trim(), value.trim(), "--set".into()),
                None => self
                    .problems
                    .push(format!("--set {}: write KEY=VALUE", text::line(flag))),
            }
        }
        if let Some(schema) = &global.schema {
            self.put_text("schema", schema, "--schema".into());
        }
        if let Some(url) = &global.database {
            self.database = Some((url.clone(), "--database".into()));
        }
    }

    /// A value without a type of its own gets that of the default.
    fn put_text(&mut self, key: &str, value: &str, origin: Origin) {
        // `job.NAME.KEY`, whose name may have dots.
        if let Some((name, key)) = key
            .strip_prefix(keys::JOB)
            .and_then(|rest| rest.strip_prefix('.')?.rsplit_once('.'))
        {
            let value = match value.parse() {
                Ok(number) => Value::Integer(number),
                Err(_) => Value::String(value.to_owned()),
            };
            let mut jobs = match self.values.get(keys::JOB) {
                Some(Value::Table(jobs)) => jobs.clone(),
                _ => toml::Table::new(),
            };
            let job = jobs
                .entry(name)
                .or_insert_with(|| Value::Table(toml::Table::new()));
            if let Value::Table(job) = job {
                job.insert(key.to_owned(), value);
            }
            return self.put(keys::JOB, Value::Table(jobs), origin);
        }
        let is_number = keys::table(&Settings::default())
            .get(key)
            .is_some_and(Value::is_integer);
        let number = value.parse().ok().filter(|_| is_number);
        self.put(
            key,
            number.map_or_else(|| Value::String(value.to_owned()), Value::Integer),
            origin,
        );
    }

    /// Takes a value if it fits its key.
    fn put(&mut self, key: &str, value: Value, origin: Origin) {
        let shown = text::line(key);
        if key == DATABASE {
            match value {
                Value::String(url) => self.database = Some((url, origin)),
                _ => self
                    .problems
                    .push(format!("database ({origin}): a text in quotes is expected")),
            }
            return;
        }
        if key != keys::JOB && !keys::names().any(|name| name == key) {
            let meant = keys::meant(key)
                .map(|name| format!("; did you mean {name}?"))
                .unwrap_or_default();
            self.problems
                .push(format!("{shown} ({origin}): unknown setting{meant}"));
            return;
        }
        let mut tried = self.values.clone();
        tried.insert(key.to_owned(), value);
        match tried.clone().try_into::<Settings>() {
            Ok(settings) => {
                self.settings = settings;
                self.values = tried;
                self.origins.insert(key.to_owned(), origin);
            }
            Err(error) => self.problems.push(format!(
                "{shown} ({origin}): {}",
                text::line(error.message().trim())
            )),
        }
    }
}

/// The places of all keys, and the values.
pub(super) fn parse<'a>(
    content: &'a str,
    shown: &str,
) -> Result<(Spanned<DeTable<'a>>, toml::Table), String> {
    DeTable::parse(content)
        .and_then(|spans| Ok((spans, content.parse::<toml::Table>()?)))
        .map_err(|error| {
            // Not its picture of the line: that may hold a password.
            let at = error.span().map_or(0, |span| span.start);
            let why = text::line(error.message());
            format!("{shown}:{}: {why}", line(content, at))
        })
}

pub(super) fn line(content: &str, at: usize) -> usize {
    content[..at.min(content.len())].matches('\n').count() + 1
}
