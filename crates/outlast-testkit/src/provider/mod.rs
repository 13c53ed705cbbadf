//! A provider to prove things against: it lives in its own process and keeps its own books. Here it sends mails; orders, for
//! commands, are [`order`]s.
//!
//! | request | what it does |
//! |---|---|
//! | `POST /send` | one mail; key in the header `Idempotency-Key` or the body's `id`; in the ledger, fsynced, before the answer |
//! | `GET /sent/KEY` | was it sent: 200 or 404 |
//! | `GET /ledger` | the ledger: one JSON object a line |
//! | `PUT /behaviour` | how to misbehave from now on: [`Behaviour`] |
//!
//! The second request with a key it knows sends no second mail, as a good provider's would not; the ledger has a line
//! for it all the same (`"repeat": true`). A provider without keys: `ignore_keys`.

mod http;
mod ledger;
pub mod order;
mod server;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::process::{self, Process};
pub use http::{Answer, request};
pub use ledger::Line;
pub use server::{open, serve};

/// How the provider treats the sends to come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Behaviour {
    /// Waits so long after the mail is in the ledger and before the answer.
    pub slow_ms: u64,
    /// Answers so instead of sending.
    pub refuse: Option<Refuse>,
    /// Sends, and closes the connection without an answer.
    pub drop_reply: bool,
    /// Sends again although the key is known.
    pub ignore_keys: bool,
    /// Only for so many requests; then it behaves well again.
    pub times: Option<u64>,
}

/// An answer that is no success. Nothing is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refuse {
    /// 429 with `Retry-After`, in seconds.
    Throttle(u64),
    /// 500.
    Broken,
    /// 422: this mail will never be taken.
    Reject,
}

/// The provider as a child process, killed when this is dropped. Its ledger stays.
#[derive(Debug)]
pub struct Provider {
    process: Process,
    address: SocketAddr,
    ledger: PathBuf,
}

impl Provider {
    /// Starts the program `fake-provider` on a free port.
    ///
    /// # Panics
    /// If the program cannot be built or does not start.
    pub async fn start(ledger: &Path) -> Self {
        Self::start_at(ledger, 0).await
    }

    /// The same on this port: one that was killed comes again, with its books. 0 is any.
    ///
    /// # Panics
    /// As [`Provider::start`].
    pub async fn start_at(ledger: &Path, port: u16) -> Self {
        let program = process::program("outlast-testkit", "fake-provider");
        let mut command = Command::new(program);
        command.arg("--ledger").arg(ledger);
        command.arg(format!("--port={port}"));
        let process = Process::spawn(&mut command).expect("the provider's program starts");
        let line = process.line("listening on ", Duration::from_secs(20)).await;
        let address = line.rsplit(' ').next().and_then(|word| word.parse().ok());
        let address = address.expect("the line ends with the address");
        Self {
            process,
            address,
            ledger: ledger.to_owned(),
        }
    }

    /// Where it listens, as `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process: to kill or freeze it.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Changes how it behaves.
    ///
    /// # Panics
    /// If it does not answer.
    pub async fn behave(&self, behaviour: &Behaviour) {
        let body = serde_json::to_string(behaviour).expect("plain data becomes JSON");
        let answer = request(self.address, "PUT", "/behaviour", &[], &body).await;
        assert_eq!(answer.expect("the provider answers").status, 204);
    }

    /// Changes how it treats orders.
    ///
    /// # Panics
    /// If it does not answer.
    pub async fn has_habits(&self, habits: &order::Habits) {
        let body = serde_json::to_string(habits).expect("plain data becomes JSON");
        let answer = request(self.address, "PUT", "/orders", &[], &body).await;
        assert_eq!(answer.expect("the provider answers").status, 204);
    }

    /// What it has done with orders: read from its file.
    ///
    /// # Panics
    /// If the file is not its ledger.
    pub fn orders(&self) -> Vec<order::Entry> {
        ledger::read(&order::beside(&self.ledger)).expect("the ledger is readable")
    }

    /// Sends one mail as a client would.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn send(&self, key: &str, body: &str) -> io::Result<Answer> {
        request(
            self.address,
            "POST",
            "/send",
            &[("idempotency-key", key)],
            body,
        )
        .await
    }

    /// What it has done: its ledger, read from the file.
    ///
    /// # Panics
    /// If the file is not its ledger.
    pub fn ledger(&self) -> Vec<Line> {
        ledger::read(&self.ledger).expect("the ledger is readable")
    }
}
