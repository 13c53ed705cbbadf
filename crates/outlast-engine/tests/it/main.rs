//! The loops against a real PostgreSQL: what a worker does, seen from the tables and from its handlers.

mod broker;
mod clock;
mod command;
mod connections;
mod drain;
mod failures;
mod fair;
mod given;
mod handle;
mod job;
mod lanes;
mod operators;
mod order;
mod outage;
mod outbox;
mod place;
mod pooler;
mod relay;
mod roles;
mod schemas;
mod size;
mod story;
mod takeover;
mod testing;
mod unanswered;
mod wake;
