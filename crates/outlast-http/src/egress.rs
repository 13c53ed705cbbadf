//! Requests to addresses that others have written down: where they may go, and how much they may take.
//!
//! A name is resolved at every attempt, all of its addresses are judged, and the connection goes to one of exactly those: a name
//! that leads elsewhere a moment later gains nothing. Only `https`, only the ports of a list, and no address that is not of the
//! public internet, unless an operator has allowed its network. Redirects are not followed, proxies of the environment are not
//! used, and an answer is bounded in time and size.

mod address;
mod body;
mod client;
mod connect;
mod problem;
mod resolve;
mod rules;
mod target;

pub use address::{BadNet, Net, special};
pub use client::{Answered, Client, Egress, Limits};
pub(crate) use client::{Received, Sending};
pub use problem::{NoRoots, Problem};
pub use resolve::{Resolve, SystemResolver};
pub use rules::{Refusal, Rules};
pub use target::{BadUrl, Target};
