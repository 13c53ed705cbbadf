//! Drills: real processes on a real server, faults on purpose, and a verdict from outside.
//!
//! A *row* of the evidence table has *scenarios*; a scenario with a seed is a *run*. A run has a [`world`]: a database, a
//! folder, client processes ([`client`]) that keep a journal of what they were told, worker processes ([`worker`]) whose
//! effects are rows or lines on disk, sender and reconciler processes ([`sender`], [`mirror`]) whose effects are a
//! provider's, and a history. The verdict is
//! `outlast-checker`'s, which knows nothing of the product. That it can see is shown by planting faults ([`plant`]).

pub mod client;
mod desk;
mod did;
mod grouped;
pub mod lie;
pub mod mirror;
mod order;
pub mod plant;
mod planted;
pub mod pools;
pub mod rows;
pub mod run;
pub mod sender;
pub mod server;
mod site;
pub mod source;
mod spec;
pub mod worker;
pub mod world;
