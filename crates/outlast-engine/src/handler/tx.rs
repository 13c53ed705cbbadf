//! `on_tx`: one event in one transaction of the user's pool, which we begin, seal and commit.

use super::{About, Context, Delivery, End, One, Probe, SealState, around::run, seal};
use crate::{
    attempt::{Attempt, Shape},
    consumer::TxFn,
    crash::{self, Point},
};
use outlast_core::{Consumable, Outcome};
use outlast_postgres::{
    Error,
    tx::{BoxFuture, OwnedTx, Pool, Tx},
};
use std::{marker::PhantomData, sync::Arc};
use tokio::task::JoinHandle;

pub(crate) struct TxHandler<P, E, F> {
    pool: P,
    handle: F,
    event: PhantomData<fn(E)>,
}

impl<P, E, F> TxHandler<P, E, F> {
    pub(crate) fn new(pool: P, handle: F) -> Self {
        Self {
            pool,
            handle,
            event: PhantomData,
        }
    }
}

impl<S, P, E, F> One<S> for TxHandler<P, E, F>
where
    S: Send + 'static,
    P: Pool,
    E: Consumable,
    F: for<'t> TxFn<'t, S, P::Tx, Attempt<E>>,
{
    fn start(self: Arc<Self>, context: Context, state: S, delivery: Delivery) -> JoinHandle<End> {
        tokio::spawn(async move {
            let about = About::new(&context, &delivery, 1);
            delivery.seal.set(SealState::Engine);
            let attempt = match Attempt::<E>::open(delivery.clone(), Shape::of_event()).await {
                Ok(attempt) => attempt,
                Err(unread) => return unread.into(),
            };
            let mut tx = match begin(&self.pool, &delivery).await {
                Ok(tx) => tx,
                Err(end) => return end,
            };
            let work: BoxFuture<'_, _> = Box::pin(async {
                let result = self.handle.call(state, &mut tx, attempt).await;
                result.map(Into::into)
            });
            let outcome = match run(context.around.as_ref(), &about, work).await {
                Ok(outcome) => outcome,
                Err(failure) => return undo(tx, End::Failed(failure)).await,
            };
            complete::<P>(tx, &delivery, outcome).await
        })
    }
}

/// The seal and COMMIT: in one message where that can be.
async fn complete<P: Pool>(mut tx: P::Tx, delivery: &Delivery, outcome: Outcome) -> End {
    if let Some(last) = seal::last(delivery, &outcome, P::MARKS) {
        crash::at(Point::Sealing);
        match tx.commit_after(last) {
            Ok(committed) => return ended(committed.await.map_err(seal::own), None, outcome),
            Err(unused) => tx = unused,
        }
    }
    match seal::one(&mut tx, delivery, &outcome, P::MARKS).await {
        Ok(xid) => commit(tx, xid, outcome).await,
        Err(error) => undo(tx, refused(error)).await,
    }
}

/// A transaction, unless the try is given up before a connection is free. Waiting is not an attempt.
pub(super) async fn begin<P: Pool>(pool: &P, delivery: &Delivery) -> Result<P::Tx, End> {
    tokio::select! {
        biased;
        () = delivery.lost.cancelled() => Err(End::NotStarted),
        begun = pool.begin() => begun.map_err(End::NoTransaction).inspect(|_| crash::at(Point::Begun)),
        () = tokio::time::sleep_until(delivery.deadline) => Err(End::NoTransaction(Error::PoolExhausted)),
    }
}

/// How a sealed transaction ended.
pub(super) async fn commit(tx: impl OwnedTx, xid: Option<u64>, outcome: Outcome) -> End {
    ended(tx.commit().await, xid, outcome)
}

/// What COMMIT, or a seal in the same message with it, has answered.
fn ended(answer: Result<(), Error>, xid: Option<u64>, outcome: Outcome) -> End {
    match answer {
        Ok(()) => {
            crash::at(Point::Committed);
            End::Sealed(outcome)
        }
        Err(Error::CommitUnknown(error)) => {
            tracing::warn!(%error, xid, "no answer to commit: looking for the seal");
            End::Unsure { xid }
        }
        Err(error) => refused(error),
    }
}

/// Rolls back, and keeps the reason why.
pub(super) async fn undo(tx: impl OwnedTx, end: End) -> End {
    if let Err(error) = tx.rollback().await {
        tracing::debug!(%error, "the server undoes what could not be rolled back by hand");
    }
    end
}

pub(super) fn refused(error: Error) -> End {
    if seal::is_refusal(&error) {
        End::Refused(error)
    } else {
        End::Failed(seal::failure(&error))
    }
}

/// The user's pool, asked which database it leads to.
pub(crate) struct Through<P>(pub(crate) P);

impl<P: Pool> Probe for Through<P> {
    fn ask(&self, sql: &'static str) -> BoxFuture<'static, Result<Vec<Option<String>>, Error>> {
        let begun = self.0.begin();
        Box::pin(async move {
            let mut tx = begun.await?;
            let row = tx.call(sql, &[]).await;
            tx.rollback().await?;
            row
        })
    }
}
