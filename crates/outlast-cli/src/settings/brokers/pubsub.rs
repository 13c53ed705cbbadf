//! `kind = "pubsub"`.

use std::sync::Arc;

use outlast_core::{Broker, broker::BoxFuture};
use outlast_pubsub::{Options, PubSub};

use super::Known;

impl Known for Options {
    fn problems(&self) -> Vec<String> {
        self.problems()
    }

    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn Broker>, String>> {
        Box::pin(async {
            let pubsub = PubSub::new(self.clone());
            pubsub
                .map(|pubsub| Arc::new(pubsub) as _)
                .map_err(|why| why.to_string())
        })
    }
}
