//! What our own proofs stand on: real servers, real processes, real faults.
//!
//! | room | what |
//! |---|---|
//! | [`broker`] | a broker in memory with scripted faults, one suite for every broker, real servers |
//! | [`drill`] | the evidence rows: what `./run prove` runs, with a checker that knows nothing of the product |
//! | [`pg`] | a database of its own for each test, on a private durable server |
//! | [`pooler`] | PgBouncer in transaction mode |
//! | [`proxy`] | stands before PostgreSQL, sees COMMIT, and loses or holds it |
//! | [`process`] | child processes that are killed, frozen, and never left behind |
//! | [`provider`] | a mail provider in a process of its own, with its own ledger |
//! | [`wait`] | the only place where a test may poll |
//!
//! The servers themselves are [`outlast_postgres::cluster`]. Nothing here is published or used by the product.

pub mod broker;
#[cfg(feature = "proofs")]
pub mod drill;
#[cfg(feature = "proofs")]
pub mod pg;
#[cfg(feature = "proofs")]
pub mod pooler;
pub mod process;
#[cfg(feature = "proofs")]
pub mod provider;
#[cfg(feature = "proofs")]
pub mod proxy;
pub mod wait;

pub use wait::wait_for;
