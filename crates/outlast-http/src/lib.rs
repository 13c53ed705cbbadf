//! Outlast over HTTP.
//!
//! [`push`] makes an HTTPS endpoint the handler of a consumer: it signs what it sends ([`signature`]), goes only where it may
//! ([`egress`]), and says what an answer means. [`complete`] is for endpoints that complete an event by themselves and speak no
//! SQL. Rust receivers check signatures with [`signature::Verifier`].
#![warn(missing_docs)]

pub mod complete;
pub mod egress;
pub mod push;
pub mod signature;

pub use push::HttpEndpoint;
