//! The caller's transaction, whatever driver it is of: one call, object safe.
//!
//! [`Tx`] is implemented for concrete transactions and never for a pool: an intent written through a pool would be a
//! second write beside the business rows. [`Pool`] and [`OwnedTx`] are for handlers whose transaction Outlast begins and
//! commits. The adapters are one file a driver; to add one, implement `call` and map errors with `Error::from_parts`.

#[cfg(feature = "diesel-async")]
mod diesel_async;
#[cfg(feature = "sea-orm")]
mod sea_orm;
#[cfg(any(feature = "sqlx-0_8", feature = "sqlx-0_9"))]
mod sqlx;
mod tokio_postgres;

#[cfg(feature = "diesel-async")]
pub use self::diesel_async::DieselTx;
pub use self::tokio_postgres::ClientTx;
use crate::Error;
use std::{future::Future, pin::Pin};

/// A future that can be sent to another thread, in a box.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One argument of a statement. Text is bound as `text`; the statement casts it to what it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Bound as `text`.
    Text(Option<&'a str>),
    /// Bound as `bytea`.
    Bytes(Option<&'a [u8]>),
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Some(text))
    }
}

impl<'a> From<Option<&'a str>> for Value<'a> {
    fn from(text: Option<&'a str>) -> Self {
        Self::Text(text)
    }
}

/// An open transaction of any driver: pass `&mut tx`, the one that also writes your business rows.
///
/// Implemented for `tokio_postgres::Transaction`, `deadpool_postgres::Transaction` and [`ClientTx`], and by features:
/// - `sqlx-0_9`, `sqlx-0_8`: `sqlx::PgTransaction`, and `sqlx::PgConnection` if a transaction is open on it;
/// - `sea-orm` (2): `DatabaseTransaction`, and the `&DatabaseTransaction` of its closures: `&mut tx` of a `let mut tx = tx`;
/// - `diesel-async` (0.9): `AsyncPgConnection` if diesel began a transaction on it: `connection.transaction(..)`.
///
/// Where only the connection is seen and no transaction is open, the answer is [`Error::NoTransaction`]. One that was begun
/// by a statement of your own is not seen.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an open transaction",
    label = "pass `&mut tx`, the transaction that also writes your business rows",
    note = "with a pool or an autocommit connection this would be a second write"
)]
pub trait Tx: Send {
    /// Runs one statement and returns the columns of its first row as text; nothing if it has no row.
    ///
    /// # Errors
    /// When the statement fails, PostgreSQL refuses everything in this transaction but a rollback.
    fn call<'a>(
        &'a mut self,
        sql: &'static str,
        args: &'a [Value<'a>],
    ) -> BoxFuture<'a, Result<Vec<Option<String>>, Error>>;
}

/// A transaction that owns its connection, so that it can be committed by whoever holds it.
pub trait OwnedTx: Tx + 'static {
    /// Commits. Once this was polled the commit is carried to its end even if the future is dropped.
    ///
    /// # Errors
    /// [`Error::CommitUnknown`] when the connection broke before the answer: it may have committed.
    /// [`Error::RolledBack`] and [`Error::Database`] are definite: nothing of it is there.
    ///
    /// `Ok` is as good as the driver's: PostgreSQL answers the COMMIT of a failed transaction with ROLLBACK, and sqlx hides
    /// that. So never swallow the error of a statement before it. Where Outlast commits, the seal is that statement.
    fn commit(self) -> BoxFuture<'static, Result<(), Error>>;

    /// Runs a last statement, which takes no arguments and answers nothing, and commits: in one message to the server, so
    /// that there is no moment and no round trip between the two. Gives the transaction back unused where the driver has no
    /// such message; then run the statement and [`commit`](OwnedTx::commit).
    ///
    /// Once this was polled it is carried to its end even if the future is dropped.
    ///
    /// # Errors
    /// Of the future: those of [`OwnedTx::commit`], and that of the statement, which is definite: nothing is there.
    fn commit_after(self, last: String) -> Result<BoxFuture<'static, Result<(), Error>>, Self>
    where
        Self: Sized,
    {
        let _ = last;
        Err(self)
    }

    /// Undoes everything. Dropping the transaction does so too, but without telling when.
    fn rollback(self) -> BoxFuture<'static, Result<(), Error>>;
}

/// Where Outlast begins and commits for you: `deadpool_postgres::Pool`, and by features `sqlx::PgPool` (`sqlx-0_9`,
/// `sqlx-0_8`), `sea_orm::DatabaseConnection` (`sea-orm`), `diesel_async::pooled_connection::deadpool::Pool` (`diesel-async`).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a pool that Outlast can begin a transaction on",
    note = "pass `&deadpool_postgres::Pool` or, with the feature of your driver, the pool of sqlx, sea-orm or diesel-async"
)]
pub trait Pool: Clone + Send + Sync + 'static {
    /// The transaction it gives.
    type Tx: OwnedTx;

    /// Whether [`Pool::begin`] begins with [`BEGIN`], which lets a seal see that its transaction is still the same one.
    const MARKS: bool = false;

    /// Takes a connection and begins a transaction on it.
    ///
    /// Dropping the future never leaves a transaction open behind it. How long to wait for a connection is the pool's
    /// own setting, or the caller's who drops the future.
    fn begin(&self) -> BoxFuture<'static, Result<Self::Tx, Error>>;
}

/// Marks an open transaction; the mark ends with it.
#[cfg(feature = "sea-orm")]
const MARK: &str = "set local outlast.begun = 'yes'";

/// Begins a transaction with a mark that ends with it, in one message.
///
/// A handler that runs `commit` or `rollback` by itself would have the seal after it commit alone, without its effects.
/// The seal looks for the mark. (The time will not do: in the extended protocol a statement that is its own transaction
/// also starts later than that transaction.)
pub const BEGIN: &str = "begin; set local outlast.begun = 'yes'";

/// Carries a future to its end even if the caller goes away: half a BEGIN or COMMIT is worse than an unwanted one.
#[cfg(any(
    feature = "diesel-async",
    feature = "sea-orm",
    feature = "sqlx-0_8",
    feature = "sqlx-0_9"
))]
async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    match ::tokio::spawn(work).await {
        Ok(done) => done,
        Err(stopped) => Err(Error::Database(crate::error::DatabaseError::new(
            None, stopped,
        ))),
    }
}
