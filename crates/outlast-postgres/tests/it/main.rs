//! The proofs of the SQL: each room against a real PostgreSQL, several connections, planted faults that must be found.
//!
//! Each test has a database of its own. A race is made by holding one side at a named place, never by waiting some
//! time. Random runs print their seed; `OUTLAST_SEEDS=n` runs more of them, `OUTLAST_SEED=s` one again.

mod claim;
mod command;
mod delivered;
mod due;
mod emit;
mod entity;
mod fair;
mod house;
mod job;
mod lease;
mod order;
mod outbox;
mod parked;
mod plans;
mod prepared;
mod restore;
mod retention;
mod roles;
mod schema;
mod seeds;
mod setting;
mod sql;
mod verify;
mod wake;
mod window;
