//! The settings of a process: times and bounds, with the defaults in one place.
//!
//! What belongs to the whole installation (retention, pauses) lives in the database, not here.

pub use outlast_core::duration;

mod job;

pub use job::JobSettings;

use outlast_core::job::Options;
use outlast_postgres::{Error, event::PAYLOAD_LIMIT, schema::Schema};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};

/// Times and bounds of a worker. In `outlast.toml` times are written `"15s"`, `"500ms"`, `"5m"`.
///
/// ```
/// # use outlast_engine::Settings;
/// # use std::time::Duration;
/// let settings = Settings { deadline: Duration::from_secs(120), ..Settings::default() };
/// settings.validate()?;
/// # Ok::<(), outlast_postgres::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The name of this deployment; must equal the database's (`outlast migrate --deployment`). Without one it is a
    /// development database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deployment: Option<String>,
    /// The schema to work in. Without one it is the handle's: `outlast`, unless the code says otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// How long a claim is ours without renewal. A dead process's work waits that long. 15 s.
    #[serde(with = "duration")]
    pub lease: Duration,
    /// No lease is longer; one that ends further away counts as lapsed. 5 min.
    #[serde(with = "duration")]
    pub longest_lease: Duration,
    /// How long one try of a handler may take. 60 s.
    #[serde(with = "duration")]
    pub deadline: Duration,
    /// How long a handler may go on after its deadline before it counts as failed. 5 s.
    #[serde(with = "duration")]
    pub grace: Duration,
    /// After how many failed tries an event is quarantined, and a job stopped: a person must look. 8.
    pub attempts: u32,
    /// How long to wait for running handlers when the worker stops. 25 s.
    #[serde(with = "duration")]
    pub drain: Duration,
    /// How many handlers of one consumer, or of the jobs of one name, run at once, unless it says otherwise. 8.
    pub concurrency: usize,
    /// The most events in one batch. 1,000.
    pub batch_rows: usize,
    /// The most payload bytes in one claim. 4 MB.
    pub batch_bytes: usize,
    /// The most rows looked at in one claim. 10,000.
    pub scanned_rows: usize,
    /// How long the first completions of a claim of jobs wait for others, so that quick ones are written together, with the end of
    /// the claim. A job that was done may run again if its worker dies meanwhile. 10 ms.
    #[serde(with = "duration")]
    pub flush: Duration,
    /// How often an idle process says that it is alive. 5 s.
    #[serde(with = "duration")]
    pub heartbeat: Duration,
    /// The most connections of the engine; the pools of your handlers are yours. 4.
    pub connections: usize,
    /// How jobs are run, by name: `[job.send_receipt]`. It has the last word over what the code says.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub job: BTreeMap<String, JobSettings>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            deployment: None,
            schema: None,
            lease: Duration::from_secs(15),
            longest_lease: Duration::from_mins(5),
            deadline: Duration::from_secs(60),
            grace: Duration::from_secs(5),
            attempts: 8,
            drain: Duration::from_secs(25),
            concurrency: 8,
            batch_rows: 1000,
            batch_bytes: 4 * 1024 * 1024,
            scanned_rows: 10_000,
            flush: Duration::from_millis(10),
            heartbeat: Duration::from_secs(5),
            connections: 4,
            job: BTreeMap::new(),
        }
    }
}

impl Settings {
    /// Checks every value and how they fit together.
    ///
    /// # Errors
    /// [`Error::Config`] with every problem, not only the first.
    pub fn validate(&self) -> Result<(), Error> {
        let problems = self.problems();
        if problems.is_empty() {
            Ok(())
        } else {
            Err(Error::Config(problems.join("; ")))
        }
    }

    /// How the jobs of a name are run, where the code says this.
    pub fn options_of(&self, name: &str, code: &Options) -> Options {
        let told = self.job.get(name).map(|job| job.over(code));
        let mut options = told.unwrap_or_else(|| code.clone());
        options.attempts = options.attempts.or(Some(self.attempts));
        options
    }

