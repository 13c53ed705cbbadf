//! The public door: what it refuses, what it stores, and what it promises about transactions.

mod bad;
mod bytes;
mod durable;
mod json;
mod once;
mod routes;
mod transaction;
