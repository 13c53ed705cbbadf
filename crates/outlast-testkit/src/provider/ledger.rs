//! The provider's own books: one JSON object a line, on disk before anybody is told.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One request that was accepted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The idempotency key, if there was one.
    pub key: Option<String>,
    /// True: the key was known, and no second mail was sent.
    pub repeat: bool,
    /// When, in milliseconds of the Unix epoch.
    pub at_ms: u64,
    /// What was asked for: JSON as it is, anything else as a string.
    pub body: Value,
}

#[derive(Debug)]
pub(super) struct Ledger {
    book: Book,
    known: HashSet<String>,
}

impl Ledger {
    /// Opens or makes it; the keys of an earlier run are known.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let (book, known) = Book::open::<Line>(path)?;
        let known = known.into_iter().filter_map(|line| line.key).collect();
        Ok(Self { book, known })
    }

    pub(super) fn knows(&self, key: &str) -> bool {
        self.known.contains(key)
    }

    /// Durable when it returns.
    pub(super) fn enter(
        &mut self,
        key: Option<String>,
        repeat: bool,
        body: Value,
    ) -> io::Result<()> {
        let line = Line {
            key,
            repeat,
            at_ms: now_ms(),
            body,
        };
        self.book.write(&line)?;
        self.known.extend(line.key);
        Ok(())
    }
}

/// A file of JSON lines, each on disk before anybody is told.
#[derive(Debug)]
pub(super) struct Book(File);

impl Book {
    /// Opens or makes it; answers what an earlier run has written, and cuts off a line that it died in.
    pub(super) fn open<T: DeserializeOwned>(path: &Path) -> io::Result<(Self, Vec<T>)> {
        let known = if path.exists() {
            read(path)?
        } else {
            Vec::new()
        };
        let file = File::options().create(true).append(true).open(path)?;
        let whole = fs::read(path)?.iter().rposition(|byte| *byte == b'\n');
        file.set_len(whole.map_or(0, |end| end as u64 + 1))?;
        Ok((Self(file), known))
    }

    /// Durable when it returns.
    pub(super) fn write(&mut self, line: &impl Serialize) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.0.write_all(&text)?;
        self.0.sync_data()
    }
}

/// In milliseconds of the Unix epoch.
pub(super) fn now_ms() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// All lines. A last one without its end was never confirmed to anybody: the provider died while it wrote.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Vec<T>> {
    let text = fs::read_to_string(path)?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole
        .lines()
        .map(|line| Ok(serde_json::from_str(line)?))
        .collect()
}
