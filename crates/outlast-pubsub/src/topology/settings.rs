//! What the settings of a subscription mean for us.

use std::time::Duration;

use outlast_core::{
    broker::{BrokerError, Finding, Severity, Subscription},
    duration::show,
};
use tonic::Code;

use super::{ACK, Look};
use crate::{
    name::short,
    wire::{self, Expiration, GetSubscription, Span},
};

impl Look<'_> {
    /// What the server says of a subscription's settings.
    pub(super) fn settings(
        &mut self,
        found: &wire::Subscription,
        topic: &str,
        asked: &Subscription,
    ) {
        use Severity::{Bad, Good, Warning};
        let name = short(&found.name).to_owned();
        let mut find = |severity, about: &str, found: String, advice: &str| {
            let about = format!("subscription {name}: {about}");
            // Whoever reads it wants to paste it.
            self.find(severity, about, &found, advice.replace("NAME", &name));
        };
        match found.topic == topic {
            true => find(Good, "topic", short(topic).into(), ""),
            false => find(
                Bad,
                "topic",
                found.topic.clone(),
                "it reads another topic than the consumer: nothing of its events comes",
            ),
        }
        if found.detached || found.state == 2 {
            let advice = "nothing comes from it any more: make a new one";
            find(Bad, "state", "detached or in error".into(), advice);
        }
        if found.pushes() {
            let advice = "it pushes to somebody else and cannot be pulled from";
            find(Bad, "delivery", "push".into(), advice);
        }
        let seconds = u64::try_from(found.ack_deadline_seconds).unwrap_or(0);
        let wanted = asked.ack_within.clamp(ACK.0, ACK.1);
        let shown = show(Duration::from_secs(seconds));
        match seconds == wanted.as_secs() {
            true => find(Good, "ack deadline", shown, ""),
            false => find(
                Warning,
                "ack deadline",
                format!("{shown}, not {}", show(wanted)),
                &format!(
                    "Outlast says its own at each delivery, which is a request more: gcloud pubsub subscriptions update NAME \
                     --ack-deadline={}",
                    wanted.as_secs()
                ),
            ),
        }
        match found.retry {
            Some(retry) => {
                let span = |span: Option<Span>| show(span.map_or(Duration::ZERO, Span::time));
                let found = format!("{} to {}", span(retry.least), span(retry.most));
                find(Good, "retry policy", found, "");
            }
            None => find(
                Warning,
                "retry policy",
                "none: immediately".into(),
                "what cannot be written to PostgreSQL comes back at once, again and again: gcloud pubsub subscriptions \
                 update NAME --min-retry-delay=1s --max-retry-delay=600s",
            ),
        }
        let kept = found.retention.map_or(Duration::ZERO, Span::time);
        match kept < asked.keep {
            false => find(Good, "retention", show(kept), ""),
            true => find(
                Warning,
                "retention",
                format!(
                    "{}, and the log keeps events for {}",
                    show(kept),
                    show(asked.keep)
                ),
                "what a consumer misses in a longer outage is gone until a rewind: gcloud pubsub subscriptions update NAME \
                 --message-retention-duration=7d",
            ),
        }
        match found.expiration {
            Some(Expiration { idle: None }) => find(Good, "expiration", "never".into(), ""),
            expiration => {
                let idle = expiration.and_then(|expiration| expiration.idle);
                let idle = idle.map_or(Duration::from_hours(31 * 24), Span::time);
                find(
                    Warning,
                    "expiration",
                    format!("after {} without a consumer", show(idle)),
                    "Pub/Sub deletes it then, with everything in it: gcloud pubsub subscriptions update NAME \
                     --expiration-period=never",
                );
            }
        }
        if !found.filter.is_empty() {
            let advice = "what it does not let through is acked by Pub/Sub and never comes";
            find(Warning, "filter", found.filter.clone(), advice);
        }
        match (asked.ordered, found.ordered) {
            (true, false) => find(
                Bad,
                "order",
                "not kept".into(),
                "an ordered consumer needs it, and it cannot be switched on later: make a new subscription",
            ),
            (_, true) => find(Good, "order", "kept by key".into(), ""),
            (false, false) => find(Good, "order", "not kept".into(), ""),
        }
        let once = match found.exactly_once {
            true => "on: acks are confirmed",
            false => "off: acks are not confirmed; the inbox drops doubles",
        };
        find(Good, "exactly-once", once.into(), "");
    }

    /// Where messages go that are given up, and whether anybody keeps them there.
    pub(super) async fn dead_letters(
        &mut self,
        found: &wire::Subscription,
        dead: &str,
    ) -> Result<(), BrokerError> {
        let about = format!("subscription {}: dead letters", short(&found.name));
        let Some(policy) = found
            .dead_letter
            .as_ref()
            .filter(|dead| !dead.topic.is_empty())
        else {
            let advice = "a message that kills its worker before it can write is delivered for ever: gcloud pubsub \
                          subscriptions update NAME --dead-letter-topic=NAME-dead --max-delivery-attempts=50";
            let advice = advice.replace("NAME", short(&found.name));
            self.find(Severity::Warning, about, "none", advice);
            return Ok(());
        };
        let told = format!(
            "to {} after about {} deliveries",
            short(&policy.topic),
            policy.deliveries
        );
        self.good(about.clone(), &told);
        let kept = format!("dead-letter subscription {}", short(dead));
        let get = GetSubscription {
            subscription: dead.to_owned(),
        };
        match self.call(get).await {
            Ok(there) if there.topic == policy.topic => self.good(kept, "keeps them"),
            Ok(there) => {
                let advice = format!("it has to read {}, or dead letters are lost", policy.topic);
                self.find(Severity::Bad, kept, &there.topic, advice);
            }
            Err(failed) if failed.code == Code::NotFound => {
                let advice = "without it dead letters are kept by nobody, and cannot be imported: let Outlast make it, or \
                              gcloud pubsub subscriptions create NAME --topic=TOPIC --expiration-period=never";
                let advice = advice
                    .replace("NAME", short(dead))
                    .replace("TOPIC", short(&policy.topic));
                let missing = Finding::new(Severity::Bad, kept, "is missing", advice).missing();
                self.findings.push(missing);
            }
            Err(failed) => self.unread(kept, &failed)?,
        }
        let advice = "Pub/Sub moves dead letters by its own account, whose rights we cannot read: \
                      service-PROJECT_NUMBER@gcp-sa-pubsub.iam.gserviceaccount.com needs roles/pubsub.publisher on the \
                      dead-letter topic and roles/pubsub.subscriber on this subscription, or nothing is ever moved";
        let about = format!("{about}: rights of the service agent");
        self.find(Severity::Unverified, about, "unverified", advice.into());
        Ok(())
    }
}
