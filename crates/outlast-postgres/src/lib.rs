//! Outlast on PostgreSQL: the schema, its SQL functions, and the only statements.
//!
//! What an application meets is re-exported by the crate `outlast`; the engine uses the rest. `migrate` brings a database
//! up to this program, [`event`], [`job`], [`command`] and [`entity`] write intents in the caller's transaction ([`tx`]), [`store`] claims and records,
//! [`watch`] tells whether there is news, [`setting`] what operators decided. [`cluster`] is beside all that: private servers for `outlast dev` and tests.

pub mod account;
pub mod cluster;
pub mod command;
pub mod connect;
pub mod endpoint;
pub mod entity;
pub mod error;
pub mod event;
pub mod job;
pub mod migrate;
pub mod outbox;
pub mod relay;
pub mod retention;
pub mod schema;
pub mod setting;
pub mod store;
pub mod tx;
pub mod watch;

pub use error::Error;
