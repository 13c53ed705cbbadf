//! diesel-async 0.9.
//!
//! A transaction is a state of the connection here, so it is looked for at run time, where diesel keeps it: one that was
//! begun by hand (`batch_execute("begin")`) is none. diesel hides most SQLSTATEs: see `error/hidden.rs`.

use super::{BEGIN, BoxFuture, OwnedTx, Pool, Tx, Value, to_the_end};
use crate::Error;
use diesel::{
    deserialize::{FromSql, QueryableByName},
    pg::Pg,
    result::{DatabaseErrorKind, Error as DieselError},
    row::{Field, NamedRow, Row},
    sql_types::{Binary, Nullable, Text},
};
use diesel_async::{
    AnsiTransactionManager, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection,
    TransactionManager, pooled_connection::deadpool,
};
use std::{
    fmt,
    ops::{Deref, DerefMut},
};

/// A row whose columns are all text.
struct Columns(Vec<Option<String>>);

impl QueryableByName<Pg> for Columns {
    fn build<'a>(row: &impl NamedRow<'a, Pg>) -> diesel::deserialize::Result<Self> {
        let columns = (0..row.field_count()).map(|nth| {
            let value = Row::get(row, nth).ok_or("a column is missing")?;
            <Option<String> as FromSql<Nullable<Text>, Pg>>::from_nullable_sql(value.value())
        });
        columns.collect::<Result<_, _>>().map(Self)
    }
}

/// Whether diesel began a transaction on this connection and it is still open.
fn is_open(connection: &mut AsyncPgConnection) -> Result<bool, Error> {
    let status = AnsiTransactionManager::transaction_manager_status_mut(connection);
    Ok(status.transaction_depth()?.is_some())
}

impl Tx for AsyncPgConnection {
    fn call<'a>(
        &'a mut self,
        sql: &'static str,
        args: &'a [Value<'a>],
    ) -> BoxFuture<'a, Result<Vec<Option<String>>, Error>> {
        Box::pin(async move {
            if !is_open(self)? {
                return Err(Error::NoTransaction);
            }
            let mut query = diesel::sql_query(sql).into_boxed();
            for arg in args {
                query = match *arg {
                    Value::Text(text) => query.bind::<Nullable<Text>, _>(text),
                    Value::Bytes(bytes) => query.bind::<Nullable<Binary>, _>(bytes),
                };
            }
            let rows: Vec<Columns> = query.load(self).await?;
            Ok(rows.into_iter().next().map_or_else(Vec::new, |row| row.0))
        })
    }
}

/// A transaction of a diesel-async pool that owns its connection.
///
/// Derefs to the connection, so that `query.execute(&mut **tx)` works. Dropped without an end it closes the connection,
/// and the server rolls back: diesel's pool would keep it, with the transaction open, until the next borrower comes.
pub struct DieselTx {
    connection: Option<deadpool::Object<AsyncPgConnection>>,
}

const HELD: &str = "a transaction has its connection until it ends";

impl DieselTx {
    /// Gives the connection back: its transaction has ended.
    fn give_back(mut self) {
        drop(self.connection.take());
    }
}

impl fmt::Debug for DieselTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DieselTx").finish_non_exhaustive()
    }
}

impl Deref for DieselTx {
    type Target = AsyncPgConnection;

    fn deref(&self) -> &Self::Target {
        self.connection.as_ref().expect(HELD)
    }
}

impl DerefMut for DieselTx {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.connection.as_mut().expect(HELD)
    }
}

impl Drop for DieselTx {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            drop(deadpool::Object::take(connection));
        }
    }
}

impl Tx for DieselTx {
    fn call<'a>(
        &'a mut self,
        sql: &'static str,
        args: &'a [Value<'a>],
    ) -> BoxFuture<'a, Result<Vec<Option<String>>, Error>> {
        Tx::call(&mut **self, sql, args)
    }
}

impl OwnedTx for DieselTx {
    fn commit(mut self) -> BoxFuture<'static, Result<(), Error>> {
        Box::pin(to_the_end(async move {
            // COMMIT of a failed transaction answers ROLLBACK without an error and the driver hides the tag, so a
            // statement before it has to succeed.
            match self.batch_execute("select 1").await {
                Err(DieselError::DatabaseError(DatabaseErrorKind::Unknown, _)) => {
                    return Err(Error::RolledBack);
                }
                alive => alive?,
            }
            AnsiTransactionManager::commit_transaction(&mut *self)
                .await
                .map_err(|error| Error::from(error).from_commit())?;
            self.give_back();
            Ok(())
        }))
    }

    fn rollback(mut self) -> BoxFuture<'static, Result<(), Error>> {
        Box::pin(async move {
            AnsiTransactionManager::rollback_transaction(&mut *self).await?;
            self.give_back();
            Ok(())
        })
    }
}

impl Pool for deadpool::Pool<AsyncPgConnection> {
    type Tx = DieselTx;

    const MARKS: bool = true;

    fn begin(&self) -> BoxFuture<'static, Result<DieselTx, Error>> {
        let pool = self.clone();
        Box::pin(async move {
            // Waiting may be given up at any time; only BEGIN is carried to its end.
            let mut tx = DieselTx {
                connection: Some(pool.get().await?),
            };
            to_the_end(async move {
                AnsiTransactionManager::begin_transaction_sql(&mut *tx, BEGIN).await?;
                Ok(tx)
            })
            .await
        })
    }
}
