//! sea-orm 2, which is built on sqlx 0.9: what is said there about COMMIT and `begin()` holds here too.

use super::{BoxFuture, OwnedTx, Pool, Tx, Value, to_the_end};
use crate::Error;
use sea_orm::{
    ConnectionTrait, DatabaseConnection, DatabaseTransaction, DbBackend, Statement,
    TransactionTrait, sqlx::Row,
};

fn bound(value: &Value<'_>) -> sea_orm::Value {
    match *value {
        Value::Text(text) => text.map(str::to_owned).into(),
        Value::Bytes(bytes) => bytes.map(<[u8]>::to_vec).into(),
    }
}

async fn call(
    tx: &DatabaseTransaction,
    sql: &'static str,
    args: &[Value<'_>],
) -> Result<Vec<Option<String>>, Error> {
    postgres(tx)?;
    let statement =
        Statement::from_sql_and_values(DbBackend::Postgres, sql, args.iter().map(bound));
    let Some(row) = tx.query_one_raw(statement).await? else {
        return Ok(Vec::new());
    };
    // Invariant: a row of PostgreSQL, because the transaction is.
    let row = row.try_as_pg_row().expect("a row of PostgreSQL");
    (0..row.len())
        .map(|column| Ok(row.try_get(column)?))
        .collect()
}

/// The same type stands for the other databases of sea-orm.
fn postgres(connection: &impl ConnectionTrait) -> Result<(), Error> {
    match connection.get_database_backend() {
        DbBackend::Postgres => Ok(()),
        other => Err(Error::Config(format!(
            "the sea-orm connection is to {other:?}: Outlast works on PostgreSQL"
        ))),
    }
}

impl Tx for DatabaseTransaction {
    fn call<'a>(
        &'a mut self,
        sql: &'static str,
        args: &'a [Value<'a>],
    ) -> BoxFuture<'a, Result<Vec<Option<String>>, Error>> {
        Box::pin(call(self, sql, args))
    }
}

/// What the closure of sea-orm's `transaction` gets: say `let mut tx = tx;` and pass `&mut tx`.
impl Tx for &DatabaseTransaction {
    fn call<'a>(
        &'a mut self,
        sql: &'static str,
        args: &'a [Value<'a>],
    ) -> BoxFuture<'a, Result<Vec<Option<String>>, Error>> {
        Box::pin(call(self, sql, args))
    }
}

impl OwnedTx for DatabaseTransaction {
    fn commit(self) -> BoxFuture<'static, Result<(), Error>> {
        Box::pin(to_the_end(async move {
            let committed = DatabaseTransaction::commit(self).await;
            committed.map_err(|error| Error::from(error).from_commit())
        }))
    }

    fn rollback(self) -> BoxFuture<'static, Result<(), Error>> {
        Box::pin(async move { Ok(DatabaseTransaction::rollback(self).await?) })
    }
}

impl Pool for DatabaseConnection {
    type Tx = DatabaseTransaction;

    const MARKS: bool = true;

    fn begin(&self) -> BoxFuture<'static, Result<Self::Tx, Error>> {
        let pool = self.clone();
        Box::pin(to_the_end(async move {
            postgres(&pool)?;
            let tx = TransactionTrait::begin(&pool).await?;
            tx.execute_unprepared(super::MARK).await?;
            Ok(tx)
        }))
    }
}
