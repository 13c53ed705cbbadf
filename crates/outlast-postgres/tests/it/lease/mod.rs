//! The lease and the seal: once an end of a lease has committed, nothing under it can commit any more.

mod cells;
mod faults;
mod last;
mod races;
mod savepoints;
mod scene;
mod torture;
mod whole;
