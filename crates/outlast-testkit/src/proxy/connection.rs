//! One connection through the proxy: two pumps that share what they know about the statements on the way.
//!
//! Each simple query and each Sync is answered by one ReadyForQuery. So the statements between two of them are one
//! *unit*, and the units wait for their answers in order, however many the client sends ahead.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, BufWriter};
use tokio::sync::{Notify, watch};

use super::rule::{Fault, Rules, Shot};
use super::wire::{First, Message, Statements};

pub(super) type Reader = Box<dyn AsyncRead + Send + Unpin>;
pub(super) type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// Statements that one ReadyForQuery answers.
#[derive(Debug, Default)]
struct Unit {
    shot: Option<Shot>,
    /// Ended by Sync, not a simple query: a COPY from the client makes the server ignore that Sync.
    by_sync: bool,
}

#[derive(Debug, Default)]
struct Way {
    /// Sent completely, not answered.
    sent: VecDeque<Unit>,
    /// The client has not sent its Sync yet.
    open: Unit,
    /// The server waits for the client's data, and ignores Sync until that has ended.
    copying: bool,
    /// Nothing passes any more until it is released.
    silence: Option<Shot>,
    /// Notifications do not pass any more.
    deaf: bool,
}

/// Waits while nothing may pass.
async fn silence(way: &Mutex<Way>) {
    let silence = lock(way).silence.clone();
    if let Some(mut shot) = silence {
        shot.released().await;
    }
}

/// Both directions, until one side ends or a fault ends both.
pub(super) async fn carry(
    client: (Reader, Writer),
    server: (Reader, Writer),
    rules: Rules,
    frozen: watch::Receiver<bool>,
) -> io::Result<()> {
    let way = Arc::new(Mutex::new(Way::default()));
    let hang_up = Arc::new(Notify::new());
    let mut requests = Requests {
        client: BufReader::new(client.0),
        server: BufWriter::new(server.1),
        statements: Statements::default(),
        rules,
        way: Arc::clone(&way),
        hang_up: Arc::clone(&hang_up),
        frozen: frozen.clone(),
    };
    let mut answers = client.1;
    let Some(startup) = first(&mut requests.client, &mut answers).await? else {
        return Ok(());
    };
    requests.thawed().await;
    if startup.first() == First::Startup {
        // Answered by a ReadyForQuery as well.
        lock(&way).sent.push_back(Unit::default());
    }
    requests.server.write_all(&startup.bytes).await?;
    requests.server.flush().await?;
    let mut replies = Replies {
        server: BufReader::new(server.0),
        client: BufWriter::new(answers),
        gone: false,
        way,
        hang_up,
        frozen,
    };
    let answering = replies.pump();
    tokio::pin!(answering);
    tokio::select! {
        end = requests.pump() => match end {
            Ok(End::Fault) => Ok(()),
            // The client has ended, or the server takes nothing more: what the server still says passes.
            Ok(End::Client) | Err(_) => answering.await,
        },
        end = &mut answering => end,
    }
}

/// The startup message. Encryption is refused, because we must be able to read.
async fn first(
    client: &mut (impl AsyncRead + Unpin),
    answers: &mut Writer,
) -> io::Result<Option<Message>> {
    loop {
        let Ok(message) = Message::read_first(client).await else {
            return Ok(None);
        };
        if message.first() != First::Encryption {
            return Ok(Some(message));
        }
        answers.write_all(b"N").await?;
        answers.flush().await?;
    }
}

#[derive(PartialEq, Eq)]
enum End {
    Client,
    Fault,
}

struct Requests {
    client: BufReader<Reader>,
    server: BufWriter<Writer>,
    statements: Statements,
    rules: Rules,
    way: Arc<Mutex<Way>>,
    /// Tells the other direction to close the client's side.
    hang_up: Arc<Notify>,
    frozen: watch::Receiver<bool>,
}

impl Requests {
    async fn pump(&mut self) -> io::Result<End> {
        while let Ok(Some(message)) = Message::read(&mut self.client).await {
            self.thawed().await;
            silence(&self.way).await;
            let shot = self
                .statements
                .follow(&message)
                .and_then(|text| self.rules.meet(&text));
            if let Some(mut shot) = shot {
                match shot.fault {
                    Fault::DropRequest => {
                        shot.fire();
                        return Ok(End::Fault);
                    }
                    Fault::HoldRequest => {
                        // What was sent before it is not held.
                        self.server.flush().await?;
                        shot.fire();
                        held(&mut shot, &self.hang_up).await;
                    }
                    Fault::DropReply | Fault::HoldReply | Fault::Silence | Fault::Deafen => {}
                }
                lock(&self.way).open.shot = Some(shot);
            }
            self.note(&message);
            self.server.write_all(&message.bytes).await?;
            if self.client.buffer().is_empty() {
                self.server.flush().await?;
            }
        }
        self.server.shutdown().await?;
        Ok(End::Client)
    }