    pub(crate) fn problems(&self) -> Vec<String> {
        const LONGEST: Duration = Duration::from_mins(5);
        let show = duration::show;
        let mut problems = Vec::new();
        if let Some(Err(Error::Config(why))) = self.schema.as_deref().map(Schema::named) {
            problems.push(why);
        }
        let mut require = |holds: bool, problem: String| {
            if !holds {
                problems.push(problem);
            }
        };
        let between = |what: &str, is: usize, least: usize, most: usize| {
            (
                (least..=most).contains(&is),
                format!("{what} is {is}, not between {least} and {most}"),
            )
        };
        require(
            self.longest_lease <= LONGEST,
            format!(
                "longest_lease is {}, over the {} that every process agrees on",
                show(self.longest_lease),
                show(LONGEST)
            ),
        );
        require(
            self.lease >= Duration::from_millis(500) && self.lease <= self.longest_lease,
            format!(
                "lease is {}, not between 500ms and longest_lease ({})",
                show(self.lease),
                show(self.longest_lease)
            ),
        );
        require(
            self.flush <= self.lease / 6,
            format!(
                "flush is {}, over a sixth of lease: completions could come too late",
                show(self.flush)
            ),
        );
        require(
            !self.heartbeat.is_zero() && self.heartbeat <= self.longest_lease / 4,
            format!(
                "heartbeat is {}, not between 1ms and a quarter of longest_lease",
                show(self.heartbeat)
            ),
        );
        require(!self.deadline.is_zero(), "deadline is 0".into());
        require(
            self.drain >= self.grace,
            format!(
                "drain is {}, shorter than grace ({}): a stop would cut handlers off",
                show(self.drain),
                show(self.grace)
            ),
        );
        for (holds, problem) in [
            between("attempts", self.attempts as usize, 1, 1000),
            between("concurrency", self.concurrency, 1, 10_000),
            between("batch_rows", self.batch_rows, 1, 1000),
            // A claim must have room for one event.
            between(
                "batch_bytes",
                self.batch_bytes,
                PAYLOAD_LIMIT,
                64 * 1024 * 1024,
            ),
            between(
                "scanned_rows",
                self.scanned_rows,
                self.batch_rows,
                1_000_000,
            ),
            between("connections", self.connections, 2, 100),
        ] {
            require(holds, problem);
        }
        for (name, job) in &self.job {
            let told = job.over(&Options::new()).problems();
            problems.extend(told.into_iter().map(|why| format!("job.{name}: {why}")));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_survive_a_file() {
        let settings = Settings::default();
        assert_eq!(settings.problems(), Vec::<String>::new());
        let file = toml::to_string(&settings).unwrap();
        assert!(
            file.contains("lease = \"15s\"") && file.contains("longest_lease = \"5m\""),
            "{file}"
        );
        assert_eq!(toml::from_str::<Settings>(&file).unwrap(), settings);
    }

    #[test]
    fn a_file_names_only_what_differs() {
        let settings: Settings =
            toml::from_str("lease = \"500ms\"\nflush = \"5ms\"\nconcurrency = 50").unwrap();
        let expected = Settings {
            lease: Duration::from_millis(500),
            flush: Duration::from_millis(5),
            concurrency: 50,
            ..Settings::default()
        };
        assert_eq!(settings, expected);
    }

    #[test]
    fn an_unknown_setting_is_refused_and_the_known_ones_are_told() {
        let error = toml::from_str::<Settings>("leese = \"15s\"")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("unknown field `leese`") && error.contains("`lease`"),
            "{error}"
        );
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let settings = Settings {
            lease: Duration::from_mins(10),
            grace: Duration::from_secs(30),
            attempts: 0,
            batch_bytes: 1,
            connections: 1,
            ..Settings::default()
        };
        let why = settings.validate().unwrap_err().to_string();
        for name in [
            "lease is 10m",
            "drain is 25s",
            "attempts is 0",
            "batch_bytes is 1",
            "connections is 1",
        ] {
            assert!(why.contains(name), "{name} is missing in: {why}");
        }
    }
}
