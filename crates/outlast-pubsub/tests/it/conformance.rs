//! The suite for all brokers.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use futures_util::future::LocalBoxFuture;
use outlast_pubsub::PubSub;
use outlast_testkit::broker::{
    conformance::{self, Can, Stage, Venue},
    emulator::{self, Emulator},
};

use crate::support::options;

/// Those that harm their server have one of their own.
const HARMFUL: [&str; 3] = [
    "a_frozen_server_is_answered_for_in_time_and_honestly",
    "without_a_server_calls_end_in_time_and_go_on_when_it_is_back",
    "health_and_probe_notice_a_server_that_stands_still",
];

struct Emulated;

impl Venue for Emulated {
    fn stage(&self, case: &'static str) -> LocalBoxFuture<'_, Result<Stage>> {
        Box::pin(async move {
            let own = match HARMFUL.contains(&case) {
                true => Some(Emulator::start().await?),
                false => None,
            };
            let shared = emulator::shared().await;
            let (address, project) = shared.expect("it was there before the suite began");
            let address = own.as_ref().map_or(address, Emulator::address);
            let broker = || {
                let mut options = options(&format!("http://{address}"), &project);
                options.deliveries_most = 5;
                PubSub::new(options)
            };
            let can = Can {
                dedups: false,
                delays: true,
                deliveries: Some(5),
                survives: false,
                ack_within: Duration::from_secs(3),
                patience: Duration::from_secs(60),
            };
            let stage = Stage::new(Arc::new(broker()?), Arc::new(broker()?), "stage", can);
            Ok(match own {
                Some(own) => stage.with_server(Box::new(own)),
                None => stage,
            })
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pubsub_passes_the_suite_for_all_brokers() {
    if !emulator::is_installed() {
        return;
    }
    // It keeps nothing over a restart.
    conformance::run(Arc::new(Emulated)).await.assert_passed(&[
        "what_was_confirmed_before_a_kill_is_there_and_what_was_not_sent_is_not",
        "receiving_goes_on_after_a_restart",
    ]);
}
