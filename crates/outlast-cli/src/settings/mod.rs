//! Settings of the process: defaults < file < environment < flags, with the origin of each, all problems at once.

pub(crate) mod brokers;
pub(crate) mod cluster;
pub(crate) mod keys;
mod layers;

use std::path::Path;

use clap::Args;
use outlast_engine::{Settings, Worker};
use outlast_postgres::{Error, connect::Target, schema::Schema};

use crate::{
    args::Global,
    out::text,
    problem::{Answer, Problem, Tried},
};
use layers::Layers;

/// For commands whose settings matter.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Set {
    /// Set one setting, such as lease=30s; `outlast config default` lists them
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

/// Where a value comes from, as a person reads it: `default`, `outlast.toml:3`, `OUTLAST_LEASE`, `--set`.
pub(crate) type Origin = String;

/// Where the layers stand on: the defaults, or what the code of a user's binary says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Base {
    settings: Settings,
    database: Option<String>,
}

impl Base {
    pub(crate) fn of<S: Clone + Send + Sync + 'static>(worker: &Worker<S>) -> Self {
        let described = worker.described();
        let mut settings = described.settings.clone();
        if described.schema != Schema::DEFAULT.name() {
            settings.schema = Some(described.schema.to_owned());
        }
        Self {
            settings,
            database: described.database.map(str::to_owned),
        }
    }
}

/// What is in force.
#[derive(Debug)]
pub(crate) struct Effective {
    pub(crate) settings: Settings,
    /// None: libpq's variables say, if anything does.
    database: Option<(String, Origin)>,
    layers: Layers,
}

impl Effective {
    /// Reads all layers above `base`.
    ///
    /// # Errors
    /// A problem with everything that is wrong, exit code 2.
    pub(crate) fn load(global: &Global, set: &Set, base: &Base) -> Answer<Self> {
        let layers = Layers::read(global, &set.set, base);
        let mut problems = layers.problems.clone();
        problems.extend(layers.settings.validate().err().iter().flat_map(parts));
        if let Some((url, origin)) = &layers.database {
            let wrong = Target::parse(url).err();
            problems.extend(
                wrong
                    .iter()
                    .flat_map(parts)
                    .map(|part| format!("database ({origin}): {part}")),
            );
        }
        if problems.is_empty() {
            Ok(Self {
                settings: layers.settings.clone(),
                database: layers.database.clone(),
                layers,
            })
        } else {
            Err(Problem::of_configuration(problems))
        }
    }

    /// The file that is, or would be, read; as a person may see it.
    pub(crate) fn file(&self, global: &Global) -> String {
        let path = global.config.as_deref();
        text::line(
            &path
                .unwrap_or(Path::new(layers::FILE))
                .display()
                .to_string(),
        )
    }

    /// What the file says about the cluster.
    pub(crate) fn cluster(&self) -> Option<&cluster::Section> {
        self.layers.cluster.as_ref()
    }

    /// The brokers of this process.
    pub(crate) fn brokers(&self) -> &brokers::Brokers {
        &self.layers.brokers
    }

    /// The database, for the worker; none when libpq's variables say.
    pub(crate) fn database(&self) -> Option<&str> {
        self.database.as_ref().map(|(url, _)| url.as_str())
    }

    /// The schema to work in.
    pub(crate) fn schema(&self) -> Schema {
        // Invariant: what cannot be a schema was refused with the other settings.
        let named = self.settings.schema.as_deref().map(Schema::named);
        named.and_then(Result::ok).unwrap_or_default()
    }

    /// Where the database is.
    pub(crate) fn target(&self) -> Answer<Target> {
        let target = match self.database() {
            Some(url) => Target::parse(url),
            None => Target::from_env(),
        };
        Ok(target.tried("find the database")?.schema(self.schema()))
    }

    /// Every key with its value, as it would stand in the file, and its origin. Secrets are left out.
    pub(crate) fn entries(&self) -> Vec<(String, Option<toml::Value>, Origin)> {
        let values = keys::table(&self.settings);
        let entry = |name| match name {
            keys::DATABASE => {
                let origin = self
                    .database
                    .as_ref()
                    .map_or("the PG… variables", |(_, origin)| origin)
                    .to_owned();
                // A target prints itself without its password.
                match self.target() {
                    Ok(target) => {
                        let shown = target.schema(Schema::DEFAULT).to_string();
                        (name.to_owned(), Some(toml::Value::String(shown)), origin)
                    }
                    Err(_) => (name.to_owned(), None, "default".to_owned()),
                }
            }
            name => (
                name.to_owned(),
                values.get(name).cloned(),
                self.layers.origin(name),
            ),
        };
        keys::names().map(entry).chain(self.jobs(&values)).collect()
    }

    /// What is said of the jobs of each name.
    fn jobs(&self, values: &toml::Table) -> Vec<(String, Option<toml::Value>, Origin)> {
        let jobs = values.get(keys::JOB).and_then(toml::Value::as_table);
        let mut entries = Vec::new();
        for (name, job) in jobs.into_iter().flatten() {
            for (key, value) in job.as_table().into_iter().flatten() {
                let origin = self.layers.origin(keys::JOB);
                entries.push((format!("job.{name}.{key}"), Some(value.clone()), origin));
            }
        }
        entries
    }
}

/// The engine joins what it found into one sentence.
fn parts(error: &Error) -> Vec<String> {
    match error {
        Error::Config(problems) => problems.split("; ").map(str::to_owned).collect(),
        other => vec![other.to_string()],
    }
}
