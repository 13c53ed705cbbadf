//! A pool whose COMMIT is not to be believed: what careless drivers and middleware do.
//!
//! Outlast asks the pool to commit, the pool says that it has, and the seal is not there. The batch must end by what the
//! tables say.

use std::{
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use outlast_postgres::{
    Error,
    tx::{BoxFuture, OwnedTx, Pool, Tx, Value},
};

/// How it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Rolls back to a savepoint from before the handler, then commits: COMMIT is honest, and nothing is in it.
    Savepoint,
    /// A statement fails after the seal, COMMIT is answered by ROLLBACK, and that is taken for an answer.
    Failed,
}

impl Lie {
    /// Its word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Savepoint => "savepoint",
            Self::Failed => "failed",
        }
    }
}

impl FromStr for Lie {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let known = [Self::Savepoint, Self::Failed]
            .into_iter()
            .find(|lie| lie.as_str() == word);
        known.ok_or_else(|| format!("`{word}` is not a lie"))
    }
}

/// A pool, each nth transaction of which is lied about; none if that is 0.
#[derive(Clone, Debug)]
pub(super) struct Lying<P> {
    pool: P,
    lie: Lie,
    every: u32,
    begun: Arc<AtomicU32>,
}

impl<P> Lying<P> {
    pub(super) fn new(pool: P, lie: Lie, every: u32) -> Self {
        // The first one is the engine's own question.
        let begun = Arc::new(AtomicU32::new(0));
        Self {
            pool,
            lie,
            every,
            begun,
        }
    }
}

/// Its transaction.
pub(super) struct LyingTx<T> {
    tx: T,
    lie: Option<Lie>,
}

impl<P: Pool> Pool for Lying<P> {
    const MARKS: bool = P::MARKS;
    type Tx = LyingTx<P::Tx>;

    fn begin(&self) -> BoxFuture<'static, Result<Self::Tx, Error>> {
        let nth = self.begun.fetch_add(1, Ordering::Relaxed);
        let lie = (self.every > 0 && nth % self.every == 1).then_some(self.lie);
        let begun = self.pool.begin();
        Box::pin(async move {
            let mut tx = begun.await?;
            if lie == Some(Lie::Savepoint) {
                tx.call("savepoint before_all", &[]).await?;
            }
            Ok(LyingTx { tx, lie })
        })
    }
}

impl<T: Tx> Tx for LyingTx<T> {
    fn call<'a>(
        &'a mut self,
        sql: &'static str,
        args: &'a [Value<'a>],
    ) -> BoxFuture<'a, Result<Vec<Option<String>>, Error>> {
        self.tx.call(sql, args)
    }
}

impl<T: OwnedTx> OwnedTx for LyingTx<T> {
    fn commit(self) -> BoxFuture<'static, Result<(), Error>> {
        let Self { mut tx, lie } = self;
        Box::pin(async move {
            match lie {
                Some(Lie::Savepoint) => {
                    tx.call("rollback to savepoint before_all", &[]).await?;
                    println!("lies about a commit");
                    tx.commit().await
                }
                Some(Lie::Failed) => {
                    let _ = tx.call("select (1 / 0)::text", &[]).await;
                    println!("lies about a commit");
                    match tx.commit().await {
                        Err(Error::RolledBack | Error::Database(_)) => Ok(()),
                        other => other,
                    }
                }
                None => tx.commit().await,
            }
        })
    }

    fn rollback(self) -> BoxFuture<'static, Result<(), Error>> {
        self.tx.rollback()
    }
}
