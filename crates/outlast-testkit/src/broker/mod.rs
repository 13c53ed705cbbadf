//! Brokers in tests: one in memory that does what a script says, one suite for all of them, and real servers.
//!
//! | room | what |
//! |---|---|
//! | [`memory`] | a broker in memory, with scripted faults and a journal of what it really took |
//! | [`conformance`] | one suite, which every broker has to pass |

pub mod conformance;
pub mod memory;

pub use memory::Memory;
