//! The reconciler of an entity: rereads how it should look, makes it look so at its provider. Each of its effects may happen twice.
//!
//! One claim is several runs where there were deletions: one for the refs of each, then one for the entity itself. A run for a deletion
//! that has returned `Ok` is recorded at once. The engine completes afterwards exactly the marks that were claimed, unless the
//! reconciler has sealed them by itself.

use super::{About, Context, Delivery, End, One, Seal, around::run, effect::judge};
use crate::attempt::{Attempt, Told};
use outlast_core::{Class, Entity, Failure, Outcome};
use outlast_postgres::store::Tombstone;
use std::{future::Future, marker::PhantomData, sync::Arc};
use tokio::{task::JoinHandle, time::Instant};

pub(crate) struct EntityHandler<E, F> {
    handle: F,
    entity: PhantomData<fn(E)>,
}

impl<E, F> EntityHandler<E, F> {
    pub(crate) fn new(handle: F) -> Self {
        Self {
            handle,
            entity: PhantomData,
        }
    }
}

impl<S, E, F, Fut, R> One<S> for EntityHandler<E, F>
where
    S: Clone + Send + Sync + 'static,
    E: Entity,
    F: Fn(S, Attempt<E>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, Failure>> + Send + 'static,
    R: Into<Outcome>,
{
    fn start(self: Arc<Self>, context: Context, state: S, delivery: Delivery) -> JoinHandle<End> {
        tokio::spawn(async move {
            let about = About::new(&context, &delivery, 1);
            let known = delivery.event.entity.clone();
            let mut told = Told::default();
            let mut failed: Option<Failure> = None;
            for tombstone in known.map(|known| known.tombstones).unwrap_or_default() {
                if let Some(end) = over(&delivery) {
                    return end;
                }
                let delivery = for_deletion(&delivery, &tombstone);
                let id = delivery.event.id;
                let end = self
                    .one(&context, &about, state.clone(), delivery.clone(), &mut told)
                    .await;
                match end {
                    End::Done(_) => {
                        let Some(keeper) = &delivery.keeper else {
                            continue;
                        };
                        if let Err(error) = keeper.cleaned(id, tombstone.id).await {
                            return End::Refused(error);
                        }
                        told.is_gone();
                    }
                    End::Sealed(_) => told.is_gone(),
                    // What cannot be taken away keeps nothing else from being converged.
                    End::Failed(failure) if failure.class != Class::Throttled => {
                        failed = Some(worse(failed, failure));
                    }
                    end => return end,
                }
            }
            if let Some(end) = over(&delivery) {
                return end;
            }
            let end = self.one(&context, &about, state, delivery, &mut told).await;
            match (end, failed) {
                (End::Failed(failure), failed) => End::Failed(worse(failed, failure)),
                (End::Done(_), Some(failure)) => End::Failed(failure),
                // What is not done has no end to write a reason into.
                (End::Done(_), None) => End::Done(Outcome::Done),
                (end, _) => end,
            }
        })
    }
}

impl<E: Entity, F> EntityHandler<E, F> {
    /// One run.
    async fn one<S, Fut, R>(
        self: &Arc<Self>,
        context: &Context,
        about: &About,
        state: S,
        delivery: Delivery,
        told: &mut Told,
    ) -> End
    where
        S: Send + 'static,
        F: Fn(S, Attempt<E>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Failure>> + Send + 'static,
        R: Into<Outcome>,
    {
        let seal = delivery.seal.clone();
        let attempt = match Attempt::<E>::told(delivery, told).await {
            Ok(attempt) => attempt,
            Err(failure) => return End::Failed(failure),
        };
        let handler = self.clone();
        let work = Box::pin(async move { (handler.handle)(state, attempt).await.map(Into::into) });
        let result = run(context.around.as_ref(), about, work).await;
        judge(seal.take(), result)
    }
}

/// The same try, for the refs of a deletion.
fn for_deletion(delivery: &Delivery, tombstone: &Tombstone) -> Delivery {
    Delivery {
        tombstone: Some(tombstone.clone()),
        seal: Seal::default(),
        ..delivery.clone()
    }
}

/// The end of a try that is to do nothing more.
fn over(delivery: &Delivery) -> Option<End> {
    if delivery.lost.is_cancelled() {
        return Some(End::NotStarted);
    }
    let late = Instant::now() >= delivery.deadline;
    late.then(|| End::Failed(Failure::retry("the deadline has passed between two runs")))
}

/// As long as one of them may be mended by another try, there is one.
fn worse(one: Option<Failure>, other: Failure) -> Failure {
    match one {
        Some(one) if one.class != Class::Permanent || other.class == Class::Permanent => one,
        _ => other,
    }
}
