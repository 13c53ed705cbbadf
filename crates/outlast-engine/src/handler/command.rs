//! What is done with a command: sent, looked up, polled. What its provider answers is recorded by the try itself, also when nobody
//! waits for it any more: an answer that comes late is never dropped.

use std::{future::Future, marker::PhantomData, sync::Arc, time::Duration};

use outlast_core::{Command, Failure, Found, Outcome, Sent, command::Policy, text};
use outlast_postgres::{
    Error,
    command::ANSWER_LIMIT,
    store::{Answered, CommandDue},
};
use serde::Serialize;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::{About, Context, Delivery, End, One, around};
use crate::{
    attempt::{Attempt, ERASED, Shape, Unread},
    crash::{self, Point},
    run::record,
};

/// How often an answer is tried to be recorded while the database is away. Its lease has lapsed long before.
const RECORDS: u32 = 60;

/// What this process can do with the commands of a name.
pub(crate) struct Commands<S> {
    pub(crate) send: Arc<dyn One<S>>,
    pub(crate) look: Option<Arc<dyn One<S>>>,
    pub(crate) poll: Option<Arc<dyn One<S>>>,
    pub(crate) every: Option<Duration>,
    pub(crate) policy: Policy,
    pub(crate) replays: bool,
}

impl<S> Commands<S> {
    /// What does this, if anything can.
    pub(crate) fn of(&self, due: CommandDue) -> Option<&Arc<dyn One<S>>> {
        match due {
            CommandDue::Send => Some(&self.send),
            CommandDue::Look => self.look.as_ref(),
            CommandDue::Poll => self.poll.as_ref(),
        }
    }
}

/// One of these functions.
pub(crate) struct CommandHandler<C, F, R> {
    handle: F,
    types: PhantomData<fn(C) -> R>,
}

impl<C, F, R> CommandHandler<C, F, R> {
    pub(crate) fn new(handle: F) -> Self {
        Self {
            handle,
            types: PhantomData,
        }
    }
}

/// What a handler of a command returns.
pub(crate) trait Answers: Send + 'static {
    /// For the tables; a failure if it cannot be written down.
    fn answered(self) -> Result<Answered, Failure>;

    /// What is said instead, where the key of the command was destroyed.
    fn erased() -> Answered;
}

impl<A: Serialize + Send + 'static> Answers for Sent<A> {
    fn answered(self) -> Result<Answered, Failure> {
        match self {
            Self::Settled(answer) => settled(&answer),
            Self::Pending { reference } => Ok(pending(&reference)),
            Self::Rejected(why) => Ok(because("rejected", &why)),
            Self::Obsolete(why) => Ok(because("obsolete", &why)),
        }
    }

    // Nothing of it leaves any more. Of an earlier send that says nothing, and is not taken to.
    fn erased() -> Answered {
        because("obsolete", ERASED)
    }
}

impl<A: Serialize + Send + 'static> Answers for Found<A> {
    fn answered(self) -> Result<Answered, Failure> {
        match self {
            Self::Settled(answer) => settled(&answer),
            Self::Pending { reference } => Ok(pending(&reference)),
            Self::Rejected(why) => Ok(because("rejected", &why)),
            Self::NotApplied => Ok(because("not_applied", "")),
            Self::Unsure => Ok(because("unsure", "")),
        }
    }

    fn erased() -> Answered {
        because("unsure", ERASED)
    }
}

/// What the provider did is done, whether we can write its answer down or not: not to be sent again blindly.
fn settled<A: Serialize>(answer: &A) -> Result<Answered, Failure> {
    let json = serde_json::to_vec(answer).map_err(|why| {
        Failure::unknown(format_args!(
            "settled, but its answer cannot be written as JSON: {why}"
        ))
    })?;
    let json = without_nul(json);
    if json.len() > ANSWER_LIMIT {
        return Err(Failure::unknown(format_args!(
            "settled, but its answer of {} bytes is over the limit of {ANSWER_LIMIT}",
            json.len()
        )));
    }
    Ok(Answered {
        result: "settled",
        answer: Some(json),
        ..Answered::default()
    })
}

