//! Push over real HTTP, from a real database.

mod accepted;
mod complete;
mod egress;
mod given;
mod outage;
mod push;
mod server;
mod signature;
