//! The suite that every broker has to pass, against a server for each case.

use std::{sync::Arc, time::Duration};

use futures_util::future::LocalBoxFuture;
use outlast_nats::NatsSettings;
use outlast_testkit::broker::{
    NatsServer,
    conformance::{self, CASES, Can, Stage, Venue},
    nats_server::is_installed,
};

use crate::{PATIENCE, connect};

const DELIVERIES: u32 = 3;

struct Real;

impl Venue for Real {
    fn stage(&self, case: &'static str) -> LocalBoxFuture<'_, anyhow::Result<Stage>> {
        Box::pin(async move {
            let server = NatsServer::start().await?;
            let mut settings = NatsSettings::at(server.url());
            settings.deliveries = DELIVERIES;
            settings.monitor = Some(server.monitor());
            let broker = Arc::new(connect(settings.clone()).await);
            let other = Arc::new(connect(settings).await);
            let can = Can {
                dedups: true,
                delays: true,
                deliveries: Some(DELIVERIES),
                survives: true,
                ack_within: Duration::from_secs(1),
                patience: PATIENCE,
            };
            let names = case.replace('_', "-");
            Ok(Stage::new(broker, other, names, can).with_server(Box::new(server)))
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jetstream_passes_the_suite() {
    if !is_installed() {
        return;
    }
    let report = conformance::run(Arc::new(Real)).await;
    report.assert_passed(&[]);
    assert_eq!(report.passed.len(), CASES.len());
}
