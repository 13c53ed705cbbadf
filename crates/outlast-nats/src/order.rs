//! Whether a consumer at the server keeps the order of keys.
//!
//! A server gives out a stream in its order, but to whoever asks: two workers get two messages of one key at once, and which
//! of them comes to its database first is chance. Nobody there can see that the one before is still on its way to another. So
//! the next message has to wait at the server until the one before is settled.

use outlast_core::broker::{BrokerError, Subscription, Why};

use crate::api::ConsumerConfig;

/// What is wrong for an order that is asked for, and what mends it.
pub(crate) fn keeps(
    wanted: &Subscription,
    config: &ConsumerConfig,
) -> Result<(), (String, &'static str)> {
    if !wanted.ordered {
        return Ok(());
    }
    if config.max_ack_pending != 1 || config.ack_policy != "explicit" {
        let found = format!("up to {} unsettled at once", config.max_ack_pending);
        let advice =
            "order is kept only one after another: nats consumer edit NAME --max-pending 1";
        return Err((found, advice));
    }
    if config.max_deliver > 0 {
        let found = format!(
            "the server passes over a message after {} deliveries",
            config.max_deliver
        );
        let advice =
            "what follows of its key would overtake it: nats consumer edit NAME --max-deliver=-1";
        return Err((found, advice));
    }
    Ok(())
}

/// Refuses to read what does not keep the order that is asked for.
///
/// # Errors
/// [`Why::Configuration`], with what mends it.
pub(crate) fn check(
    wanted: &Subscription,
    consumer: &str,
    config: &ConsumerConfig,
) -> Result<(), BrokerError> {
    keeps(wanted, config).map_err(|(found, advice)| {
        let what = format!("the consumer {consumer} keeps no order of keys: {found} ({advice})");
        BrokerError::new(Why::Configuration, what)
    })
}
