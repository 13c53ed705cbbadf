//! What is to be done about a command that may have had an effect and nobody has said.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use outlast_core::{Command, Failure, Found, command::Policy};

use crate::{
    attempt::Attempt,
    handler::{CommandHandler, One},
};

/// What is to be done about a command that may have had an effect and nobody has said. There is no default: whoever writes the
/// command knows the provider.
///
/// ```
/// # use outlast_core::{Command, Failure, Found, Sent};
/// # use outlast_engine::{Attempt, IfUnknown, Outlast};
/// # use serde::{Deserialize, Serialize};
/// # use std::time::Duration;
/// # #[derive(Serialize, Deserialize)] struct ChargeCard { booking: i64 }
/// # impl Command for ChargeCard { const NAME: &'static str = "charge_card"; type Answer = String; fn key(&self) -> String { self.booking.to_string() } }
/// # async fn charge(_: (), c: Attempt<ChargeCard>) -> Result<Sent<String>, Failure> { Ok(Sent::Settled("ch_1".into())) }
/// async fn find(_: (), c: Attempt<ChargeCard>) -> Result<Found<String>, Failure> {
///     Ok(Found::Unsure)                               // ask the provider for c.provider_key()
/// }
/// Outlast::new().worker(())
///     .command(charge, IfUnknown::resend_within(Duration::from_secs(24 * 3600)).then_look_up(find));
/// ```
#[must_use]
pub struct IfUnknown<S, C> {
    pub(crate) policy: Policy,
    pub(crate) replays: bool,
    pub(crate) look: Option<Arc<dyn One<S>>>,
    command: std::marker::PhantomData<fn(C)>,
}

impl<S, C> fmt::Debug for IfUnknown<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IfUnknown")
            .field("policy", &self.policy)
            .field("replays", &self.replays)
            .finish_non_exhaustive()
    }
}

impl<S, C> IfUnknown<S, C> {
    fn new(policy: Policy) -> Self {
        Self {
            policy,
            replays: false,
            look: None,
            command: std::marker::PhantomData,
        }
    }

    /// The provider takes [`Attempt::provider_key`] as an idempotency key and honours it for this long: within it the command is
    /// sent again with the same key. Nothing is sent in the last part of the window, which might arrive after its end.
    pub fn resend_within(window: Duration) -> Self {
        Self::new(Policy {
            resend_within: Some(window),
            looks: false,
        })
    }

    /// Nothing can be done by itself: an incident says that a person must find out.
    pub fn ask_a_person() -> Self {
        Self::new(Policy::default())
    }

    /// The provider repeats its first answer to a repeated key, refusals too. Without this a refusal after a send that nobody knows
    /// the end of ("insufficient funds", "duplicate") is not believed: it may be the echo of what the first one did.
    pub fn replays_answers(mut self) -> Self {
        self.replays = true;
        self
    }
}

impl<S, C> IfUnknown<S, C>
where
    S: Clone + Send + Sync + 'static,
    C: Command,
{
    /// The provider can be asked: `f` says what it knows. It is asked again and again, for a day, then a person is.
    pub fn look_up<F, Fut>(f: F) -> Self
    where
        F: Fn(S, Attempt<C>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Found<C::Answer>, Failure>> + Send + 'static,
    {
        Self::new(Policy::default()).then_look_up(f)
    }

    /// After the window, or when the tries are spent, the provider is asked.
    pub fn then_look_up<F, Fut>(mut self, f: F) -> Self
    where
        F: Fn(S, Attempt<C>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Found<C::Answer>, Failure>> + Send + 'static,
    {
        self.policy.looks = true;
        self.look = Some(Arc::new(CommandHandler::<C, F, Found<C::Answer>>::new(f)));
        self
    }
}
