//! sqlx, one text for each version that is supported.
//!
//! sqlx hides the tag of COMMIT. It need not be seen where Outlast commits: the seal is the statement before it, and in a
//! failed transaction the seal fails. sqlx's own `begin()` is not safe to drop (its issues 4385, 4393), so it is not dropped.

macro_rules! adapter {
    ($sqlx:ident) => {
        use crate::{
            Error,
            tx::{BEGIN, BoxFuture, OwnedTx, Pool, Tx, Value, to_the_end},
        };
        use ::$sqlx as sqlx;
        use sqlx::{Connection, PgConnection, PgPool, Row};

        type PgTransaction<'c> = sqlx::Transaction<'c, sqlx::Postgres>;

        async fn call(
            connection: &mut PgConnection,
            sql: &'static str,
            args: &[Value<'_>],
        ) -> Result<Vec<Option<String>>, Error> {
            let mut query = sqlx::query(sql);
            for arg in args {
                query = match *arg {
                    Value::Text(text) => query.bind(text),
                    Value::Bytes(bytes) => query.bind(bytes),
                };
            }
            let Some(row) = query.fetch_optional(connection).await? else {
                return Ok(Vec::new());
            };
            (0..row.len())
                .map(|column| Ok(row.try_get(column)?))
                .collect()
        }

        impl Tx for PgTransaction<'_> {
            fn call<'a>(
                &'a mut self,
                sql: &'static str,
                args: &'a [Value<'a>],
            ) -> BoxFuture<'a, Result<Vec<Option<String>>, Error>> {
                Box::pin(call(self, sql, args))
            }
        }

        impl Tx for PgConnection {
            fn call<'a>(
                &'a mut self,
                sql: &'static str,
                args: &'a [Value<'a>],
            ) -> BoxFuture<'a, Result<Vec<Option<String>>, Error>> {
                Box::pin(async move {
                    if !self.is_in_transaction() {
                        return Err(Error::NoTransaction);
                    }
                    call(self, sql, args).await
                })
            }
        }

        impl OwnedTx for PgTransaction<'static> {
            fn commit(self) -> BoxFuture<'static, Result<(), Error>> {
                Box::pin(to_the_end(async move {
                    let committed = sqlx::Transaction::commit(self).await;
                    committed.map_err(|error| Error::from(error).from_commit())
                }))
            }

            fn rollback(self) -> BoxFuture<'static, Result<(), Error>> {
                Box::pin(async move { Ok(sqlx::Transaction::rollback(self).await?) })
            }
        }

        impl Pool for PgPool {
            type Tx = PgTransaction<'static>;

            const MARKS: bool = true;

            fn begin(&self) -> BoxFuture<'static, Result<Self::Tx, Error>> {
                let pool = self.clone();
                Box::pin(to_the_end(async move { Ok(pool.begin_with(BEGIN).await?) }))
            }
        }
    };
}

#[cfg(feature = "sqlx-0_8")]
mod v0_8 {
    adapter!(sqlx_0_8);
}

#[cfg(feature = "sqlx-0_9")]
mod v0_9 {
    adapter!(sqlx);
}
