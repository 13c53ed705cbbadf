//! What a broker has, asked of its server without any of the product: a few lines of NATS's protocol, and of HTTP for
//! Google's emulator.

pub mod nats;
pub mod pubsub;

use anyhow::{Context, Result};
use base64::{Engine, prelude::BASE64_STANDARD};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// The header in which an event's id travels.
const ID: &str = "ce-id";

/// One message, as the broker has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// What it says it is; none if it does not say so.
    pub event_id: Option<Uuid>,
    /// SHA-256 of its body.
    pub digest: String,
}

impl Message {
    fn new(id: Option<&str>, body: &[u8]) -> Self {
        let hash = Sha256::digest(body);
        Self {
            event_id: id.and_then(|id| id.trim().parse().ok()),
            digest: hash.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }
}

fn decoded(text: &str) -> Result<Vec<u8>> {
    BASE64_STANDARD.decode(text).context("base64 is expected")
}
