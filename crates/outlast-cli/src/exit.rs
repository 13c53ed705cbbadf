//! How a command ends: the exit codes, which scripts may rely on. The list in `docs/cli.md` is tested against this one.

use std::process::ExitCode;

/// What the exit code of every command means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done, and nothing is wrong.
    Done = 0,
    /// The command worked and found something that is not as it should be.
    Found = 1,
    /// The command line or the configuration is wrong; nothing was tried.
    Usage = 2,
    /// No connection to the database came about.
    Connect = 3,
    /// The schema is missing, older than this program needs, or newer than it knows.
    Schema = 4,
    /// Nobody may work on this database until a person has looked, or it is a standby.
    Stopped = 5,
    /// Somebody else uses what this command needs, and did not let go in time.
    InUse = 6,
    /// The database or the system refused on the way.
    Failed = 7,
    /// Stopped at once: by a second signal, or because the time to drain was over.
    Cut = 8,
}

impl Exit {
    pub(crate) const ALL: [Self; 9] = [
        Self::Done,
        Self::Found,
        Self::Usage,
        Self::Connect,
        Self::Schema,
        Self::Stopped,
        Self::InUse,
        Self::Failed,
        Self::Cut,
    ];

    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    /// One line for the help and the docs.
    pub(crate) fn means(self) -> &'static str {
        match self {
            Self::Done => "done, nothing is wrong",
            Self::Found => "done, and something was found that is not as it should be",
            Self::Usage => "wrong command line or configuration; nothing was tried",
            Self::Connect => "no connection to the database",
            Self::Schema => "the schema is missing, too old or too new for this program",
            Self::Stopped => "a person must look at this database first, or it is a standby",
            Self::InUse => "somebody else uses what this command needs",
            Self::Failed => "the database or the system refused on the way",
            Self::Cut => "stopped at once by a second signal, or when the time to drain was over",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
