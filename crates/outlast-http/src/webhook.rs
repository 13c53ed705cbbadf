//! Webhooks: who has sent what providers tell us. Rules only: no clock, no network, no database.
//!
//! An [`Endpoint`] is a [`Preset`] with the keys of one registration at a provider. It judges a [`Request`] by its raw bytes and
//! answers what is proven, or why it is refused: a word and a sentence for the operator, a status for the sender.
//!
//! What holds for every scheme: limits come before any cryptography; the algorithm is the scheme's, never the message's;
//! signatures are compared decoded, in their full length and in constant time; of several signatures and several secrets any pair may
//! match; a header that counts and comes twice is refused; a signed time may be off in neither direction by more than the
//! tolerance; a weak or empty secret makes no endpoint.
//!
//! Keys that providers publish are given as bytes; [`Endpoint::needs`] says which, and from where. Our own signatures, and the
//! reading of those of Standard Webhooks, are [`signature`](crate::signature)'s.

mod cert_url;
mod certificate;
mod der;
mod endpoint;
mod find;
mod greeting;
mod json;
mod multipart;
mod preset;
mod public_key;
mod refused;
mod request;
mod scheme;
mod secret;
mod time;
pub mod vectors;
mod verified;

pub use crate::mac::Hash;
pub use cert_url::CertHost;
pub use certificate::Certificate;
pub use endpoint::{BadEndpoint, Endpoint, Needs, Settings};
pub use find::Find;
pub use greeting::Greeting;
pub use preset::{Authenticity, Handshake, Identity, Items, KeyKind, Preset, presets};
pub use public_key::{BadPublicKey, How, PublicKey};
pub use refused::Refused;
pub use request::{Limits, Request};
pub use scheme::{Algorithm, Encoding, Part, Place, Scheme, Signed, Text, Token};
pub use secret::{BadSecret, KeyFormat, Secret};
pub use time::Unit;
pub use verified::{Item, Verified};
