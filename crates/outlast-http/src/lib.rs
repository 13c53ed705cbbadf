//! Outlast over HTTP.
//!
//! [`push`] makes an HTTPS endpoint the handler of a consumer: it signs what it sends ([`signature`]), goes only where it may
//! ([`egress`]), and says what an answer means. [`complete`] is for endpoints that complete an event by themselves and speak no
//! SQL. Rust receivers check signatures with [`signature::Verifier`]. [`provider`] is for what commands tell providers: after each
//! request it is known whether it may have had an effect. [`webhook`] says whether what providers tell us is theirs.
#![warn(missing_docs)]

pub mod complete;
pub mod egress;
mod mac;
pub mod provider;
pub mod push;
mod retry_after;
pub mod signature;
pub mod webhook;

pub use provider::Provider;
pub use push::HttpEndpoint;
