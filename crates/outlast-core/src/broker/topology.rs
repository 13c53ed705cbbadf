//! What has to be there at a broker, and what a server says of what is there.

use super::Subscription;

/// What a relay's route or a consumer needs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Topology {
    /// A topic that can be published to.
    Topic {
        /// Its name.
        topic: String,
        /// Keys are kept in order on it.
        ordered: bool,
    },
    /// A subscription that can be read.
    Subscription(Subscription),
}

impl Topology {
    /// A topic that can be published to.
    pub fn topic(topic: impl Into<String>, ordered: bool) -> Self {
        let topic = topic.into();
        Self::Topic { topic, ordered }
    }
}

/// Whether what is missing is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ensure {
    /// Made, with settings that keep what is promised. What is there is never changed.
    Create,
    /// Only looked at.
    Verify,
}

/// One thing that a server says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// About what: a topic, a subscription, a setting.
    pub about: String,
    /// What the server says.
    pub found: String,
    /// Why it matters, and what mends it. Empty where nothing is to be done.
    pub advice: String,
    /// There is nothing of it, and [`Ensure::Create`] would make it.
    pub missing: bool,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// As it should be.
    Good,
    /// It could not be read; nobody knows.
    Unverified,
    /// It works, and something promised elsewhere does not hold here.
    Warning,
    /// It is missing, or loses messages.
    Bad,
}

impl Finding {
    /// A finding of this severity.
    pub fn new(
        severity: Severity,
        about: impl Into<String>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            severity,
            about: about.into(),
            found: found.into(),
            advice: advice.into(),
            missing: false,
        }
    }

    /// The same finding, of something that is not there and can be made.
    pub fn missing(mut self) -> Self {
        self.missing = true;
        self
    }
}
