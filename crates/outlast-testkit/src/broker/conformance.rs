//! One suite for every [`Broker`](outlast_core::broker::Broker): what a relay and a consumer rely on, asked of the adapter and its
//! real server.
//!
//! An adapter's test gives a [`Venue`], which makes a fresh [`Stage`] for each case, and says what may be left out:
//!
//! ```no_run
//! # async fn example(venue: std::sync::Arc<dyn outlast_testkit::broker::conformance::Venue>) {
//! use outlast_testkit::broker::conformance;
//!
//! conformance::run(venue).await.assert_passed(&[]);
//! # }
//! ```
//!
//! The suite is itself under test: brokers that are broken on purpose are found out, each by the case that is meant for it.

mod faults;
mod publish;
mod receive;
mod stage;
mod topology;

use std::{any::Any, fmt, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::{FutureExt, StreamExt, future::LocalBoxFuture, stream};
use tokio::time::timeout;

pub use stage::{Can, Server, Stage};

/// How long one case may take. The slowest wait for a broker's shortest time to settle, several times.
const PATIENCE: Duration = Duration::from_secs(120);
/// How many cases play at once.
const AT_ONCE: usize = 4;

/// Makes a stage for each case: names of its own, connections of its own, and a server of its own where one is killed.
pub trait Venue: Send + Sync {
    /// A fresh stage. `case` may be part of its names.
    fn stage(&self, case: &'static str) -> LocalBoxFuture<'_, anyhow::Result<Stage>>;
}

/// One thing that must be so.
#[derive(Clone, Copy)]
pub struct Case {
    /// A sentence about behaviour.
    pub name: &'static str,
    needs: Need,
    play: for<'a> fn(&'a Stage) -> LocalBoxFuture<'a, ()>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// What a stage has to offer for a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Nothing,
    /// A server that can be frozen and killed.
    Server,
    /// A server that has after a kill what it had before.
    Durable,
    /// It keeps what it has given up on.
    Dead,
    /// It can wait before it delivers again.
    Delay,
    /// Many messages of a key in one call.
    OrderedBatches,
}

impl Need {
    fn met(self, stage: &Stage) -> bool {
        match self {
            Self::Nothing => true,
            Self::Server => stage.server.is_some(),
            Self::Durable => stage.server.is_some() && stage.can.survives,
            Self::Dead => stage.can.deliveries.is_some(),
            Self::Delay => stage.can.delays,
            Self::OrderedBatches => stage.broker.limits().ordered_batches,
        }
    }
}

macro_rules! cases {
    ($($need:ident: $room:ident::$case:ident,)*) => {
        /// All cases.
        pub const CASES: &[Case] = &[$(Case {
            name: stringify!($case),
            needs: Need::$need,
            play: |stage| Box::pin($room::$case(stage)),
        },)*];
    };
}

cases! {
    Nothing: publish::what_is_confirmed_arrives_with_the_same_attributes_and_bytes,
    Nothing: publish::a_message_over_the_limit_is_refused_and_fails_alone,
    Nothing: publish::the_largest_that_is_taken_arrives,
    Nothing: publish::an_attribute_is_refused_alone_or_arrives_as_it_was,
    Nothing: publish::an_unknown_topic_is_missing_and_others_are_not_affected,
    Nothing: publish::a_key_keeps_its_order_within_and_across_calls,
    OrderedBatches: publish::nothing_of_a_key_is_sent_after_what_was_not_taken,
    Nothing: publish::the_same_round_again_is_never_lost,
    Nothing: publish::a_higher_round_arrives_again_with_the_same_envelope,
    Nothing: publish::many_calls_at_once_are_all_answered,
    Nothing: publish::a_call_with_nothing_is_answered_with_nothing,
    Server: faults::a_frozen_server_is_answered_for_in_time_and_honestly,
    Server: faults::without_a_server_calls_end_in_time_and_go_on_when_it_is_back,
    Durable: faults::what_was_confirmed_before_a_kill_is_there_and_what_was_not_sent_is_not,
    Server: faults::health_and_probe_notice_a_server_that_stands_still,
    Durable: faults::receiving_goes_on_after_a_restart,
    Nothing: receive::never_more_are_taken_than_were_asked_for,
    Nothing: receive::next_waits_as_long_as_told_and_wakes_for_the_first_message,
    Nothing: receive::what_is_not_settled_comes_again_after_its_time,
    Delay: receive::what_is_released_comes_again_and_not_before_its_delay,
    Nothing: receive::what_is_extended_stays_ours_and_acked_never_comes_again,
    Nothing: receive::an_ack_settles_its_own_delivery_and_none_before_it,
    Nothing: receive::two_subscribers_share_the_work,
    Nothing: receive::after_a_drain_what_was_given_can_be_settled_and_the_rest_goes_to_others,
    Nothing: receive::of_a_key_in_order_nothing_is_given_while_an_earlier_one_is_out,
    Nothing: receive::what_keeps_no_order_is_not_read_as_if_it_did,
    Dead: receive::what_was_given_up_on_is_found_dead_with_its_envelope,
    Nothing: topology::what_is_missing_is_told_and_then_made,
    Nothing: topology::what_somebody_else_made_with_other_settings_is_found_and_not_changed,
    Nothing: topology::names_that_cannot_be_are_refused_and_harm_nobody,
}

/// What came of a run.
#[derive(Debug, Default)]
#[must_use]
pub struct Report {
    /// Cases that hold.
    pub passed: Vec<&'static str>,
    /// Cases that this broker cannot play.
    pub skipped: Vec<&'static str>,
    /// Cases that do not hold, and what was seen.
    pub failed: Vec<(&'static str, String)>,
}

impl Report {
    /// # Panics
    /// If a case failed, or if other cases than these were left out: nothing is skipped in silence.
    pub fn assert_passed(&self, skipped: &[&str]) {
        let failed: Vec<_> = self
            .failed
            .iter()
            .map(|(name, why)| format!("{name}: {why}"))
            .collect();
        assert!(failed.is_empty(), "failed:\n{}", failed.join("\n"));
        assert_eq!(self.skipped, skipped, "what was left out");
        assert!(!self.passed.is_empty(), "nothing was played");
    }

    /// Whether this case failed.
    pub fn found_out(&self, case: &str) -> bool {
        self.failed.iter().any(|(name, _)| *name == case)
    }
}

/// Plays all cases.
pub async fn run(venue: Arc<dyn Venue>) -> Report {
    run_those(venue, |_| true).await
}

/// Plays the cases that are wanted.
pub async fn run_those(venue: Arc<dyn Venue>, wanted: impl Fn(&Case) -> bool) -> Report {
    let wanted = CASES.iter().copied().filter(|case| wanted(case));
    let played = stream::iter(wanted)
        .map(|case| play(Arc::clone(&venue), case))
        .buffered(AT_ONCE);
    let mut report = Report::default();
    let mut played = std::pin::pin!(played);
    while let Some((case, verdict)) = played.next().await {
        match verdict {
            Verdict::Passed => report.passed.push(case.name),
            Verdict::Skipped => report.skipped.push(case.name),
            Verdict::Failed(why) => report.failed.push((case.name, why)),
        }
    }
    report
}

enum Verdict {
    Passed,
    Skipped,
    Failed(String),
}

async fn play(venue: Arc<dyn Venue>, case: Case) -> (Case, Verdict) {
    let played = async {
        let stage = match venue.stage(case.name).await {
            Ok(stage) => stage,
            Err(why) => return Verdict::Failed(format!("there is no stage: {why:#}")),
        };
        if !case.needs.met(&stage) {
            return Verdict::Skipped;
        }
        (case.play)(&stage).await;
        Verdict::Passed
    };
    // A panic is the verdict of this case alone; nothing of it is used afterwards.
    let played = AssertUnwindSafe(played).catch_unwind();
    let verdict = match timeout(PATIENCE, played).await {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(panic)) => Verdict::Failed(words(&*panic)),
        Err(_) => Verdict::Failed(format!("it did not end within {PATIENCE:?}")),
    };
    (case, verdict)
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()))
        .unwrap_or_else(|| "it panicked".into())
}
