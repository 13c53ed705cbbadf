//! The rules of Outlast: what a user implements and what the loops decide by.
//!
//! Nothing here does I/O, reads a clock or draws a random number: those are arguments.
//! The statements live one floor up in `outlast-postgres`, the loops in `outlast-engine`.
#![warn(missing_docs)]

pub mod backoff;
pub mod broker;
pub mod codec;
pub mod command;
pub mod duration;
pub mod endpoint;
pub mod entity;
pub mod event;
pub mod failure;
pub mod follows;
pub mod foreign;
pub mod job;
pub mod name;
pub mod outage;
pub mod outcome;
pub mod parked;
pub mod poll;
pub mod size;
pub mod sqlstate;
pub mod start;
pub mod text;
pub mod trace;
pub mod window;

pub use broker::Broker;
pub use codec::{Codec, CodecError};
pub use command::{Command, Found, Resolution, Resolved, Sent};
pub use entity::Entity;
pub use event::{Consumable, Event, Payload, Unreadable};
pub use failure::{Class, Classify, Failure};
pub use follows::{Follows, Stored};
pub use job::Job;
pub use outcome::Outcome;
pub use start::Start;
