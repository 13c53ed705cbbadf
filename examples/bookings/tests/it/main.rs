//! The demo as its user runs it.

mod drill;
