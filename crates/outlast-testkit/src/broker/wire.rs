//! A way to a broker that can be cut, held, slowed and made deaf: bytes pass as they are, whatever they mean.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
    time::sleep,
};

/// What happens to bytes on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Passes,
    /// They wait, in both directions.
    Holds,
    /// Each piece of them comes later by so much, in both directions.
    Slows(Duration),
    /// What goes to the server is lost.
    LosesRequests,
    /// What comes from the server is lost.
    LosesAnswers,
}

/// A running way. Dropping it closes its connections.
#[derive(Debug)]
pub struct Wire {
    address: SocketAddr,
    way: watch::Sender<watch::Sender<Way>>,
    cut: watch::Sender<()>,
    lost: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

impl Wire {
    /// Listens on a free port of 127.0.0.1, before the server at this address.
    ///
    /// # Panics
    /// If there is no port.
    pub async fn before(server: &str) -> Self {
        let server = server
            .rsplit("://")
            .next()
            .expect("rsplit gives one")
            .to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener
            .local_addr()
            .expect("a bound listener has an address");
        let way = watch::Sender::new(watch::Sender::new(Way::Passes));
        let (cut, lost) = (watch::Sender::new(()), Arc::new(AtomicUsize::new(0)));
        let accepting = accept(
            listener,
            server,
            way.clone(),
            cut.clone(),
            Arc::clone(&lost),
        );
        Self {
            address,
            way,
            cut,
            lost,
            accepting: tokio::spawn(accepting),
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on nothing passes on the connections that there are, and none is closed; new ones pass. Until they are cut.
    pub fn hold_open(&self) {
        self.set(Way::Holds);
        self.way.send_replace(watch::Sender::new(Way::Passes));
    }

    /// From now on what the server says is lost, on old and new connections.
    pub fn lose_answers(&self) {
        self.set(Way::LosesAnswers);
    }

    /// From now on what is said to the server is lost, on old and new connections.
    pub fn lose_requests(&self) {
        self.set(Way::LosesRequests);
    }

    /// From now on each piece of what is said comes later by so much, on old and new connections.
    pub fn slow(&self, by: Duration) {
        self.set(Way::Slows(by));
    }

    /// How many bytes of requests or answers were lost.
    pub fn lost(&self) -> usize {
        self.lost.load(Ordering::Relaxed)
    }

    /// Closes the connections that there are, and lets everything pass again.
    pub fn cut(&self) {
        self.cut.send_replace(());
        self.way.send_replace(watch::Sender::new(Way::Passes));
    }

    fn set(&self, way: Way) {
        self.way.borrow().send_replace(way);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(
    listener: TcpListener,
    server: String,
    ways: watch::Sender<watch::Sender<Way>>,
    cut: watch::Sender<()>,
    lost: Arc<AtomicUsize>,
) {
    // Dropped with this future: then all connections end too.
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let (way, mut cut) = (ways.borrow().clone(), cut.subscribe());
        let (server, lost) = (server.clone(), Arc::clone(&lost));
        connections.spawn(async move {
            let Ok(server) = TcpStream::connect(server).await else {
                return;
            };
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            tokio::select! {
                () = carry(from_client, to_server, way.subscribe(), (Way::LosesRequests, &lost)) => {}
                () = carry(from_server, to_client, way.subscribe(), (Way::LosesAnswers, &lost)) => {}
                _ = cut.changed() => {}
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

/// Carries bytes in one direction, and counts what is lost on the way that loses them.
async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut way: watch::Receiver<Way>,
    (loses, lost): (Way, &AtomicUsize),
) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        if way.wait_for(|way| *way != Way::Holds).await.is_err() {
            return;
        }
        let now = *way.borrow();
        if now == loses {
            lost.fetch_add(read, Ordering::Relaxed);
            continue;
        }
        if let Way::Slows(by) = now {
            sleep(by).await;
        }
        if to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}
