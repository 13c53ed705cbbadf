//! What a private server shall be like, and its first start.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::server::Server;
use super::{Cluster, Error, Installation, blocking};

/// Made by [`Cluster::temporary`] and [`Cluster::kept`]; [`start`](Self::start) makes the server.
#[must_use = "nothing happens before start"]
#[derive(Clone, Debug)]
pub struct Builder {
    /// None: temporary.
    pub(super) folder: Option<PathBuf>,
    pub(super) fresh: bool,
    pub(super) port: Option<u16>,
    pub(super) installation: Option<Installation>,
    pub(super) settings: Vec<(String, String)>,
}

impl Builder {
    pub(super) fn new(folder: Option<&Path>) -> Self {
        Self {
            folder: folder.map(Path::to_owned),
            fresh: false,
            port: None,
            installation: None,
            settings: Vec::new(),
        }
    }

    /// A server setting, as in `postgresql.conf`. Wins over ours, those for durability included.
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A fixed TCP port. Otherwise the last run's, if it is free, else any free one.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// These server programs. Otherwise those of the version that wrote the data, else [`Installation::find`].
    pub fn installation(mut self, installation: Installation) -> Self {
        self.installation = Some(installation);
        self
    }

    /// Start over: remove what an earlier run left in the kept folder.
    pub fn fresh(mut self) -> Self {
        self.fresh = true;
        self
    }

    /// Makes the data if there is none, starts the server, and waits until it takes connections.
    ///
    /// If this process dies half-way nothing runs on, and the next call starts over or goes on.
    ///
    /// # Errors
    /// Every kind of [`Error`]; [`Error::InUse`] if another process uses the folder.
    pub async fn start(self) -> Result<Cluster, Error> {
        blocking(move || {
            let server = Server::make(self)?;
            Ok(Cluster {
                server: Arc::new(server),
            })
        })
        .await
    }
}
