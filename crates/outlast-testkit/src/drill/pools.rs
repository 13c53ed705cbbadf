//! The pools of drills: both drivers, any isolation level.

use std::{str::FromStr, time::Duration};

use anyhow::Result;
use deadpool_postgres::{Manager, ManagerConfig, RecyclingMethod, Runtime};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use tokio_postgres::NoTls;

/// The driver of a client or handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// tokio-postgres behind deadpool.
    Deadpool,
    /// sqlx, which hides the tag of COMMIT.
    Sqlx,
}

/// The isolation level of a handler's transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// READ COMMITTED.
    Committed,
    /// REPEATABLE READ.
    Repeatable,
    /// SERIALIZABLE.
    Serializable,
}

impl Driver {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Deadpool, Self::Sqlx];

    /// Its word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deadpool => "deadpool",
            Self::Sqlx => "sqlx",
        }
    }
}

impl FromStr for Driver {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|driver| driver.as_str() == word);
        known.ok_or_else(|| format!("`{word}` is not a driver"))
    }
}

impl Isolation {
    /// All three.
    pub const ALL: [Self; 3] = [Self::Committed, Self::Repeatable, Self::Serializable];

    /// Its word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Committed => "read-committed",
            Self::Repeatable => "repeatable-read",
            Self::Serializable => "serializable",
        }
    }

    fn setting(self) -> &'static str {
        match self {
            Self::Committed => "read committed",
            Self::Repeatable => "repeatable read",
            Self::Serializable => "serializable",
        }
    }
}

impl FromStr for Isolation {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|level| level.as_str() == word);
        known.ok_or_else(|| format!("`{word}` is not an isolation level"))
    }
}

/// How long to wait for a connection of a pool.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn deadpool(
    url: &str,
    level: Isolation,
    size: usize,
) -> Result<deadpool_postgres::Pool> {
    let mut config: tokio_postgres::Config = url.parse()?;
    let level = level.setting().replace(' ', "\\ ");
    config.options(format!("-c default_transaction_isolation={level}"));
    let fast = ManagerConfig {
        recycling_method: RecyclingMethod::Fast,
    };
    let manager = Manager::from_config(config, NoTls, fast);
    Ok(deadpool_postgres::Pool::builder(manager)
        .max_size(size)
        .runtime(Runtime::Tokio1)
        .wait_timeout(Some(PATIENCE))
        .build()?)
}

pub(super) fn sqlx(url: &str, level: Isolation, size: usize) -> Result<PgPool> {
    let options = PgConnectOptions::from_str(url)?
        .options([("default_transaction_isolation", level.setting())]);
    let size = u32::try_from(size)?;
    Ok(PgPoolOptions::new()
        .max_connections(size)
        .acquire_timeout(PATIENCE)
        .connect_lazy_with(options))
}
