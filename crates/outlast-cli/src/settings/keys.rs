//! What can be set, in words: the file that `config default` prints, and what was probably meant.

use std::fmt::Write;

use outlast_engine::Settings;
use outlast_postgres::setting;

/// The one key that is not the engine's.
pub(crate) const DATABASE: &str = "database";

/// The table that has a table for the jobs of each name.
pub(crate) const JOB: &str = "job";

/// Where the database is read from instead of `OUTLAST_DATABASE`, as everywhere else.
pub(crate) const DATABASE_VARIABLES: [&str; 2] = ["OUTLAST_DATABASE_URL", "DATABASE_URL"];

/// Name and purpose. A test keeps them equal to the fields of [`Settings`], but the table of jobs.
const KEYS: [(&str, &str); 16] = [
    (
        DATABASE,
        "Where the database is. A password is better kept in PGPASSWORD or ~/.pgpass.",
    ),
    (
        "deployment",
        "The name of this deployment; must equal the database's (`outlast migrate --deployment`).\nWithout one it is a development database.",
    ),
    (
        "schema",
        "The schema to work in, for a second application in one database (`outlast migrate --schema`).",
    ),
    (
        "lease",
        "How long a claim is ours without renewal. A dead process's work waits that long.",
    ),
    (
        "longest_lease",
        "No lease is longer; one that ends further away counts as lapsed.",
    ),
    ("deadline", "How long one try of a handler may take."),
    (
        "grace",
        "How long a handler may go on after its deadline before it counts as failed.",
    ),
    (
        "attempts",
        "After how many failed tries an event is quarantined, and a job stopped: a person must look.",
    ),
    (
        "drain",
        "How long running handlers may take to finish when the worker stops.",
    ),
    (
        "concurrency",
        "How many handlers of one consumer, or of the jobs of one name, run at once, unless it says otherwise.",
    ),
    ("batch_rows", "The most events in one batch."),
    ("batch_bytes", "The most payload bytes in one claim."),
    ("scanned_rows", "The most rows looked at in one claim."),
    (
        "flush",
        "How long the first completions of a claim of jobs wait for others, so that quick ones are written together.",
    ),
    (
        "heartbeat",
        "How often an idle process says that it is alive.",
    ),
    (
        "connections",
        "The most connections of the engine; the pools of your handlers are yours.",
    ),
];

/// What a key without a default may look like.
fn example(key: &str) -> &'static str {
    match key {
        DATABASE => "\"postgres://app@db.example/shop?sslmode=verify-full\"",
        "schema" => "\"outlast\"",
        _ => "\"production\"",
    }
}

pub(crate) fn names() -> impl Iterator<Item = &'static str> + Clone {
    KEYS.iter().map(|(name, _)| *name)
}

/// The variable of the environment that sets a key.
pub(crate) fn variable(key: &str) -> String {
    format!("OUTLAST_{}", key.to_uppercase())
}

/// The key that was probably meant.
pub(crate) fn meant(wrong: &str) -> Option<&'static str> {
    near(wrong, names())
}

/// The cluster setting that was probably meant.
pub(crate) fn meant_of_cluster(wrong: &str) -> Option<&'static str> {
    let names = || setting::all().iter().map(|setting| setting.name);
    // Whoever leaves out the first word of a name means that one.
    let bare = |name: &&str| name.rsplit('.').next() == Some(wrong);
    near(wrong, names()).or_else(|| names().find(bare))
}

