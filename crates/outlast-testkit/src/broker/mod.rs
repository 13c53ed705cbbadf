//! Brokers in tests: one in memory that does what a script says, one suite for all of them, and real servers.
//!
//! | room | what |
//! |---|---|
//! | [`memory`] | a broker in memory, with scripted faults and a journal of what it really took |
//! | [`conformance`] | one suite, which every broker has to pass |
//! | [`nats_server`] | a real NATS server for each test, to be frozen, killed, wiped |
//! | [`emulator`] | Google's Pub/Sub emulator, shared by the tests of a run |
//! | [`wire`] | a way to a broker that is cut, held, or loses answers |

pub mod conformance;
pub mod emulator;
pub mod memory;
pub mod nats_server;
pub mod wire;

pub use emulator::Emulator;
pub use memory::Memory;
pub use nats_server::NatsServer;
pub use wire::Wire;
