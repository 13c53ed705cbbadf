//! The loops of Outlast: claim, act, record; and the handles that an application meets.
//!
//! What is written down here (`consumer`, `worker`) is made to move by `run`. Statements are in `outlast-postgres`.
#![warn(missing_docs)]

mod attempt;
mod command;
mod consumer;
#[cfg(not(feature = "crash-points"))]
mod crash;
#[cfg(feature = "crash-points")]
pub mod crash;
mod enqueue;
mod entity;
mod handler;
mod if_unknown;
mod outlast;
mod run;
mod settings;
#[cfg(feature = "testing")]
pub mod testing;
mod worker;

pub use attempt::{Attempt, Raw, Sealed};
pub use consumer::{BatchFn, Consumer, TxFn};
pub use enqueue::Enqueue;
pub use handler::{About, Running};
pub use if_unknown::IfUnknown;
pub use outlast::{Emit, Outlast};
pub use outlast_core::Start;
pub use run::broker::{Imported, import_dead};
pub use settings::{JobSettings, Settings, duration};
pub use worker::{Described, DescribedConsumer, DescribedJob, Worker};
