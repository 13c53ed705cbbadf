//! Names to addresses.

use std::{io, net::IpAddr};

use outlast_core::broker::BoxFuture;

/// What turns a name into addresses. Asked at every attempt; what it answers is judged as a whole.
pub trait Resolve: Send + Sync + 'static {
    /// All addresses of this name.
    ///
    /// # Errors
    /// When there is no such name, or nobody who knows.
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// The system's resolver.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((host, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}
