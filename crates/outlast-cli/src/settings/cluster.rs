//! The section `[cluster]` of a file: what `outlast apply` makes the settings of the whole cluster.

use std::{collections::BTreeMap, path::Path};

use outlast_postgres::{endpoint::Definition, setting::Values};
use serde::{
    Deserialize,
    de::{DeserializeOwned, IntoDeserializer},
};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    Origin, keys,
    layers::{line, parse},
};
use crate::{
    out::text,
    problem::{Answer, Problem},
};

/// Its name.
pub(crate) const SECTION: &str = "cluster";
/// The table in it that has a table for each route of the relay.
const ROUTES: &str = "route";
/// The table in it that has a table for each outbox of another system.
const OUTBOXES: &str = "outbox";
/// The table in it that has a table for each account of a provider that is bounded.
const ACCOUNTS: &str = "account";

/// What one file says. Whatever it does not name has its default.
#[derive(Debug, Default)]
pub(crate) struct Section {
    pub(crate) values: Values,
    /// Where each name was set.
    pub(crate) origins: BTreeMap<&'static str, Origin>,
    pub(crate) problems: Vec<String>,
    /// Where each of these tables of tables is.
    tables: BTreeMap<&'static str, Origin>,
}

impl Section {
    /// None when the file has no such section.
    pub(super) fn read(spans: &Spanned<DeTable<'_>>, content: &str, shown: &str) -> Option<Self> {
        let (key, section) = spans
            .get_ref()
            .iter()
            .find(|(key, _)| key.get_ref() == SECTION)?;
        let mut read = Self::default();
        let DeValue::Table(table) = section.get_ref() else {
            let at = line(content, key.span().start);
            let problem = format!("cluster ({shown}:{at}): a section [cluster] is expected");
            read.problems.push(problem);
            return Some(read);
        };
        read.take(table, "", content, shown);
        read.take_each(ROUTES, content, Values::set_route);
        read.take_each(OUTBOXES, content, Values::set_outbox);
        read.take_each(ACCOUNTS, content, Values::set_account);
        // What does not fit together is only worth a word when each fits by itself.
        if read.problems.is_empty() {
            let misfits = read.values.problems();
            let told = |why| format!("[cluster] of {shown}: {why}");
            read.problems.extend(misfits.into_iter().map(told));
        }
        Some(read)
    }

    /// `a.b = 1`, `[a]` with `b = 1` and `"a.b" = 1` are one and the same.
    fn take(&mut self, table: &DeTable<'_>, before: &str, content: &str, shown: &str) {
        for (key, value) in table {
            let name = format!("{before}{}", key.get_ref());
            let origin = format!("{shown}:{}", line(content, key.span().start));
            let whole = [ROUTES, OUTBOXES, ACCOUNTS];
            if let Some(kind) = whole
                .into_iter()
                .find(|kind| before.is_empty() && *kind == name)
            {
                match value.get_ref() {
                    DeValue::Table(_) => _ = self.tables.insert(kind, origin),
                    _ => self.problems.push(format!(
                        "{name} ({origin}): tables [cluster.{name}.NAME] are expected"
                    )),
                }
                continue;
            }
            match value.get_ref() {
                DeValue::Table(table) if name == "endpoint" => {
                    self.endpoints(table, content, shown);
                }
                DeValue::Table(table) => self.take(table, &format!("{name}."), content, shown),
                DeValue::String(value) => self.put(&name, value, origin),
                _ => self.problems.push(format!(
                    "{} ({origin}): a text in quotes is expected",
                    text::line(&name)
                )),
            }
        }
    }

    /// Each table below this one is one route, outbox or account, read as a whole.
    fn take_each<T: DeserializeOwned>(
        &mut self,
        kind: &'static str,
        content: &str,
        take: fn(&mut Values, &str, T) -> Result<(), String>,
    ) {
        let Some(origin) = self.tables.get(kind).cloned() else {
            return;
        };
        let read: Result<toml::Table, _> = toml::from_str(content);
        let section = read.ok().and_then(|mut all| all.remove(SECTION));
        let tables = section.and_then(|section| section.get(kind)?.as_table().cloned());
        for (name, table) in tables.into_iter().flatten() {
            let taken = table
                .try_into()
                .map_err(|why| why.to_string())
                .and_then(|one| take(&mut self.values, &name, one));
            if let Err(why) = taken {
                let (shown, why) = (text::line(&name), text::line(why.trim()));
                self.problems
                    .push(format!("{kind}.{shown} ({origin}): {why}"));
            }
        }
    }

    /// `[cluster.endpoint.NAME]`: a table each.
    fn endpoints(&mut self, table: &DeTable<'_>, content: &str, shown: &str) {
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            match Definition::deserialize(value.clone().into_deserializer()) {
                Ok(said) => _ = self.values.endpoints.insert(name.to_owned(), said),
                Err(error) => self.problems.push(format!(
                    "endpoint.{} ({shown}:{}): {}",
                    text::line(name),
                    line(content, key.span().start),
                    text::line(error.message().trim())
                )),
            }
        }
    }

    fn put(&mut self, name: &str, value: &str, origin: Origin) {
        if let Some(setting) = outlast_postgres::setting::find(name) {
            match self.values.set(name, value) {
                Ok(()) => _ = self.origins.insert(setting.name, origin),
                Err(why) => self
                    .problems
                    .push(format!("{name} ({origin}): {}", text::line(&why))),
            }
            return;
        }
        let meant = keys::meant_of_cluster(name)
            .map(|name| format!("; did you mean {name}?"))
            .unwrap_or_default();
        let name = text::line(name);
        let problem = format!("{name} ({origin}): unknown setting of the cluster{meant}");
        self.problems.push(problem);
    }

    /// The section of a file of its own; `-` is stdin.
    pub(crate) fn of_file(path: &Path) -> Answer<Self> {
        let shown = text::line(&path.display().to_string());
        let content = if path == Path::new("-") {
            std::io::read_to_string(std::io::stdin())
        } else {
            std::fs::read_to_string(path)
        };
        let content = match content {
            Ok(content) => content,
            Err(error) => {
                let problems = vec![format!("{shown}: {error}")];
                return Err(Problem::of_configuration(problems));
            }
        };
        let (spans, _) =
            parse(&content, &shown).map_err(|problem| Problem::of_configuration(vec![problem]))?;
        let section = Self::read(&spans, &content, &shown).ok_or_else(|| missing(&shown))?;
        if section.problems.is_empty() {
            Ok(section)
        } else {
            Err(Problem::of_configuration(section.problems))
        }
    }
}

/// To take a file without the section for "all defaults" would undo what others have set.
pub(crate) fn missing(shown: &str) -> Problem {
    let problem = format!(
        "{shown}: has no section [cluster]; an empty one stands for the defaults of all settings"
    );
    Problem::of_configuration(vec![problem])
}
