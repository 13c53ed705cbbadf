//! Push over real HTTP, from a real database; providers over real sockets.

mod accepted;
mod complete;
mod egress;
mod given;
mod outage;
mod provider;
mod push;
mod server;
mod signature;
mod webhook;
