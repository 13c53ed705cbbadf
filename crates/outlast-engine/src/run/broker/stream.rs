//! The stream from a broker, in a task of its own: it takes only what was asked for, and nobody drops it half-way.
//!
//! A stream that is silent proves nothing: after a while the server is asked whether it still lives. One that is broken is
//! opened anew, with growing pauses.

use std::{future::Future, sync::Arc, time::Duration};

use outlast_core::{
    backoff::Backoff,
    broker::{BrokerError, Delivered, Ensure, Severity, Subscribed, Topology, Why},
};
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    consumer::Source,
    run::{AbortOnDrop, record::told, signal::Stop},
};

/// How long one question to a broker may take.
const ANSWER: Duration = Duration::from_secs(10);
/// How long one look for messages waits for them: also how long a stop waits for it.
const LOOK: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 1000 });
/// Beyond what it was given, an adapter that does not answer is given up after this.
const WATCHDOG: Duration = Duration::from_secs(1);
/// A stream that brought nothing for so long is asked whether it lives.
const SILENCE: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 10_000 });
/// Between two tries to open it.
const AGAIN: Backoff = Backoff {
    first: Duration::from_millis(500),
    most: Duration::from_secs(10),
};

/// The stream of one consumer.
pub(super) struct Stream {
    ask: mpsc::Sender<usize>,
    come: mpsc::Receiver<Vec<Delivered>>,
    asked: bool,
    task: JoinHandle<()>,
}

impl Stream {
    /// Opens it, and keeps it open until the worker drains.
    pub(super) fn open(source: Arc<Source>, consumer: Arc<str>, stop: Stop) -> Self {
        let (ask, asks) = mpsc::channel(1);
        let (bring, come) = mpsc::channel(1);
        let task = tokio::spawn(serve(source, consumer, stop, asks, bring));
        Self {
            ask,
            come,
            asked: false,
            task,
        }
    }

    /// Whether an answer is still to come.
    pub(super) fn is_asked(&self) -> bool {
        self.asked
    }

    /// Asks for messages, at most so many. One answer follows, perhaps an empty one.
    pub(super) fn ask(&mut self, most: usize) {
        // There is room: one question at a time.
        self.asked = self.ask.try_send(most).is_ok();
    }

    /// The answer to a question. Never, if there was none.
    pub(super) async fn arrived(&mut self) -> Vec<Delivered> {
        match self.come.recv().await {
            Some(messages) => {
                self.asked = false;
                messages
            }
            None => std::future::pending().await,
        }
    }

    /// Asks for nothing more; what was on its way.
    pub(super) async fn close(&mut self) -> Vec<Delivered> {
        let (closed, _) = mpsc::channel(1);
        self.ask = closed;
        let mut late = Vec::new();
        while let Ok(Some(messages)) = timeout(LOOK + 2 * WATCHDOG, self.come.recv()).await {
            late.extend(messages);
        }
        late
    }

    /// Waits until the broker has let go of it.
    pub(super) async fn drained(self) {
        let _aborted = AbortOnDrop(self.task.abort_handle());
        let _ = timeout(2 * LOOK, self.task).await;
    }
}

async fn serve(
    source: Arc<Source>,
    consumer: Arc<str>,
    stop: Stop,
    mut asks: mpsc::Receiver<usize>,
    bring: mpsc::Sender<Vec<Delivered>>,
) {
    let mut failures: u32 = 0;
    while !stop.is_draining() {
        let broken = match open(&source, &consumer).await {
            Ok(stream) => match read(stream, &mut failures, &stop, &mut asks, &bring).await {
                Some(broken) => broken,
                None => return,
            },
            Err(error) => error,
        };
        failures = failures.saturating_add(1);
        if failures == 1 && broken.why == Why::Configuration {
            // What somebody has to change: nothing is read until then.
            tracing::error!(error = %broken, consumer = %consumer, broker = source.broker.kind(), "the subscription is not read as it is");
        }
        let pause = AGAIN.pause(failures, fastrand::f64()).max(LOOK / 20);
        told!(failures, error = %broken, consumer = %consumer, broker = source.broker.kind(), retry_ms = pause.as_millis() as u64, "the stream from the broker broke");
        tokio::select! {
            () = sleep(pause) => {}
            () = stop.draining() => {}
        }
    }
}

async fn open(source: &Source, consumer: &str) -> Result<Box<dyn Subscribed>, BrokerError> {
    let topology = Topology::Subscription(source.subscription.clone());
    let ensured = source.broker.ensure(&topology, Ensure::Create, ANSWER);
    match within(ANSWER, ensured).await {
        Ok(findings) => {
            for finding in findings {
                if finding.severity >= Severity::Warning {
                    tracing::warn!(
                        consumer,
                        about = finding.about,
                        advice = finding.advice,
                        "{}",
                        finding.found
                    );
                }
            }
        }
        // Who may read need not be allowed to make.
        Err(error) => tracing::debug!(%error, consumer, "the subscription was not looked at"),
    }
    within(
        ANSWER,
        source.broker.subscribe(&source.subscription, ANSWER),
    )
    .await
}

