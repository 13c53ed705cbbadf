//! What the service and the worker share: the events, and where the database is.

use anyhow::Context;
use outlast::Event;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sqlx::{PgPool, postgres::PgPoolOptions};
use std::{env, time::Duration};

pub mod broker;

/// A booking was made, paid for and committed.
#[derive(Debug, Serialize, Deserialize)]
pub struct BookingConfirmed {
    pub booking: i64,
    pub guest: String,
    /// In euros. Text, because JSON numbers are binary fractions in too many readers.
    pub total: String,
}

impl Event for BookingConfirmed {
    const NAME: &'static str = "booking.confirmed";

    fn key(&self) -> Option<String> {
        Some(format!("booking/{}", self.booking))
    }
}

/// GitHub has called our webhook. The payload is its own JSON, which we do not take apart; header `x-github-event` says
/// what kind it is.
#[derive(Debug, Serialize, Deserialize)]
pub struct GithubDelivery(pub Box<RawValue>);

impl Event for GithubDelivery {
    const NAME: &'static str = "github.delivery";
}

/// A client for HTTP and HTTPS. The application chooses whose cryptography TLS has: ring's.
pub fn http() -> reqwest::Client {
    // An error says that it was chosen before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

/// Connects to `DATABASE_URL`.
pub async fn connect() -> anyhow::Result<PgPool> {
    let url = env::var("DATABASE_URL").context("DATABASE_URL")?;
    // While the database restarts, a request rather hears so than waits; and work goes on as soon as it is back.
    let options = PgPoolOptions::new()
        .max_connections(16)
        .acquire_timeout(Duration::from_secs(5));
    options.connect(&url).await.context("connect")
}
