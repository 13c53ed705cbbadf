//! `kind = "nats"`.

use std::sync::Arc;

use outlast_core::{Broker, broker::BoxFuture};
use outlast_nats::{Nats, NatsSettings};

use super::Known;

impl Known for NatsSettings {
    fn problems(&self) -> Vec<String> {
        self.problems()
    }

    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn Broker>, String>> {
        Box::pin(async {
            let nats = Nats::connect(self.clone()).await;
            nats.map(|nats| Arc::new(nats) as _)
                .map_err(|why| why.to_string())
        })
    }
}
