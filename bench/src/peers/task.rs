//! What an adapter is asked to do: its environment.

use std::path::PathBuf;

#[derive(Clone, Debug)]
pub struct Task {
    pub verb: &'static str,
    pub units: i64,
    pub payload: usize,
    pub concurrency: usize,
    pub handler: &'static str,
    pub gate: PathBuf,
    pub lease: f64,
    pub consumers: usize,
    pub writers: usize,
    pub batch: usize,
    pub emit: &'static str,
    pub seconds: f64,
    pub rate: f64,
}

impl Task {
    pub fn new(verb: &'static str) -> Self {
        Self {
            verb,
            units: 0,
            payload: 200,
            concurrency: 50,
            handler: "noop",
            gate: PathBuf::new(),
            lease: 30.0,
            consumers: 1,
            writers: 1,
            batch: 1,
            emit: "own",
            seconds: 1.0,
            rate: 200.0,
        }
    }

    pub fn environment(&self, profile: &str) -> Vec<(&'static str, String)> {
        vec![
            ("BENCH_VERB", self.verb.to_owned()),
            ("BENCH_PROFILE", profile.to_owned()),
            ("BENCH_UNITS", self.units.to_string()),
            ("BENCH_PAYLOAD", self.payload.to_string()),
            ("BENCH_CONCURRENCY", self.concurrency.to_string()),
            ("BENCH_HANDLER", self.handler.to_owned()),
            ("BENCH_GATE", self.gate.to_string_lossy().into_owned()),
            ("BENCH_LEASE", self.lease.to_string()),
            ("BENCH_CONSUMERS", self.consumers.to_string()),
            ("BENCH_WRITERS", self.writers.to_string()),
            ("BENCH_BATCH", self.batch.to_string()),
            ("BENCH_EMIT", self.emit.to_owned()),
            ("BENCH_SECONDS", self.seconds.to_string()),
            ("BENCH_RATE", self.rate.to_string()),
        ]
    }
}
