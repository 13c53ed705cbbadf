//! Where a reader of the log begins.

use serde::{Deserialize, Serialize};

/// Where a new consumer begins to read. Recorded when it is registered for the first time; later it changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Start {
    /// At what is emitted from now on.
    #[default]
    Now,
    /// At the oldest event that is still kept.
    Earliest,
}

impl Start {
    /// Its word in SQL and in files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Now => "now",
            Self::Earliest => "earliest",
        }
    }
}
