//! `on` and `on_raw`: a handler with outside effects. It may run twice; the engine seals its event afterwards.

use super::{About, Context, Delivery, End, One, SealState, around::run};
use crate::attempt::{Attempt, Raw, Shape};
use outlast_core::{Consumable, Failure, Outcome};
use std::{future::Future, marker::PhantomData, sync::Arc};
use tokio::task::JoinHandle;

pub(crate) struct EffectHandler<E, F> {
    handle: F,
    event: PhantomData<fn(E)>,
}

impl<E, F> EffectHandler<E, F> {
    pub(crate) fn new(handle: F) -> Self {
        Self {
            handle,
            event: PhantomData,
        }
    }
}

/// As [`EffectHandler`], for events of any type.
pub(crate) struct RawHandler<F>(pub(crate) F);

impl<S, F, Fut, R> One<S> for RawHandler<F>
where
    S: Send + 'static,
    F: Fn(S, Attempt<Raw>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, Failure>> + Send + 'static,
    R: Into<Outcome>,
{
    fn start(self: Arc<Self>, context: Context, state: S, delivery: Delivery) -> JoinHandle<End> {
        tokio::spawn(async move {
            let about = About::new(&context, &delivery, 1);
            let seal = delivery.seal.clone();
            let attempt = Attempt::raw(delivery);
            let work = Box::pin(async move { (self.0)(state, attempt).await.map(Into::into) });
            let result = run(context.around.as_ref(), &about, work).await;
            judge(seal.take(), result)
        })
    }
}

impl<S, E, F, Fut, R> One<S> for EffectHandler<E, F>
where
    S: Send + 'static,
    E: Consumable,
    F: Fn(S, Attempt<E>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, Failure>> + Send + 'static,
    R: Into<Outcome>,
{
    fn start(self: Arc<Self>, context: Context, state: S, delivery: Delivery) -> JoinHandle<End> {
        tokio::spawn(async move {
            let about = About::new(&context, &delivery, 1);
            let seal = delivery.seal.clone();
            let attempt = match Attempt::<E>::open(delivery, Shape::of_event()).await {
                Ok(attempt) => attempt,
                Err(unread) => return unread.into(),
            };
            let work = Box::pin(async move { (self.handle)(state, attempt).await.map(Into::into) });
            let result = run(context.around.as_ref(), &about, work).await;
            judge(seal.take(), result)
        })
    }
}

/// What the handler did to the seal counts more than what it returned.
pub(super) fn judge(seal: SealState, result: Result<Outcome, Failure>) -> End {
    match (seal, result) {
        (SealState::Sealed, result) => {
            if let Err(failure) = result {
                tracing::warn!(%failure, "a handler failed after it had sealed its event, which stays complete");
            }
            End::Sealed(Outcome::Done)
        }
        (SealState::Unsure(xid), _) => End::Unsure { xid },
        (SealState::Refused(error), _) => End::Refused(error),
        (SealState::Open | SealState::Engine, Ok(outcome)) => End::Done(outcome),
        (SealState::Open | SealState::Engine, Err(failure)) => End::Failed(failure),
    }
}