fn near(wrong: &str, names: impl Iterator<Item = &'static str> + Clone) -> Option<&'static str> {
    let folded = wrong.to_lowercase().replace('-', "_");
    let near = |name: &&str| strsim::damerau_levenshtein(&folded, name) <= 2.min(name.len() / 3);
    let exact = names.clone().find(|name| folded == *name);
    let mut names = names;
    exact.or_else(|| names.find(near))
}

/// The values of settings, by key.
pub(crate) fn table(settings: &Settings) -> toml::Table {
    toml::Table::try_from(settings).expect("settings are a table of plain values")
}

/// `outlast.toml` with everything in it as a comment: a file names only what differs.
pub(crate) fn default_file() -> String {
    let defaults = table(&Settings::default());
    let mut file = String::from(
        "# outlast.toml: what is not set here has the default that is shown. Times are \"500ms\", \"15s\", \"5m\".\n\
         # The environment wins over this file (OUTLAST_LEASE=30s), flags win over both (--set lease=30s).\n",
    );
    for (name, about) in KEYS {
        let value = defaults
            .get(name)
            .map_or_else(|| example(name).to_owned(), toml::Value::to_string);
        for line in about.lines() {
            write!(file, "\n# {line}").expect("a String takes everything");
        }
        write!(file, "\n# {name} = {value}\n").expect("a String takes everything");
    }
    file.push_str(
        "\n# Settings of the whole cluster: they live in the database, and `outlast apply` makes them what stands here.\n\
         # [cluster]\n",
    );
    for setting in setting::all() {
        let (what, kind, name, value) =
            (setting.what, &setting.kind, setting.name, setting.standard);
        write!(file, "\n# {what} ({kind})\n# {name} = \"{value}\"\n")
            .expect("a String takes everything");
    }
    file.push_str("\n# How the jobs of a name are run, where the code shall not have its way, is a table, [job.NAME]: docs/jobs.md.\n");
    file.push_str("\n# Routes of events to brokers are tables, [cluster.route.NAME]; the brokers of this process too, [broker.NAME]: docs/brokers.md.\n");
    file.push_str("\n# What the account of a provider may do is a table, [cluster.account.NAME]: docs/commands.md.\n");
    file.push_str("\n# Endpoints that events are pushed to are tables, [cluster.endpoint.NAME]: docs/push.md.\n");
    file
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};
    use toml::Value;

    /// The values of a section by their full names.
    fn flat(section: &Value) -> BTreeMap<String, Value> {
        let mut found = BTreeMap::new();
        for (key, value) in section.as_table().into_iter().flatten() {
            if value.is_table() {
                let inner = flat(value).into_iter();
                found.extend(inner.map(|(name, value)| (format!("{key}.{name}"), value)));
            } else {
                found.insert(key.clone(), value.clone());
            }
        }
        found
    }

    #[test]
    fn every_setting_of_the_engine_has_its_words_here() {
        let unknown = toml::Table::from_iter([("?".to_owned(), toml::Value::Integer(1))]);
        let told = unknown
            .try_into::<Settings>()
            .expect_err("unknown keys are refused")
            .to_string();
        let known: BTreeSet<&str> = told.split('`').skip(3).step_by(2).collect();
        let ours = names().filter(|name| *name != DATABASE);
        let ours: BTreeSet<&str> = ours.chain([JOB]).collect();
        assert_eq!(known, ours, "{told}");
    }

    #[test]
    fn the_default_file_says_the_defaults() {
        let file = default_file();
        assert!(
            toml::from_str::<toml::Table>(&file)
                .expect("a comment is TOML")
                .is_empty()
        );
        let set: String = file
            .lines()
            .filter_map(|line| line.strip_prefix("# "))
            .filter(|line| line.contains(" = ") || line.starts_with('['))
            .fold(String::new(), |set, line| set + line + "\n");
        let mut set: toml::Table = toml::from_str(&set).expect("without the signs it is a file");
        set.remove(DATABASE);
        set.remove("deployment");
        set.remove("schema");
        let cluster = set.remove("cluster").expect("the section of the cluster");
        assert_eq!(
            flat(&cluster),
            setting::all()
                .iter()
                .map(|setting| (setting.name.to_owned(), setting.standard.into()))
                .collect()
        );
        assert_eq!(
            set.try_into::<Settings>().expect("its values are settings"),
            Settings::default()
        );
    }

    #[test]
    fn what_was_meant_is_found_and_nothing_is_made_up() {
        assert_eq!(meant("leese"), Some("lease"));
        assert_eq!(meant("batch-rows"), Some("batch_rows"));
        assert_eq!(meant("deadlne"), Some("deadline"));
        assert_eq!(meant("colour"), None);
        assert_eq!(meant("port"), None);
        assert_eq!(meant_of_cluster("retention.lag"), Some("retention.log"));
        assert_eq!(meant_of_cluster("inbox"), Some("retention.inbox"));
        assert_eq!(meant_of_cluster("colour"), None);
    }
}
