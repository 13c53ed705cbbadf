//! What the clients saw: on disk before a request is sent, and again when its answer has come.
//!
//! One thread writes for all clients, so that one fsync serves all who wait for it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc;
use std::thread;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Entry {
    /// Written before the request leaves.
    Sent { request: String, intent: Intent },
    /// Written when it is over. No status: no answer came.
    Answered {
        request: String,
        status: Option<u16>,
    },
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Intent {
    Book { guest: String, total: String },
    Deliver { sha256: String },
}

type Line = (Vec<u8>, oneshot::Sender<()>);

#[derive(Debug)]
pub(crate) struct Journal {
    lines: mpsc::Sender<Line>,
}

impl Journal {
    pub(crate) fn create(path: &Path) -> anyhow::Result<Self> {
        let file = File::create_new(path).with_context(|| format!("make {}", path.display()))?;
        let (lines, inbox) = mpsc::channel();
        thread::spawn(move || {
            if let Err(error) = write(file, &inbox) {
                // Whoever waits for a line is told by its sender's end.
                eprintln!("demo: the journal cannot be written: {error}");
            }
        });
        Ok(Self { lines })
    }

    /// Durable when it returns.
    pub(crate) async fn write(&self, entry: &Entry) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        let (written, wait) = oneshot::channel();
        self.lines
            .send((line, written))
            .context("the journal is closed")?;
        wait.await.context("the journal is closed")
    }
}

fn write(mut file: File, inbox: &mpsc::Receiver<Line>) -> io::Result<()> {
    while let Ok(first) = inbox.recv() {
        let lines: Vec<Line> = [first].into_iter().chain(inbox.try_iter()).collect();
        let text: Vec<u8> = lines.iter().flat_map(|(line, _)| line).copied().collect();
        file.write_all(&text)?;
        file.sync_data()?;
        for (_, written) in lines {
            // A client that was stopped waits no more.
            let _ = written.send(());
        }
    }
    Ok(())
}

pub(crate) fn read(path: &Path) -> anyhow::Result<Vec<Entry>> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let line = |line| serde_json::from_str(line).with_context(|| format!("read the line {line}"));
    text.lines().map(line).collect()
}
