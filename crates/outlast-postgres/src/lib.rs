pub mod connect;
pub mod error;
pub mod event;
pub mod tx;

pub use error::Error;
