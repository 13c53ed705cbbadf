//! What a contestant's own handler calls.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use serde_json::json;

use crate::{Env, now, say};

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Nothing,
    Millisecond,
    Stamp,
    Gate,
}

#[derive(Clone)]
pub struct Handler {
    what: What,
    gate: PathBuf,
    hint_at: i64,
    handled: Arc<AtomicI64>,
}

impl Handler {
    pub fn new(env: &Env) -> Self {
        Self {
            what: match env.handler.as_str() {
                "ms" => What::Millisecond,
                "stamp" => What::Stamp,
                "gate" => What::Gate,
                _ => What::Nothing,
            },
            gate: env.gate.clone(),
            hint_at: env.units * env.consumers as i64,
            handled: Arc::default(),
        }
    }

    /// Handles unit `n`. Whatever calls it returns right after it.
    pub async fn call(&self, n: i64) {
        match self.what {
            What::Nothing => {}
            What::Millisecond => tokio::time::sleep(Duration::from_millis(1)).await,
            What::Stamp => say(&json!({"event": "start", "n": n, "at": now()})),
            What::Gate => {
                say(&json!({"event": "start", "n": n, "at": now()}));
                while !self.gate.exists() {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            }
        }
        self.count(1);
    }

    /// For handlers of many units that do nothing else.
    pub fn count(&self, units: i64) {
        let before = self.handled.fetch_add(units, Ordering::Relaxed);
        if before < self.hint_at && before + units >= self.hint_at {
            say(&json!({"event": "handled"}));
        }
    }

    pub fn handled(&self) -> i64 {
        self.handled.load(Ordering::Relaxed)
    }
}
