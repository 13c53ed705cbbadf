//! The suite for brokers is itself under test: the broker in memory passes it, and brokers that are broken on purpose are
//! found out.

mod twin;

use std::{sync::Arc, time::Duration};

use futures_util::future::{LocalBoxFuture, join_all};
use outlast_core::broker::Broker;
use outlast_testkit::broker::{
    Memory,
    conformance::{self, CASES, Can, Server, Stage, Venue},
};

use twin::{Lie, Twin};

const CAN: Can = Can {
    dedups: true,
    delays: true,
    deliveries: Some(3),
    survives: true,
    ack_within: Duration::from_millis(300),
    patience: Duration::from_secs(2),
};

struct InMemory(Option<Lie>);

impl Venue for InMemory {
    fn stage(&self, case: &'static str) -> LocalBoxFuture<'_, anyhow::Result<Stage>> {
        let memory = Memory::new().with_deliveries(3);
        let server = Box::new(Switch(memory.clone()));
        let broker: Arc<dyn Broker> = match self.0 {
            None => Arc::new(memory.clone()),
            Some(lie) => Arc::new(Twin::new(memory.clone(), lie)),
        };
        let stage = Stage::new(broker, Arc::new(memory), case, CAN).with_server(server);
        Box::pin(std::future::ready(Ok(stage)))
    }
}

/// The server of a broker in memory: who freezes it freezes it for all.
struct Switch(Memory);

impl Server for Switch {
    fn freeze(&self) {
        self.0.freeze();
    }

    fn thaw(&self) {
        self.0.up();
    }

    fn kill(&self) -> LocalBoxFuture<'_, ()> {
        self.0.down();
        Box::pin(std::future::ready(()))
    }

    fn start(&self) -> LocalBoxFuture<'_, ()> {
        self.0.up();
        Box::pin(std::future::ready(()))
    }
}

#[tokio::test]
async fn the_broker_in_memory_passes() {
    let report = conformance::run(Arc::new(InMemory(None))).await;
    report.assert_passed(&[]);
    assert_eq!(report.passed.len(), CASES.len());
}

#[tokio::test]
async fn brokers_that_are_broken_on_purpose_are_found_out() {
    let trials = twin::LIES.map(async |(lie, case)| {
        let venue = Arc::new(InMemory(Some(lie)));
        let report = conformance::run_those(venue, |one| one.name == case).await;
        assert!(report.found_out(case), "{lie:?} passes {case}: {report:?}");
    });
    join_all(trials).await;
}

#[tokio::test]
async fn what_was_left_out_has_to_be_said() {
    struct Harmless;
    impl Venue for Harmless {
        fn stage(&self, case: &'static str) -> LocalBoxFuture<'_, anyhow::Result<Stage>> {
            let memory = Arc::new(Memory::new());
            let stage = Stage::new(memory.clone(), memory, case, CAN);
            Box::pin(std::future::ready(Ok(stage)))
        }
    }
    let only = "health_and_probe_notice_a_server_that_stands_still";
    let report = conformance::run_those(Arc::new(Harmless), |one| one.name == only).await;
    assert_eq!(report.skipped, [only]);
    let silent = std::panic::catch_unwind(|| report.assert_passed(&[]));
    assert!(silent.is_err());
}
