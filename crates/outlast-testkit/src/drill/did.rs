//! The events of all drills, and the journals in which drills say what they did.

use std::{
    fs::File,
    io::{self, Write},
    path::Path,
    sync::{Mutex, PoisonError},
};

use outlast_core::Event;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Something a client did.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Did {
    /// Which intent, as its client counts.
    pub(super) n: i64,
    pub(super) text: String,
}

impl Event for Did {
    const NAME: &'static str = "drill.did";

    fn key(&self) -> Option<String> {
        Some(format!("thing/{}", self.n % 7))
    }
}

impl Did {
    /// Of any length and script.
    pub(super) fn new(n: i64, rng: &mut fastrand::Rng) -> Self {
        let letters = ['a', 'Z', '"', '\\', 'é', '→', '😀', '\u{200d}', ' ', '\n'];
        let text = (0..rng.usize(..200))
            .filter_map(|_| rng.choice(letters))
            .collect();
        Self { n, text }
    }

    /// SHA-256 of the bytes that a faithful log holds.
    pub(super) fn digest(&self) -> String {
        digest(self)
    }
}

/// What follows from it: one of several.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Child {
    /// No client counts so far.
    n: i64,
    text: String,
}

impl Event for Child {
    const NAME: &'static str = "drill.child";
}

impl Child {
    pub(super) fn new(did: &Did, nth: i64) -> Self {
        let n = 1_000_000_000_000 + did.n * 100 + nth;
        let text = format!("{nth} of {}", did.n);
        Self { n, text }
    }
}

/// What a drill's handler is given.
pub(super) trait Deed: Event + Serialize + Send + Sync + 'static {
    /// The number in it.
    fn n(&self) -> i64;
}

impl Deed for Did {
    fn n(&self) -> i64 {
        self.n
    }
}

impl Deed for Child {
    fn n(&self) -> i64 {
        self.n
    }
}

/// SHA-256 of the bytes that a faithful log holds.
pub(super) fn digest(deed: &impl Serialize) -> String {
    let bytes = serde_json::to_vec(deed).expect("a number and a string can be JSON");
    let hash = Sha256::digest(&bytes);
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A file of JSON lines, each on disk before the next step is taken.
#[derive(Debug)]
pub(super) struct Journal(Mutex<File>);

impl Journal {
    pub(super) fn create(folder: &Path, name: &str) -> io::Result<Self> {
        let path = folder.join(format!("{name}.jsonl"));
        let file = File::options().create(true).append(true).open(path)?;
        Ok(Self(Mutex::new(file)))
    }

    /// Durable when it returns. One write, so that a death leaves a line whole or without its end.
    pub(super) fn write(&self, line: &impl Serialize) {
        let mut text = serde_json::to_vec(line).expect("a line can be JSON");
        text.push(b'\n');
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(&text)
            .and_then(|()| file.sync_data())
            .expect("a journal must be on disk, or it proves nothing");
    }
}
