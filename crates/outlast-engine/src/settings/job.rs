//! How the jobs of one name are run, as a file says it: `[job.NAME]`.

use std::time::Duration;

use outlast_core::{backoff::Backoff, duration, job::Options};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// What a file says about the jobs of one name. What it does not say is as the code says.
///
/// ```
/// # use outlast_engine::Settings;
/// # use std::time::Duration;
/// let settings: Settings = toml::from_str(r#"
///     [job.send_receipt]
///     concurrency = 20
///     deadline = "2m"
/// "#)?;
/// assert_eq!(settings.job["send_receipt"].concurrency, Some(20));
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JobSettings {
    /// How long one try may take.
    #[serde(with = "told", skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Duration>,
    /// How many tries there are before a person must look.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// The longest pause after the first failure; it doubles with each. 1 s.
    #[serde(with = "told", skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Duration>,
    /// The longest pause at all. 10 min.
    #[serde(with = "told", skip_serializing_if = "Option::is_none")]
    pub backoff_most: Option<Duration>,
    /// How many one process runs at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<usize>,
}

impl JobSettings {
    /// What these and the code say together.
    pub(super) fn over(&self, code: &Options) -> Options {
        let mut options = code.clone();
        options.deadline = self.deadline.or(code.deadline);
        options.attempts = self.attempts.or(code.attempts);
        options.concurrency = self.concurrency.or(code.concurrency);
        if self.backoff.or(self.backoff_most).is_some() {
            let said = code.backoff.unwrap_or_default();
            options.backoff = Some(Backoff {
                first: self.backoff.unwrap_or(said.first),
                most: self.backoff_most.unwrap_or(said.most),
            });
        }
        options
    }
}

/// A duration that need not be there.
mod told {
    use super::*;

    pub(super) fn serialize<S: Serializer>(
        told: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match told {
            Some(told) => duration::serialize(told, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        let text = String::deserialize(deserializer)?;
        duration::parse(&text).map(Some).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;

    #[test]
    fn a_file_has_the_last_word_over_the_code() {
        let file = "[job.greet]\nattempts = 3\nbackoff = \"5s\"";
        let settings: Settings = toml::from_str(file).unwrap();
        assert_eq!(settings.problems(), Vec::<String>::new());
        let code = Options::new().attempts(5).concurrency(2);
        let greet = settings.options_of("greet", &code);
        assert_eq!((greet.attempts, greet.concurrency), (Some(3), Some(2)));
        assert_eq!(
            greet.backoff.map(|b| (b.first.as_secs(), b.most.as_secs())),
            Some((5, 600))
        );
        assert_eq!(settings.options_of("other", &code).attempts, Some(5));
        let silent = settings.options_of("other", &Options::new());
        assert_eq!(silent.attempts, Some(settings.attempts));
    }

    #[test]
    fn what_is_senseless_is_told_with_its_name() {
        let settings: Settings =
            toml::from_str("[job.greet]\nconcurrency = 0\nbackoff = \"20m\"").unwrap();
        let problems = settings.problems();
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems.iter().all(|why| why.starts_with("job.greet: ")));
        let unknown = toml::from_str::<Settings>("[job.greet]\nconcurency = 1");
        assert!(unknown.unwrap_err().to_string().contains("concurency"));
    }
}