/// Reads until it breaks: why; or until the worker drains.
async fn read(
    mut stream: Box<dyn Subscribed>,
    failures: &mut u32,
    stop: &Stop,
    asks: &mut mpsc::Receiver<usize>,
    bring: &mpsc::Sender<Vec<Delivered>>,
) -> Option<BrokerError> {
    let mut heard = Instant::now();
    loop {
        if heard.elapsed() >= SILENCE {
            if let Err(error) = within(ANSWER, stream.health(ANSWER)).await {
                return Some(error);
            }
            heard = Instant::now();
        }
        let most = tokio::select! {
            biased;
            () = stop.draining() => break,
            most = asks.recv() => match most {
                Some(most) => most,
                None => break,
            },
            () = sleep_until(heard + SILENCE) => continue,
        };
        let messages = match within(LOOK, stream.next(most, LOOK)).await {
            Ok(messages) => messages,
            Err(error) => {
                // Whoever asked gets an answer all the same.
                let _ = bring.send(Vec::new()).await;
                return Some(error);
            }
        };
        if !messages.is_empty() {
            (heard, *failures) = (Instant::now(), 0);
        }
        if bring.send(messages).await.is_err() {
            break;
        }
    }
    // Whatever comes of it: the connection goes with the process.
    let _ = timeout(LOOK + WATCHDOG, stream.drain(LOOK)).await;
    None
}

/// An answer in time, or none.
async fn within<T>(
    given: Duration,
    asked: impl Future<Output = Result<T, BrokerError>>,
) -> Result<T, BrokerError> {
    timeout(given + WATCHDOG, asked)
        .await
        .unwrap_or_else(|_| Err(BrokerError::new(Why::Unavailable, "it does not answer")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::signal::Stopper;
    use outlast_core::broker::{
        BoxFuture, Broker, Finding, Limits, Message, Published, Subscription,
    };
    use std::sync::Mutex;

    /// What was asked of a broker that never has a message; streams of it die without a word.
    #[derive(Clone, Default)]
    struct Silent(Arc<Mutex<Vec<&'static str>>>);

    impl Silent {
        fn asked(&self, what: &'static str) {
            self.0.lock().unwrap().push(what);
        }

        fn count(&self, what: &str) -> usize {
            let asked = self.0.lock().unwrap();
            asked.iter().filter(|one| **one == what).count()
        }
    }

    fn gone() -> BrokerError {
        BrokerError::new(Why::Unavailable, "gone")
    }

    impl Broker for Silent {
        fn kind(&self) -> &'static str {
            "silent"
        }

        fn limits(&self) -> Limits {
            Limits::new(1, 1, 1)
        }

        fn validate(&self, _: &Message) -> Result<(), String> {
            Ok(())
        }

        fn publish<'a>(&'a self, _: &'a [Message], _: Duration) -> BoxFuture<'a, Vec<Published>> {
            Box::pin(std::future::ready(Vec::new()))
        }

        fn ensure<'a>(
            &'a self,
            _: &'a Topology,
            _: Ensure,
            _: Duration,
        ) -> BoxFuture<'a, Result<Vec<Finding>, BrokerError>> {
            Box::pin(std::future::ready(Err(gone())))
        }

        fn subscribe<'a>(
            &'a self,
            _: &'a Subscription,
            _: Duration,
        ) -> BoxFuture<'a, Result<Box<dyn Subscribed>, BrokerError>> {
            self.asked("subscribe");
            let stream: Box<dyn Subscribed> = Box::new(self.clone());
            Box::pin(std::future::ready(Ok(stream)))
        }

        fn probe(&self, _: Duration) -> BoxFuture<'_, Result<(), BrokerError>> {
            Box::pin(std::future::ready(Ok(())))
        }

        fn dead<'a>(
            &'a self,
            _: &'a Subscription,
            _: usize,
            _: Duration,
        ) -> BoxFuture<'a, Result<Vec<Delivered>, BrokerError>> {
            Box::pin(std::future::ready(Err(gone())))
        }
    }

    impl Subscribed for Silent {
        fn next(
            &mut self,
            _: usize,
            within: Duration,
        ) -> BoxFuture<'_, Result<Vec<Delivered>, BrokerError>> {
            self.asked("next");
            Box::pin(async move {
                sleep(within).await;
                Ok(Vec::new())
            })
        }

        fn health(&mut self, _: Duration) -> BoxFuture<'_, Result<(), BrokerError>> {
            self.asked("health");
            Box::pin(std::future::ready(Err(gone())))
        }

        fn drain(self: Box<Self>, _: Duration) -> BoxFuture<'static, ()> {
            self.asked("drain");
            Box::pin(std::future::ready(()))
        }
    }

    /// Whether anybody asks for messages or not: a silent stream is asked whether it lives, and opened anew when it does not.
    #[tokio::test]
    async fn a_silent_stream_that_died_without_a_word_is_opened_anew() {
        for asking in [false, true] {
            let (broker, (stopper, stop)) = (Silent::default(), Stopper::new());
            let source = Arc::new(Source {
                broker: Arc::new(broker.clone()),
                subscription: Subscription::new("a", "b"),
                acks_first: false,
            });
            let mut stream = Stream::open(source, "c".into(), stop);
            if asking {
                while broker.count("subscribe") < 2 {
                    stream.ask(1);
                    assert!(stream.arrived().await.is_empty());
                }
            }
            outlast_testkit::wait_for("a second stream", ANSWER, async || {
                (broker.count("subscribe") >= 2).then_some(())
            })
            .await;
            assert!(broker.count("health") >= 1);
            stopper.drain();
            assert!(stream.close().await.is_empty());
            stream.drained().await;
        }
    }
}
