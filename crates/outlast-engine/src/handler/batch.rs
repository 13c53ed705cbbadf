//! `on_batch`: many events in one transaction of the user's pool, which we begin, seal and commit.

use super::{
    About, BatchEnd, Context, Delivery, End, Many, SealState,
    around::run,
    seal,
    tx::{begin, commit, refused, undo},
};
use crate::{
    attempt::{Attempt, Shape, Unread},
    consumer::BatchFn,
};
use outlast_core::{Consumable, Failure, Outcome};
use outlast_postgres::tx::{BoxFuture, Pool};
use std::{marker::PhantomData, sync::Arc};
use tokio::task::JoinHandle;
use uuid::Uuid;

pub(crate) struct BatchHandler<P, E, F> {
    pool: P,
    handle: F,
    event: PhantomData<fn(E)>,
}

impl<P, E, F> BatchHandler<P, E, F> {
    pub(crate) fn new(pool: P, handle: F) -> Self {
        Self {
            pool,
            handle,
            event: PhantomData,
        }
    }
}

impl<S, P, E, F> Many<S> for BatchHandler<P, E, F>
where
    S: Send + 'static,
    P: Pool,
    E: Consumable,
    F: for<'t> BatchFn<'t, S, P::Tx, Vec<Attempt<E>>>,
{
    fn start(
        self: Arc<Self>,
        context: Context,
        state: S,
        deliveries: Vec<Delivery>,
    ) -> JoinHandle<BatchEnd> {
        tokio::spawn(async move {
            let (attempts, unreadable, erased) = read::<E>(&deliveries).await;
            if context.ordered && !unreadable.is_empty() && deliveries.len() > 1 {
                // Later events of its key have to wait behind it: found out one by one.
                let ids = deliveries.iter().map(|delivery| delivery.event.id);
                let failure = Failure::unclassified("one of these cannot be read");
                return BatchEnd::all(ids.collect(), End::Failed(failure));
            }
            let ids: Vec<_> = attempts.iter().map(Attempt::id).collect();
            let end = match deliveries.first() {
                Some(first) if !attempts.is_empty() => {
                    self.handle(context, state, first, attempts, &ids).await
                }
                _ => End::Sealed(Outcome::Done),
            };
            BatchEnd {
                failed: unreadable,
                erased,
                ..BatchEnd::all(ids, end)
            }
        })
    }
}

impl<P, E, F> BatchHandler<P, E, F> {
    async fn handle<S>(
        &self,
        context: Context,
        state: S,
        first: &Delivery,
        attempts: Vec<Attempt<E>>,
        ids: &[Uuid],
    ) -> End
    where
        S: Send + 'static,
        P: Pool,
        E: Consumable,
        F: for<'t> BatchFn<'t, S, P::Tx, Vec<Attempt<E>>>,
    {
        let about = About::new(&context, first, ids.len());
        let mut tx = match begin(&self.pool, first).await {
            Ok(tx) => tx,
            Err(end) => return end,
        };
        let work: BoxFuture<'_, _> = Box::pin(async {
            let result = self.handle.call(state, &mut tx, attempts).await;
            result.map(Into::into)
        });
        let outcome = match run(context.around.as_ref(), &about, work).await {
            Ok(outcome) => outcome,
            Err(failure) => return undo(tx, End::Failed(failure)).await,
        };
        match seal::many(&mut tx, first.schema, first.token, ids, P::MARKS).await {
            Ok(xid) => commit(tx, xid, outcome).await,
            Err(error) => undo(tx, refused(error)).await,
        }
    }
}

type Read<E> = (Vec<Attempt<E>>, Vec<(Uuid, Failure)>, Vec<Uuid>);

/// One event that cannot be read does not hold up the others.
async fn read<E: Consumable>(deliveries: &[Delivery]) -> Read<E> {
    let mut attempts = Vec::with_capacity(deliveries.len());
    let (mut unreadable, mut erased) = (Vec::new(), Vec::new());
    for delivery in deliveries {
        delivery.seal.set(SealState::Engine);
        let id = delivery.event.id;
        match Attempt::open(delivery.clone(), Shape::of_event()).await {
            Ok(attempt) => attempts.push(attempt),
            Err(Unread::Failed(failure)) => unreadable.push((id, failure)),
            Err(Unread::Erased) => erased.push(id),
        }
    }
    (attempts, unreadable, erased)
}
