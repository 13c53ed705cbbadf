//! Answers: one subscription for all that we ask, and a place for each who waits.
//!
//! The client's own requests keep their place for ever when nobody answers. Here it goes with the call that made it.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use async_nats::{Client, Message, Subscriber};
use futures_util::StreamExt;
use tokio::{sync::mpsc, task::AbortHandle};

type Waiting = Arc<Mutex<HashMap<u64, mpsc::UnboundedSender<(usize, Message)>>>>;

/// Where answers come in.
#[derive(Debug)]
pub(crate) struct Acks {
    prefix: String,
    waiting: Waiting,
    last: AtomicU64,
    reading: AbortHandle,
}

/// A call that waits for answers, numbered by it.
#[derive(Debug)]
pub(crate) struct Call {
    prefix: String,
    id: u64,
    answers: mpsc::UnboundedReceiver<(usize, Message)>,
    waiting: Waiting,
}

impl Acks {
    /// Begins to listen.
    ///
    /// # Errors
    /// When the client has ended.
    pub(crate) async fn new(client: &Client) -> Result<Self, async_nats::SubscribeError> {
        let prefix = client.new_inbox();
        let answers = client.subscribe(format!("{prefix}.*.*")).await?;
        let waiting = Waiting::default();
        let reading = tokio::spawn(read(answers, Arc::clone(&waiting))).abort_handle();
        Ok(Self {
            prefix,
            waiting,
            last: AtomicU64::new(0),
            reading,
        })
    }

    /// A place for the answers of one call.
    pub(crate) fn call(&self) -> Call {
        let id = self.last.fetch_add(1, Ordering::Relaxed);
        // As many as were asked come in at most: bounded by the size of a call.
        let (tell, answers) = mpsc::unbounded_channel();
        lock(&self.waiting).insert(id, tell);
        Call {
            prefix: self.prefix.clone(),
            id,
            answers,
            waiting: Arc::clone(&self.waiting),
        }
    }
}

impl Drop for Acks {
    fn drop(&mut self) {
        // It holds the connection.
        self.reading.abort();
    }
}

impl Call {
    /// The subject for the answer to the question of this number.
    pub(crate) fn reply(&self, number: usize) -> String {
        format!("{}.{}.{number}", self.prefix, self.id)
    }

    /// The next answer, and to which question. Cancel-safe.
    pub(crate) async fn answer(&mut self) -> (usize, Message) {
        match self.answers.recv().await {
            Some(answer) => answer,
            // The reader has ended with the connection: nothing will come, and who waits has a deadline.
            None => std::future::pending().await,
        }
    }

    /// An answer that is there already.
    pub(crate) fn answered(&mut self) -> Option<(usize, Message)> {
        self.answers.try_recv().ok()
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        lock(&self.waiting).remove(&self.id);
    }
}

async fn read(mut answers: Subscriber, waiting: Waiting) {
    while let Some(message) = answers.next().await {
        let mut parts = message.subject.rsplit('.');
        let number = parts.next().and_then(|part| part.parse().ok());
        let call = parts.next().and_then(|part| part.parse().ok());
        let (Some(number), Some(call)) = (number, call) else {
            continue;
        };
        // Who does not wait any more does not want to know.
        if let Some(call) = lock(&waiting).get(&call) {
            let _ = call.send((number, message));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
