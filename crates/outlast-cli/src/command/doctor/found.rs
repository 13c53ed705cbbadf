//! One finding.

use outlast_core::broker::{Finding, Severity};
use serde::Serialize;

/// What was found of one thing.
#[derive(Debug, Serialize)]
pub(super) struct Found {
    #[serde(serialize_with = "named")]
    pub(super) severity: Severity,
    /// Of what: the database, a broker, a route, a consumer.
    pub(super) of: String,
    /// Which thing of it.
    pub(super) about: String,
    /// What is effective.
    pub(super) found: String,
    /// Why it matters, and what mends it. Empty where nothing is to be done.
    pub(super) mend: String,
}

impl Found {
    pub(super) fn new(
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
    pub(super) fn of(of: &str, finding: Finding) -> Self {
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
    pub(super) fn word(&self) -> &'static str {
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
