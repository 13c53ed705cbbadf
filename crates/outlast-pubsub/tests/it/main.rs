//! The adapter against Google's emulator and against Google's own client. Where the emulator cannot be had these tests say so
//! and pass; in CI they fail.

mod conformance;
mod credentials;
mod faults;
mod memory;
mod official;
mod receive;
mod support;
mod topology;
