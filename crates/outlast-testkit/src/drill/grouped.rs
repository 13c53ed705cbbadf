//! A journal for very many lines: those that come while others are on their way to the disk go there together.

use std::{
    fs::File,
    io::{self, Write},
    path::Path,
    sync::Arc,
};

use serde::Serialize;
use tokio::{
    sync::{mpsc, oneshot},
    task::spawn_blocking,
};

/// How many lines wait for the disk together at most.
const AT_ONCE: usize = 1000;

type Line = (Vec<u8>, oneshot::Sender<()>);

/// Lines of JSON, each on disk before its writer goes on.
#[derive(Debug)]
pub(super) struct Grouped(mpsc::UnboundedSender<Line>);

impl Grouped {
    pub(super) fn create(folder: &Path, name: &str) -> io::Result<Self> {
        let path = folder.join(format!("{name}.jsonl"));
        let file = Arc::new(File::options().create(true).append(true).open(path)?);
        // Unbounded, but each writer waits for its line.
        let (lines, mut rest) = mpsc::unbounded_channel::<Line>();
        tokio::spawn(async move {
            let mut group = Vec::new();
            while rest.recv_many(&mut group, AT_ONCE).await > 0 {
                let (texts, writers): (Vec<_>, Vec<_>) = group.drain(..).unzip();
                let (mut to, text) = (file.clone(), texts.concat());
                let write = move || to.write_all(&text).and_then(|()| to.sync_data());
                spawn_blocking(write)
                    .await
                    .map_err(io::Error::other)
                    .and_then(|written| written)
                    .expect("a journal must be on disk, or it proves nothing");
                // Whoever has gone away meanwhile hears of nothing, and has said nothing.
                writers.into_iter().for_each(|writer| _ = writer.send(()));
            }
        });
        Ok(Self(lines))
    }

    /// Durable when it returns.
    pub(super) async fn write(&self, line: &impl Serialize) {
        let mut text = serde_json::to_vec(line).expect("a line can be JSON");
        text.push(b'\n');
        let (written, on_disk) = oneshot::channel();
        let sent = self.0.send((text, written));
        sent.expect("the journal's task lives as long as the journal");
        on_disk.await.expect("the journal's task answers");
    }
}
