//! Connecting to PostgreSQL, as libpq would: URLs, environment, service and password files, TLS by rustls.
//!
//! A [`Target`] says where and how; it prints without the password. `parse` reads no network, only text and files.

mod params;
mod pooled;
mod refused;
mod surroundings;
mod tls;

use crate::{Error, schema::Schema};
use deadpool_postgres::{Hook, Manager, ManagerConfig, RecyclingMethod, Runtime};
use params::Params;
pub use pooled::{POOLED, is_pooled};
use std::{fmt, future::poll_fn, time::Duration};
use surroundings::Surroundings;
use tls::Tls;
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_postgres::{AsyncMessage, Client, Config, Notification, config::Host};

/// Who we are in `pg_stat_activity`, unless the connection string says more.
const NAME: &str = "outlast";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A dead network is noticed after 30 s at most: leases are as long as that, and work waits behind them.
const QUIET: Duration = Duration::from_secs(10);
const PROBES: u32 = 2;

/// Where a database is and how to get in.
///
/// ```
/// use outlast_postgres::connect::Target;
/// let target = Target::parse("postgres://app:secret@db.example:5433/shop?sslmode=verify-full")?;
/// assert_eq!(target.to_string(), "app@db.example:5433/shop");
/// # Ok::<(), outlast_postgres::Error>(())
/// ```
#[derive(Clone)]
pub struct Target {
    config: Config,
    tls: Tls,
    schema: Schema,
}

impl Target {
    /// Reads a URL (`postgres://…`) or libpq's `key=value` form. What it leaves open comes from the service file, the
    /// `PG…` variables, the password file and libpq's defaults, in this order.
    ///
    /// # Errors
    /// [`Error::Config`] with the parameter that is wrong. The password is never part of the text.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Self::read(text, &Surroundings::of_this_process())
    }

    /// The database of `OUTLAST_DATABASE_URL`, else of `DATABASE_URL`, else of the `PG…` variables.
    ///
    /// # Errors
    /// [`Error::Config`] when none of them is set, or as [`Target::parse`].
    pub fn from_env() -> Result<Self, Error> {
        Self::from_surroundings(&Surroundings::of_this_process())
    }

    fn from_surroundings(around: &Surroundings) -> Result<Self, Error> {
        for name in ["OUTLAST_DATABASE_URL", "DATABASE_URL"] {
            if let Some(url) = around.var(name) {
                return Self::read(&url, around).map_err(|error| match error {
                    Error::Config(why) => Error::Config(format!("{name}: {why}")),
                    other => other,
                });
            }
        }
        if ["PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE"]
            .iter()
            .any(|name| around.var(name).is_some())
        {
            return Self::read("", around);
        }
        let why = "no database: set OUTLAST_DATABASE_URL or DATABASE_URL, for instance to postgres://user@localhost/shop";
        Err(Error::Config(why.into()))
    }

    fn read(text: &str, around: &Surroundings) -> Result<Self, Error> {
        let mut params = Params::parse(text).map_err(Error::Config)?;
        around.complete(&mut params).map_err(Error::Config)?;
        let tls = Tls::from_params(&mut params, around.home()).map_err(Error::Config)?;
        let mut config = params.to_config().map_err(Error::Config)?;
        if config.get_application_name().is_none() {
            config.application_name(NAME);
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if !params.has("keepalives_idle") {
            config.keepalives_idle(QUIET);
        }
        if !params.has("keepalives_interval") {
            config.keepalives_interval(QUIET);
        }
        if !params.has("keepalives_retries") {
            config.keepalives_retries(PROBES);
        }
        if !params.has("tcp_user_timeout") {
            config.tcp_user_timeout(QUIET * (PROBES + 1));
        }
        config.ssl_mode(tls.mode_for(config.get_hosts()));
        Ok(Self {
            config,
            tls,
            schema: Schema::DEFAULT,
        })
    }

    /// What `pg_stat_activity` shows for these connections.
    #[must_use]
    pub fn application_name(mut self, name: &str) -> Self {
        self.config.application_name(name);
        self
    }

    /// The same for connections that the connection string gave no name.
    #[must_use]
    pub fn application_name_or(self, name: &str) -> Self {
        match self.config.get_application_name() {
            Some(NAME) => self.application_name(name),
            _ => self,
        }
    }

    /// The same server and user, another database.
    #[must_use]
    pub fn database(mut self, name: &str) -> Self {
        self.config.dbname(name);
        self
    }

    /// The same database, another schema in it.
    #[must_use]
    pub fn schema(mut self, schema: Schema) -> Self {
        self.schema = schema;
        self
    }

    /// The schema that whoever connects works in.
    pub fn in_schema(&self) -> Schema {
        self.schema
    }

    /// The driver's own configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = self.config.get_user() {
            write!(f, "{user}@")?;
        }
        for (nth, host) in self.config.get_hosts().iter().enumerate() {
            let comma = if nth > 0 { "," } else { "" };
            match host {
                Host::Tcp(name) => write!(f, "{comma}{name}")?,
                Host::Unix(folder) => write!(f, "{comma}{}", folder.display())?,
            }
            let ports = self.config.get_ports();
            write!(f, ":{}", ports.get(nth).or(ports.first()).unwrap_or(&5432))?;
        }
        write!(
            f,
            "/{}",
            self.config
                .get_dbname()
                .or(self.config.get_user())
                .unwrap_or_default()
        )?;
        if self.schema != Schema::DEFAULT {
            write!(f, " schema {}", self.schema)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({self}, {:?})", self.tls)
    }
}

