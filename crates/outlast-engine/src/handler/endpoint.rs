//! `push`: a handler outside of this process. It answers, or accepts the event and completes it by itself, in a transaction
//! of its own; then the try goes on until that is there.

use std::sync::Arc;

use outlast_core::{
    Failure, Outcome,
    endpoint::{Answer, Endpoint, Pushed},
};
use outlast_postgres::{Error, store::Seen};
use tokio::{task::JoinHandle, time::Instant};

use super::{About, Context, Delivery, End, One, SealState, around::run, effect::judge};

/// What [`Consumer::push`](crate::Consumer::push) registers.
pub(crate) struct EndpointHandler(pub(crate) Arc<dyn Endpoint>);

impl<S: Send + 'static> One<S> for EndpointHandler {
    fn is_outside(&self) -> bool {
        true
    }

    fn start(self: Arc<Self>, context: Context, _: S, delivery: Delivery) -> JoinHandle<End> {
        tokio::spawn(async move {
            let about = About::new(&context, &delivery, 1);
            let seal = delivery.seal.clone();
            let work = Box::pin(push(self.0.as_ref(), &context, delivery));
            let result = run(context.around.as_ref(), &about, work).await;
            judge(seal.take(), result)
        })
    }
}

async fn push(
    endpoint: &dyn Endpoint,
    context: &Context,
    delivery: Delivery,
) -> Result<Outcome, Failure> {
    let event = &delivery.event;
    let mut pushed = Pushed::new(
        context.consumer.clone(),
        event.envelope(),
        event.payload.clone(),
        delivery.token,
    );
    pushed.attempt = delivery.number;
    let within = delivery.deadline.saturating_duration_since(Instant::now());
    match endpoint.push(&pushed, within).await? {
        Answer::Ended(outcome) => Ok(outcome),
        Answer::Accepted => accepted(context, &delivery).await,
    }
}

/// Waits for the completion that the endpoint makes. A drain does not end this: what is not complete when the drain is over
/// is given back, and may be completed until somebody else takes it.
async fn accepted(context: &Context, delivery: &Delivery) -> Result<Outcome, Failure> {
    let (token, id) = (delivery.token, delivery.event.id);
    let Some(accepted) = &context.accepted else {
        return Err(Failure::retry(
            "accepted, and nobody looks for its completion",
        ));
    };
    let seen = accepted.ended(token, id);
    match tokio::time::timeout_at(delivery.deadline, seen).await {
        Ok(Seen::Sealed) => {
            delivery.seal.set(SealState::Sealed);
            Ok(Outcome::Done)
        }
        // Its own call of `outlast.fail` has recorded the reason; ours is refused then.
        Ok(Seen::Failed) => Err(Failure::retry(
            "the endpoint has failed what it had accepted",
        )),
        Ok(Seen::Lost) => {
            delivery.seal.set(SealState::Refused(Error::LeaseLost));
            Err(Failure::retry(
                "the lease was lost after the event was accepted",
            ))
        }
        // One that commits at this very moment counts: a failure is not recorded over a seal.
        Err(_) => Err(Failure::retry(
            "accepted by the endpoint, and not completed before the deadline",
        )),
    }
}