    fn note(&self, message: &Message) {
        let mut way = lock(&self.way);
        match message.tag {
            // A simple query, a function call, a Sync: a ReadyForQuery will come.
            b'S' if way.copying => {}
            b'Q' | b'F' | b'S' => {
                let unit = Unit {
                    by_sync: message.tag == b'S',
                    ..std::mem::take(&mut way.open)
                };
                way.sent.push_back(unit);
            }
            // CopyDone, CopyFail.
            b'c' | b'f' => way.copying = false,
            _ => {}
        }
    }

    async fn thawed(&mut self) {
        let _ = self.frozen.wait_for(|frozen| !frozen).await;
    }
}

/// Until it is released; meanwhile the test may hang up on the client.
async fn held(shot: &mut Shot, hang_up: &Notify) {
    let mut other = shot.clone();
    tokio::select! {
        () = shot.released() => return,
        () = other.hung_up() => hang_up.notify_one(),
    }
    shot.released().await;
}

struct Replies {
    server: BufReader<Reader>,
    client: BufWriter<Writer>,
    /// Nobody reads any more. What was sent is carried through all the same.
    gone: bool,
    way: Arc<Mutex<Way>>,
    hang_up: Arc<Notify>,
    frozen: watch::Receiver<bool>,
}

impl Replies {
    async fn pump(&mut self) -> io::Result<()> {
        // The answer to a unit whose reply is dropped or held, as far as it came.
        let mut kept = Vec::new();
        let mut tag = String::new();
        while let Some(message) = self.next().await? {
            let _ = self.frozen.wait_for(|frozen| !frozen).await;
            silence(&self.way).await;
            match message.tag {
                b'A' if lock(&self.way).deaf => continue,
                b'C' => tag = message.command_tag(),
                b'E' => tag = message.sqlstate(),
                b'G' | b'W' => self.note_copy(),
                _ => {}
            }
            let shot = self.shot();
            let fault = shot.as_ref().map(|shot| shot.fault);
            if matches!(fault, Some(Fault::DropReply | Fault::HoldReply)) {
                kept.extend_from_slice(&message.bytes);
            } else {
                self.pass(&message.bytes).await;
            }
            if message.tag != b'Z' {
                continue;
            }
            lock(&self.way).sent.pop_front();
            if let Some(mut shot) = shot {
                shot.answer(std::mem::take(&mut tag));
                match shot.fault {
                    Fault::DropReply => return Ok(()),
                    Fault::HoldReply => shot.released().await,
                    Fault::Silence => lock(&self.way).silence = Some(shot),
                    Fault::Deafen => lock(&self.way).deaf = true,
                    Fault::DropRequest | Fault::HoldRequest => {}
                }
                self.pass(&std::mem::take(&mut kept)).await;
            }
        }
        self.client.shutdown().await
    }

    async fn next(&mut self) -> io::Result<Option<Message>> {
        // Reading goes on where it was: half a message is not lost.
        let reading = Message::read(&mut self.server);
        tokio::pin!(reading);
        loop {
            tokio::select! {
                message = &mut reading => return message,
                () = self.hang_up.notified() => {
                    let _ = self.client.shutdown().await;
                    self.gone = true;
                }
            }
        }
    }

    async fn pass(&mut self, bytes: &[u8]) {
        if self.gone {
            return;
        }
        let mut written = self.client.write_all(bytes).await;
        if self.server.buffer().is_empty() {
            written = written.and(self.client.flush().await);
        }
        self.gone = written.is_err();
    }

    /// The fault of the unit that is being answered now.
    fn shot(&self) -> Option<Shot> {
        let way = lock(&self.way);
        way.sent.front().unwrap_or(&way.open).shot.clone()
    }

    /// The server asks for COPY data: it ignores a Sync that came ahead of them, so that unit goes on.
    fn note_copy(&self) {
        let mut way = lock(&self.way);
        way.copying = true;
        if way.sent.front().is_some_and(|unit| unit.by_sync) {
            way.open = way.sent.pop_front().unwrap_or_default();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
