//! A TCP proxy before PostgreSQL that knows COMMIT when it sees one, and can lose or hold it.
//!
//! ```no_run
//! # async fn example(database: &outlast_testkit::pg::Database) {
//! use outlast_testkit::proxy::{Fault, Proxy, When};
//!
//! let proxy = Proxy::before(database.url()).await;
//! let fault = proxy.arm(When::Commit, Fault::DropReply);
//! // ... commit through proxy.url(): the client gets an error ...
//! assert_eq!(fault.answered().await, "COMMIT");    // and yet it is durable
//! # }
//! ```

mod connection;
mod rule;
mod wire;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio_postgres::config::Host;

use connection::{Reader, Writer, carry};
use rule::Rules;
pub use rule::{Armed, Fault, When};

/// A running proxy. Dropping it closes its connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    url: String,
    rules: Rules,
    upstream: Arc<Mutex<Upstream>>,
    frozen: Frozen,
    cut: watch::Sender<()>,
    accepted: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

/// Who stands still: one switch for each generation of connections, the last one for those to come.
#[derive(Clone, Debug)]
struct Frozen(Arc<Mutex<Vec<watch::Sender<bool>>>>);

impl Frozen {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(vec![watch::Sender::new(false)])))
    }

    fn set(&self, frozen: bool) {
        for switch in self.lock().iter() {
            switch.send_replace(frozen);
        }
    }

    fn spare_who_comes(&self) {
        self.lock().push(watch::Sender::new(false));
    }

    fn subscribe(&self) -> watch::Receiver<bool> {
        let switches = self.lock();
        let last = switches.last().expect("there is one from the start");
        last.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<watch::Sender<bool>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone, Debug)]
enum Upstream {
    Tcp(String, u16),
    Unix(PathBuf),
}

impl Upstream {
    fn of(config: &tokio_postgres::Config) -> Self {
        let port = config.get_ports().first().copied().unwrap_or(5432);
        match config.get_hosts().first() {
            Some(Host::Tcp(host)) => Self::Tcp(host.clone(), port),
            Some(Host::Unix(folder)) => Self::Unix(folder.join(format!(".s.PGSQL.{port}"))),
            None => panic!("a connection string without a host"),
        }
    }
}

impl Proxy {
    /// Listens on a free port of 127.0.0.1, before the server of this connection string.
    ///
    /// # Panics
    /// If the connection string cannot be read, or there is no port.
    pub async fn before(url: &str) -> Self {
        let config: tokio_postgres::Config = url.parse().expect("a connection string");
        let upstream = Arc::new(Mutex::new(Upstream::of(&config)));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener
            .local_addr()
            .expect("a bound listener has an address");
        let user = config.get_user().unwrap_or("postgres");
        let password = config.get_password().map(String::from_utf8_lossy);
        let login = password.map_or(user.to_owned(), |password| format!("{user}:{password}"));
        let database = config.get_dbname().unwrap_or(user);
        let (rules, frozen, cut) = (Rules::default(), Frozen::new(), watch::Sender::new(()));
        let accepted = Arc::new(AtomicUsize::new(0));
        let accepting = accept(
            listener,
            upstream.clone(),
            rules.clone(),
            frozen.clone(),
            cut.clone(),
            accepted.clone(),
        );
        Self {
            address,
            url: format!("postgres://{login}@{address}/{database}"),
            rules,
            upstream,
            frozen,
            cut,
            accepted,
            accepting: tokio::spawn(accepting),
        }
    }

    /// The same connection string, through the proxy.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections it was asked for so far, whether or not the server was there.
    pub fn connections(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    /// The next statement of that kind, on any connection, meets the fault. Once.
    #[must_use = "dropping it disarms the fault"]
    pub fn arm(&self, when: When, fault: Fault) -> Armed {
        self.rules.arm(when, 0, fault)
    }

    /// As [`arm`](Self::arm), after `skip` of them went by untouched.
    #[must_use = "dropping it disarms the fault"]
    pub fn arm_after(&self, skip: usize, when: When, fault: Fault) -> Armed {
        self.rules.arm(when, skip, fault)
    }

    /// From now on nothing passes, in either direction, on old and new connections; none is closed.
    pub fn freeze(&self) {
        self.frozen.set(true);
    }

    /// As [`freeze`](Self::freeze), but only the connections that there are: as if the way to the server had changed
    /// without a word. New ones pass.
    pub fn freeze_open(&self) {
        self.frozen.set(true);
        self.frozen.spare_who_comes();
    }

    /// Everything that waited goes on.
    pub fn thaw(&self) {
        self.frozen.set(false);
    }

    /// New connections go to the server of this connection string; those that there are stay until [`cut`](Self::cut).
    /// As when a name is made to point elsewhere.
    ///
    /// # Panics
    /// If the connection string cannot be read.
    pub fn lead_to(&self, url: &str) {
        let config = url.parse().expect("a connection string");
        *self.upstream.lock().unwrap_or_else(PoisonError::into_inner) = Upstream::of(&config);
    }

    /// Closes every connection that there is now.
    pub fn cut(&self) {
        self.cut.send_replace(());
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(
    listener: TcpListener,
    upstream: Arc<Mutex<Upstream>>,
    rules: Rules,
    frozen: Frozen,
    cut: watch::Sender<()>,
    accepted: Arc<AtomicUsize>,
) {
    // Dropped with this future: then all connections end too.
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        accepted.fetch_add(1, Ordering::Relaxed);
        let upstream = upstream.lock().unwrap_or_else(PoisonError::into_inner);
        let (upstream, rules, frozen, mut cut) = (
            upstream.clone(),
            rules.clone(),
            frozen.subscribe(),
            cut.subscribe(),
        );
        connections.spawn(async move {
            let carried = async {
                let client = split(client)?;
                carry(client, connect(&upstream).await?, rules, frozen).await
            };
            tokio::select! {
                // A broken connection is what the two ends see: there is nobody else to tell.
                _ = carried => {}
                _ = cut.changed() => {}
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn connect(upstream: &Upstream) -> io::Result<(Reader, Writer)> {
    match upstream {
        Upstream::Tcp(host, port) => split(TcpStream::connect((host.as_str(), *port)).await?),
        Upstream::Unix(path) => {
            let (read, write) = UnixStream::connect(path).await?.into_split();
            Ok((Box::new(read), Box::new(write)))
        }
    }
}

fn split(stream: TcpStream) -> io::Result<(Reader, Writer)> {
    stream.set_nodelay(true)?;
    let (read, write) = stream.into_split();
    Ok((Box::new(read), Box::new(write)))
}
