//! tokio-postgres and deadpool-postgres.
//!
//! Statements go out unnamed with their types (`query_typed`): one round trip, and right behind a transaction pooler.
//!
//! Whoever goes away inside BEGIN or COMMIT leaves the connection to its own task: what was sent is answered before it is
//! closed, so COMMIT is carried to its end and a transaction that nobody wants is rolled back by the server.

use super::{BoxFuture, OwnedTx, Pool, Tx, Value};
use crate::Error;
use ::tokio_postgres::{
    Row,
    types::{IsNull, ToSql, Type, to_sql_checked},
};
use bytes::BytesMut;
use std::{fmt, ops::Deref};

impl ToSql for Value<'_> {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Self::Text(text) => text.to_sql(ty, out),
            Self::Bytes(bytes) => bytes.to_sql(ty, out),
        }
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TEXT || *ty == Type::BYTEA
    }

    to_sql_checked!();
}

fn typed<'a>(args: &'a [Value<'a>]) -> Vec<(&'a (dyn ToSql + Sync), Type)> {
    let ty = |value: &Value<'_>| match value {
        Value::Text(_) => Type::TEXT,
        Value::Bytes(_) => Type::BYTEA,
    };
    args.iter()
        .map(|value| (value as &(dyn ToSql + Sync), ty(value)))
        .collect()
}

fn first(rows: &[Row]) -> Result<Vec<Option<String>>, Error> {
    let Some(row) = rows.first() else {
        return Ok(Vec::new());
    };
    (0..row.len())
        .map(|column| Ok(row.try_get(column)?))
        .collect()
}

impl Tx for ::tokio_postgres::Transaction<'_> {
    fn call<'a>(
        &'a mut self,
        sql: &'static str,
        args: &'a [Value<'a>],
    ) -> BoxFuture<'a, Result<Vec<Option<String>>, Error>> {
        Box::pin(async move { first(&self.query_typed(sql, &typed(args)).await?) })
    }
}

impl Tx for deadpool_postgres::Transaction<'_> {
    fn call<'a>(
        &'a mut self,
        sql: &'static str,
        args: &'a [Value<'a>],
    ) -> BoxFuture<'a, Result<Vec<Option<String>>, Error>> {
        Box::pin(async move { first(&self.query_typed(sql, &typed(args)).await?) })
    }
}

/// A transaction of a `deadpool_postgres::Pool` that owns its connection.
///
/// Derefs to the client, so that `tx.query(..)` and `tx.execute(..)` work. Dropped without an end it closes the
/// connection, and the server rolls back: a connection in an unknown state never goes back to the pool.
pub struct ClientTx {
    client: Option<deadpool_postgres::Client>,
}

impl ClientTx {
    /// The connection, which goes back to the pool when the caller drops it.
    fn take(&mut self) -> deadpool_postgres::Client {
        // Invariant: it is there until `commit`, `rollback` or `drop`, which consume the transaction.
        self.client
            .take()
            .expect("a transaction has its connection until it ends")
    }
}

impl fmt::Debug for ClientTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTx").finish_non_exhaustive()
    }
}

impl Deref for ClientTx {
    type Target = deadpool_postgres::ClientWrapper;

    fn deref(&self) -> &Self::Target {
        self.client
            .as_ref()
            .expect("a transaction has its connection until it ends")
    }
}

impl Drop for ClientTx {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            drop(deadpool_postgres::Client::take(client));
        }
    }
}

impl Tx for ClientTx {
    fn call<'a>(
        &'a mut self,
        sql: &'static str,
        args: &'a [Value<'a>],
    ) -> BoxFuture<'a, Result<Vec<Option<String>>, Error>> {
        Box::pin(async move { first(&self.query_typed(sql, &typed(args)).await?) })
    }
}

impl OwnedTx for ClientTx {
    fn commit(mut self) -> BoxFuture<'static, Result<(), Error>> {
        Box::pin(async move {
            // COMMIT of a failed transaction answers ROLLBACK without an error and the driver hides the tag, so a
            // statement before it, in the same message, has to succeed first.
            self.batch_execute("select 1; commit")
                .await
                .map_err(|error| Error::from(error).from_commit())?;
            drop(self.take());
            Ok(())
        })
    }

    fn commit_after(mut self, last: String) -> Result<BoxFuture<'static, Result<(), Error>>, Self> {
        Ok(Box::pin(async move {
            // What comes first in the message has to succeed before the rest of it is run: see `commit`.
            match self.batch_execute(&format!("{last}; commit")).await {
                Ok(()) => {
                    drop(self.take());
                    Ok(())
                }
                Err(error) => {
                    let refused = error.as_db_error().is_some();
                    if refused && self.batch_execute("rollback").await.is_ok() {
                        drop(self.take());
                    }
                    Err(Error::from(error).from_commit())
                }
            }
        }))
    }

    fn rollback(mut self) -> BoxFuture<'static, Result<(), Error>> {
        Box::pin(async move {
            self.batch_execute("rollback").await?;
            drop(self.take());
            Ok(())
        })
    }
}

impl Pool for deadpool_postgres::Pool {
    type Tx = ClientTx;

    const MARKS: bool = true;

    fn begin(&self) -> BoxFuture<'static, Result<ClientTx, Error>> {
        let pool = self.clone();
        Box::pin(async move {
            let tx = ClientTx {
                client: Some(pool.get().await?),
            };
            tx.batch_execute(super::BEGIN).await?;
            Ok(tx)
        })
    }
}