/// PostgreSQL's texts have no NUL character, and what the provider did must not be unknown because it said one.
fn without_nul(json: Vec<u8>) -> Vec<u8> {
    const NUL: &[u8] = b"\\u0000";
    if !json.windows(NUL.len()).any(|at| at == NUL) {
        return json;
    }
    let mut kept = Vec::with_capacity(json.len());
    let mut rest = &json[..];
    while let Some(first) = rest.first() {
        // A backslash begins a pair, or a code.
        let take = match first {
            b'\\' if rest.starts_with(NUL) => {
                kept.extend_from_slice(b"\\ufffd");
                rest = &rest[NUL.len()..];
                continue;
            }
            b'\\' => 2.min(rest.len()),
            _ => 1,
        };
        kept.extend_from_slice(&rest[..take]);
        rest = &rest[take..];
    }
    kept
}

fn pending(reference: &str) -> Answered {
    Answered {
        result: "pending",
        reference: Some(reference.replace('\0', "")),
        ..Answered::default()
    }
}

fn because(result: &'static str, why: &str) -> Answered {
    let why = text::clean(why, text::LIMIT);
    Answered {
        result,
        reason: Some(why).filter(|why| !why.is_empty()),
        ..Answered::default()
    }
}

impl<S, C, F, Fut, R> One<S> for CommandHandler<C, F, R>
where
    S: Send + 'static,
    C: Command,
    F: Fn(S, Attempt<C>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, Failure>> + Send + 'static,
    R: Answers,
{
    fn start(self: Arc<Self>, context: Context, state: S, delivery: Delivery) -> JoinHandle<End> {
        tokio::spawn(async move {
            let about = About::new(&context, &delivery, 1);
            let (token, id) = (delivery.token, delivery.event.id);
            let attempt = match Attempt::<C>::open(delivery, Shape::of_command()).await {
                Ok(attempt) => attempt,
                Err(Unread::Erased) => return recorded(&context, (token, id), &R::erased()).await,
                Err(unread) => return unread.into(),
            };
            let answer = Arc::new(std::sync::Mutex::new(None));
            let kept = answer.clone();
            let work = Box::pin(async move {
                let said = (self.handle)(state, attempt).await?.answered()?;
                *kept
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner) = Some(said);
                Ok(Outcome::Done)
            });
            let result = around::run(context.around.as_ref(), &about, work).await;
            crash::at(Point::Sealing);
            let said = answer
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .take();
            // What the provider said counts, whatever stands around the handler makes of it.
            match (said, result) {
                (Some(said), _) => recorded(&context, (token, id), &said).await,
                (None, Err(failure)) => End::Failed(failure),
                // What stands around it has not let it run.
                (None, Ok(outcome)) => {
                    let why = outcome.reason().unwrap_or("not run").to_owned();
                    recorded(&context, (token, id), &because("obsolete", &why)).await
                }
            }
        })
    }
}

/// Records an answer, as long as it takes.
async fn recorded(context: &Context, (token, id): (Uuid, Uuid), said: &Answered) -> End {
    let Some(provider) = &context.provider else {
        return End::Failed(Failure::unknown("no tables to record the answer in"));
    };
    for tries in 1..=RECORDS {
        match provider.store.record(token, id, said, provider.every).await {
            Ok(state) => {
                if state == "late" {
                    tracing::warn!(command.id = %id, result = said.result, "an answer came after the lease was lost: it counts as told");
                }
                crash::at(Point::Flushed);
                return End::Sealed(Outcome::Done);
            }
            Err(error) if error.is_transient() => {
                tracing::warn!(%error, command.id = %id, tries, "an answer is not recorded yet");
                tokio::time::sleep(record::pause(tries)).await;
            }
            Err(error @ Error::LeaseLost) => return End::Refused(error),
            Err(error) => {
                return End::Failed(Failure::unknown(format_args!(
                    "{} was answered, and not recorded: {error}",
                    said.result
                )));
            }
        }
    }
    End::Failed(Failure::unknown(format_args!(
        "{} was answered, and could not be recorded",
        said.result
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nul_character_of_an_answer_is_replaced_and_its_spelling_is_not() {
        for (given, kept) in [
            ("a\0b", r#""a\ufffdb""#),
            ("\0\0", r#""\ufffd\ufffd""#),
            (r"\u0000", r#""\\u0000""#),
            ("\\\0", r#""\\\ufffd""#),
            ("a\nb", r#""a\nb""#),
        ] {
            let answered = settled(&given).expect("it can be written");
            assert_eq!(answered.answer.as_deref(), Some(kept.as_bytes()));
        }
    }
}
