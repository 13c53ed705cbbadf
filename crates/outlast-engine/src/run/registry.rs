//! What a consumer of this process can take: its handlers by event type.

use std::{collections::HashMap, sync::Arc};

use outlast_postgres::store::Claimed;

use crate::handler::{Handler, Kind, Received};

/// The handlers of one consumer.
pub(crate) struct Registry<S> {
    by_type: HashMap<String, Arc<Handler<S>>>,
    /// Patterns without their `*`, the longest first.
    by_prefix: Vec<(String, Arc<Handler<S>>)>,
    types: Vec<String>,
    versions: Vec<i32>,
}

impl<S> Registry<S> {
    pub(crate) fn new(handlers: Vec<Handler<S>>) -> Self {
        let handlers: Vec<_> = handlers.into_iter().map(Arc::new).collect();
        let mut by_prefix: Vec<_> = handlers
            .iter()
            .filter_map(|handler| {
                Some((handler.name.strip_suffix('*')?.to_owned(), handler.clone()))
            })
            .collect();
        by_prefix.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        Self {
            by_prefix,
            types: handlers
                .iter()
                .map(|handler| handler.name.to_string())
                .collect(),
            versions: handlers
                .iter()
                .map(|handler| i32::from(handler.version))
                .collect(),
            by_type: handlers
                .into_iter()
                .map(|handler| (handler.name.to_string(), handler))
                .collect(),
        }
    }

    /// The handler that can take this type in this version, if there is one. The type's own comes before a pattern, and the
    /// narrower pattern before the wider; whose version is too old for it lets it wait, and asks no wider one.
    pub(crate) fn find(&self, kind: &str, version: i32) -> Option<Arc<Handler<S>>> {
        let by_prefix = || {
            let mut patterns = self.by_prefix.iter();
            patterns.find_map(|(prefix, handler)| kind.starts_with(prefix).then_some(handler))
        };
        self.by_type
            .get(kind)
            .or_else(by_prefix)
            .filter(|handler| version <= i32::from(handler.version))
            .cloned()
    }

    /// The event types.
    pub(crate) fn types(&self) -> &[String] {
        &self.types
    }

    /// The event types and, side by side, the newest version of each that can be taken.
    pub(crate) fn takes(&self) -> (&[String], &[i32]) {
        (&self.types, &self.versions)
    }

    /// The handlers.
    pub(crate) fn handlers(&self) -> impl Iterator<Item = &Handler<S>> {
        self.by_type.values().map(Arc::as_ref)
    }
}

/// A claimed row as a handler receives it.
pub(crate) fn received(event: &Claimed) -> Arc<Received> {
    // No event type has a colon.
    let (_, name) = Kind::of_queue(&event.kind);
    Arc::new(Received {
        id: event.event_id,
        source: event.source.clone(),
        subject: event.subject.clone(),
        name: name.to_owned(),
        version: u16::try_from(event.version).unwrap_or(u16::MAX),
        tenant: event.tenant.clone(),
        key: event.key.clone(),
        key_seq: event.key_seq,
        aggregate_version: event.aggregate_version,
        actor: event.actor.clone(),
        correlation_id: event.correlation_id,
        causation_id: event.causation_id,
        traceparent: event.traceparent.clone(),
        headers: event.headers.as_ref().map(ToString::to_string),
        content_type: event.content_type.clone(),
        codec_key: event.codec_key.clone(),
        payload: event.payload.clone(),
        emitted_at: event.emitted_at,
        command: event.command.as_deref().cloned(),
        entity: event.entity.as_deref().cloned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attempt, Consumer, Raw, handler::Never};

    #[test]
    fn a_handler_takes_what_it_is_new_enough_for() {
        async fn never(_: (), _: Attempt<Never>) -> Result<(), outlast_core::Failure> {
            Ok(())
        }
        let registry = Registry::new(Consumer::<()>::new("a").on(never).handlers);
        assert!(registry.find("never", 1).is_some());
        assert!(registry.find("never", 2).is_none() && registry.find("other", 1).is_none());
    }

    #[test]
    fn a_type_of_its_own_comes_before_a_pattern_and_a_narrow_pattern_before_a_wide_one() {
        async fn never(_: (), _: Attempt<Never>) -> Result<(), outlast_core::Failure> {
            Ok(())
        }
        async fn raw(_: (), _: Attempt<Raw>) -> Result<(), outlast_core::Failure> {
            Ok(())
        }
        let consumer = Consumer::<()>::new("a")
            .on_raw("n*", raw)
            .on(never)
            .on_raw("never.*", raw);
        let registry = Registry::new(consumer.handlers);
        let found = |kind, version| {
            registry
                .find(kind, version)
                .map(|handler| handler.name.to_string())
        };
        assert_eq!(found("never", 1).as_deref(), Some("never"));
        assert_eq!(found("never", 2), None, "it waits for a newer worker");
        assert_eq!(found("never.mind", 7).as_deref(), Some("never.*"));
        assert_eq!(found("no", 1).as_deref(), Some("n*"));
        assert_eq!(found("other", 1), None);
    }
}