/// The task that moves a connection's bytes. It ends when the client is dropped or the connection breaks.
pub type Driver = JoinHandle<()>;

/// Opens one connection.
///
/// # Errors
/// [`Error::Connect`] says what stood in the way: no server, wrong password, no such database, TLS, …
pub async fn connect(target: &Target) -> Result<(Client, Driver), Error> {
    let (client, connection) = open(target).await?;
    let driver = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to PostgreSQL ended");
        }
    });
    Ok((client, driver))
}

/// Opens one connection that also hands out what NOTIFY sends to it. The channel ends with the connection.
///
/// What arrives while the channel is full is dropped: a listener that is that far behind is awake anyway.
pub async fn listen(target: &Target) -> Result<(Client, mpsc::Receiver<Notification>), Error> {
    const WAITING: usize = 64;
    let (client, mut connection) = open(target).await?;
    let (sender, receiver) = mpsc::channel(WAITING);
    tokio::spawn(async move {
        while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
            match message {
                Ok(AsyncMessage::Notification(notification)) => _ = sender.try_send(notification),
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(%error, "a listening connection to PostgreSQL ended");
                    break;
                }
            }
        }
    });
    Ok((client, receiver))
}

type Socket = tokio_postgres::Socket;
type TlsStream = <tokio_postgres_rustls::MakeRustlsConnect as tokio_postgres::tls::MakeTlsConnect<Socket>>::Stream;

async fn open(
    target: &Target,
) -> Result<(Client, tokio_postgres::Connection<Socket, TlsStream>), Error> {
    let connector = target.tls.connector().map_err(Error::Config)?;
    // The driver's own timeout ends when the socket is open. A server that stands still lets everybody in and says nothing.
    let each = target.config.get_connect_timeout();
    let hosts = u32::try_from(target.config.get_hosts().len()).unwrap_or(1);
    let patience = *each.unwrap_or(&CONNECT_TIMEOUT) * (hosts + 1);
    tokio::time::timeout(patience, target.config.connect(connector))
        .await
        .map_err(|_| refused::silent(target, patience))?
        .map_err(|error| refused::error(target, error))
}

/// A pool of at most `size` connections, opened when they are needed.
///
/// # Errors
/// [`Error::Config`] when the certificates cannot be read. No connection is tried yet.
pub fn pool(target: &Target, size: usize) -> Result<deadpool_postgres::Pool, Error> {
    pool_with(target, size, None)
}

/// The same, with a check that every new connection must pass before anybody gets it.
///
/// # Errors
/// As [`pool`].
pub fn pool_with(
    target: &Target,
    size: usize,
    check: Option<Hook>,
) -> Result<deadpool_postgres::Pool, Error> {
    let connector = target.tls.connector().map_err(Error::Config)?;
    let manager = ManagerConfig {
        recycling_method: RecyclingMethod::Fast,
    };
    let manager = Manager::from_config(target.config.clone(), connector, manager);
    let mut builder = deadpool_postgres::Pool::builder(manager)
        .max_size(size)
        .runtime(Runtime::Tokio1)
        .create_timeout(Some(CONNECT_TIMEOUT * 2));
    if let Some(check) = check {
        builder = builder.post_create(check);
    }
    builder
        .build()
        .map_err(|error| Error::Config(error.to_string()))
}

#[cfg(test)]
mod tests;
