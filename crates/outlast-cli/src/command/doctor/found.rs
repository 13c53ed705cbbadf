//! One finding.

use outlast_core::broker::{Finding, Severity};
use serde::Serialize;

/// What was found of one thing.
#[derive(Debug, Serialize)]
pub(in crate::command) struct Found {
    #[serde(serialize_with = "named")]
    pub(in crate::command) severity: Severity,
    /// Of what: the database, a broker, a route, a consumer.
    pub(in crate::command) of: String,
    /// Which thing of it.
    pub(in crate::command) about: String,
    /// What is effective.
    pub(in crate::command) found: String,
    /// Why it matters, and what mends it. Empty where nothing is to be done.
    pub(in crate::command) mend: String,
}

impl Found {
    pub(in crate::command) fn new(
        severity: Severity,
        of: impl Into<String>,
        about: impl Into<String>,
        found: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self {
            severity,
            of: of.into(),
            about: about.into(),
            found: found.into(),
            mend: mend.into(),
        }
    }

    /// What an adapter has found.
    pub(in crate::command) fn of(of: &str, finding: Finding) -> Self {
        let Finding {
            severity,
            about,
            found,
            advice,
            ..
        } = finding;
        Self::new(severity, of, about, found, advice)
    }

    /// For people.
    pub(in crate::command) fn word(&self) -> &'static str {
        match self.severity {
            Severity::Good => "ok",
            Severity::Unverified => "unverified",
            Severity::Warning => "warning",
            Severity::Bad => "BAD",
        }
    }
}

fn named<S: serde::Serializer>(severity: &Severity, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(match severity {
        Severity::Good => "good",
        Severity::Unverified => "unverified",
        Severity::Warning => "warning",
        Severity::Bad => "bad",
    })
}
