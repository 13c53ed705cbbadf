//! A job's handler. It may run twice; the engine completes the job afterwards, unless the handler has sealed it by itself.

use super::{About, Context, Delivery, End, One, around::run, effect::judge};
use crate::attempt::{Attempt, Shape};
use outlast_core::{Failure, Job, Outcome};
use std::{future::Future, marker::PhantomData, sync::Arc};
use tokio::task::JoinHandle;

pub(crate) struct JobHandler<J, F> {
    handle: F,
    job: PhantomData<fn(J)>,
}

impl<J, F> JobHandler<J, F> {
    pub(crate) fn new(handle: F) -> Self {
        Self {
            handle,
            job: PhantomData,
        }
    }
}

impl<S, J, F, Fut, R> One<S> for JobHandler<J, F>
where
    S: Send + 'static,
    J: Job,
    F: Fn(S, Attempt<J>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, Failure>> + Send + 'static,
    R: Into<Outcome>,
{
    fn start(self: Arc<Self>, context: Context, state: S, delivery: Delivery) -> JoinHandle<End> {
        tokio::spawn(async move {
            let about = About::new(&context, &delivery, 1);
            let seal = delivery.seal.clone();
            let attempt = match Attempt::<J>::open(delivery, Shape::of_job()).await {
                Ok(attempt) => attempt,
                Err(unread) => return unread.into(),
            };
            let work = Box::pin(async move { (self.handle)(state, attempt).await.map(Into::into) });
            let result = run(context.around.as_ref(), &about, work).await;
            judge(seal.take(), result)
        })
    }
}
