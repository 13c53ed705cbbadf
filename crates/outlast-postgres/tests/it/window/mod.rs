//! Windows: nothing lost, nothing doubled, nothing before what it followed.

mod account;
mod crowd;
mod orders;
mod pages;
mod property;
mod rule;
mod slots;
mod watch;
