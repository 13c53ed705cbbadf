//! Topics and subscriptions: made with settings that keep what is promised, never changed, and told as the server has them.

use std::time::Duration;

use outlast_core::{
    broker::{BrokerError, Ensure, Finding, Severity, Subscription, Topology, Why},
    duration::show,
};
use tokio::time::Instant;
use tonic::Code;

use crate::{
    Server,
    name::{self, What, short},
    outcome,
    rpc::Failed,
    wire::{
        self, Call, DeadLetter, Expiration, GetSubscription, GetTopic, ListSubscriptions,
        Permissions, Retry, Span,
    },
};

/// How long Pub/Sub waits before it delivers again what was given back, in what we make.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(600));
/// The log keeps events so long by default: a consumer that was away for less can be given them again by a rewind.
const LOG: Duration = Duration::from_hours(3 * 24);
/// What Pub/Sub takes as a deadline for acks.
const ACK: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(600));

pub(crate) async fn ensure(
    server: &Server,
    topology: &Topology,
    how: Ensure,
    within: Duration,
) -> Result<Vec<Finding>, BrokerError> {
    let until = Instant::now() + within;
    let mut look = Look {
        server,
        how,
        until,
        findings: Vec::new(),
    };
    match topology {
        Topology::Topic { topic, ordered } => {
            let topic = look.whole(What::Topic, topic)?;
            look.topic(&topic, *ordered).await?;
        }
        Topology::Subscription(subscription) => look.subscription(subscription).await?,
        other => {
            let why = format!("{other:?} is nothing that Pub/Sub has");
            return Err(BrokerError::new(Why::Configuration, why));
        }
    }
    Ok(look.findings)
}

struct Look<'a> {
    server: &'a Server,
    how: Ensure,
    until: Instant,
    findings: Vec<Finding>,
}

impl Look<'_> {
    fn whole(&self, what: What, name: &str) -> Result<String, BrokerError> {
        let whole = name::whole(what, &self.server.options.project, name);
        whole.map_err(|why| BrokerError::new(Why::Configuration, why))
    }

    fn find(&mut self, severity: Severity, about: String, found: &str, advice: String) {
        self.findings
            .push(Finding::new(severity, about, found, advice));
    }

    fn good(&mut self, about: String, found: &str) {
        self.find(Severity::Good, about, found, String::new());
    }

    async fn call<C: Call>(&self, call: C) -> Result<C::Answer, Failed> {
        self.server.rpc.call(call, self.until).await
    }

    /// What there is of this name; makes it if it is missing and may be made.
    async fn there<G, M>(&mut self, what: &str, get: G, make: M) -> Result<Option<M>, BrokerError>
    where
        G: Call<Answer = M> + Clone,
        M: Call<Answer = M>,
    {
        let about = format!("{what} {}", short(get.about().1));
        let error = |failed: &Failed| outcome::error(&about, failed);
        match self.call(get.clone()).await {
            Ok(found) => {
                self.good(about, "is there");
                return Ok(Some(found));
            }
            Err(failed) if failed.code != Code::NotFound => return Err(error(&failed)),
            Err(_) if self.how == Ensure::Verify => {
                let advice = "nothing can be published or received without it: let Outlast make it, or make it".into();
                self.find(Severity::Bad, about, "is missing", advice);
                return Ok(None);
            }
            Err(_) => {}
        }
        match self.call(make).await {
            Ok(_) => {}
            // Somebody else was quicker.
            Err(failed) if failed.code == Code::AlreadyExists => {}
            Err(failed) => return Err(error(&failed)),
        }
        // What the server made of it counts, not what was asked for.
        let found = self.call(get).await.map_err(|failed| error(&failed))?;
        self.good(about, "was made");
        Ok(Some(found))
    }

    async fn topic(&mut self, topic: &str, ordered: bool) -> Result<(), BrokerError> {
        let get = GetTopic {
            topic: topic.to_owned(),
        };
        let Some(found) = self.there("topic", get, new_topic(topic)).await? else {
            return Ok(());
        };
        let name = short(topic);
        if let Some(schema) = found.schema.filter(|schema| !schema.schema.is_empty()) {
            let advice = "payloads that do not fit it are refused, and quarantined".into();
            let about = format!("topic {name}: schema");
            self.find(Severity::Warning, about, &schema.schema, advice);
        }
        let regions = found.storage.map(|storage| storage.regions);
        let regions = regions.unwrap_or_default();
        if ordered && regions.len() > 1 {
            let advice = "order is kept within a region only: publish through one regional endpoint (option endpoint)";
            let about = format!("topic {name}: regions");
            self.find(Severity::Warning, about, &regions.join(", "), advice.into());
        }
        self.readers(topic, found.retention).await?;
        self.right("topic", topic, "pubsub.topics.publish").await;
        Ok(())
    }

    /// Who gets what is published.
    async fn readers(&mut self, topic: &str, kept: Option<Span>) -> Result<(), BrokerError> {
        let about = format!("topic {}: subscriptions", short(topic));
        let ask = ListSubscriptions {
            topic: topic.to_owned(),
            page_size: 100,
        };
        match self.call(ask).await {
            Ok(names) if names.names.is_empty() => {
                let found = match kept {
                    Some(kept) => {
                        format!("none; the topic keeps messages for {}", show(kept.time()))
                    }
                    None => "none".into(),
                };
                let advice = "Pub/Sub confirms what is published and keeps it for nobody; after a subscription is made, \
                              `outlast relay rewind` publishes it again";
                self.find(Severity::Warning, about, &found, advice.into());
            }
            Ok(names) => {
                let names: Vec<&str> = names.names.iter().map(|name| short(name)).collect();
                self.good(about, &names.join(", "));
            }
            Err(failed) => self.unread(about, &failed)?,
        }
        Ok(())
    }

    async fn subscription(&mut self, asked: &Subscription) -> Result<(), BrokerError> {
        let options = &self.server.options;
        let topic = self.whole(What::Topic, &asked.topic)?;
        let name = self.whole(What::Subscription, &asked.name)?;
        let dead = format!("{name}{}", options.dead_suffix);
        let dead_topic = dead.replacen("/subscriptions/", "/topics/", 1);
        if self.how == Ensure::Create {
            for topic in [&topic, &dead_topic] {
                let get = GetTopic {
                    topic: topic.clone(),
                };
                self.there("topic", get, new_topic(topic)).await?;
            }
            let get = GetSubscription {
                subscription: dead.clone(),
            };
            let make = self.new_subscription(&dead, &dead_topic);
            self.there("dead-letter subscription", get, make).await?;
        }
        let mut make = self.new_subscription(&name, &topic);
        let deadline = asked.ack_within.clamp(ACK.0, ACK.1).as_secs();
        make.ack_deadline_seconds = i32::try_from(deadline).unwrap_or(600);
        make.ordered = asked.ordered;
        make.exactly_once = options.exactly_once;
        make.dead_letter = Some(DeadLetter {
            topic: dead_topic,
            deliveries: options.deliveries_most.into(),
        });
        let get = GetSubscription {
            subscription: name.clone(),
        };
        let Some(found) = self.there("subscription", get, make).await? else {
            return Ok(());
        };
        self.settings(&found, &topic, asked);
        self.dead_letters(&found, &dead).await?;
        self.right("subscription", &name, "pubsub.subscriptions.consume")
            .await;
        Ok(())
    }

    fn new_subscription(&self, name: &str, topic: &str) -> wire::Subscription {
        wire::Subscription {
            name: name.to_owned(),
            topic: topic.to_owned(),
            ack_deadline_seconds: 60,
            retention: Some(Span::of(self.server.options.retention)),
            // There, and empty: never.
            expiration: Some(Expiration { idle: None }),
            retry: Some(Retry {
                least: Some(Span::of(RETRY.0)),
                most: Some(Span::of(RETRY.1)),
            }),
            ..wire::Subscription::default()
        }
    }

    /// What the server says of a subscription's settings.
    fn settings(&mut self, found: &wire::Subscription, topic: &str, asked: &Subscription) {
        use Severity::{Bad, Good, Warning};
        let name = short(&found.name).to_owned();
        let mut find = |severity, about: &str, found: String, advice: &str| {
            let about = format!("subscription {name}: {about}");
            self.find(severity, about, &found, advice.into());
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
                "Outlast says its own at each delivery, which is a request more: gcloud pubsub subscriptions update NAME \
                 --ack-deadline=SECONDS",
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
        match kept < LOG {
            false => find(Good, "retention", show(kept), ""),
            true => find(
                Warning,
                "retention",
                show(kept),
                "shorter than the log keeps events: what a consumer misses in a longer outage is gone until a rewind",
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
    async fn dead_letters(
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
            self.find(Severity::Warning, about, "none", advice.into());
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
                let advice =
                    "without it dead letters are kept by nobody, and cannot be imported".into();
                self.find(Severity::Bad, kept, "is missing", advice);
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

    /// Whether we may do what we are there for.
    async fn right(&mut self, what: &str, resource: &str, permission: &str) {
        let about = format!("{what} {}: our rights", short(resource));
        let ask = Permissions {
            resource: resource.to_owned(),
            permissions: vec![permission.to_owned()],
        };
        match self.call(ask).await {
            Ok(may) if may.permissions.iter().any(|may| may == permission) => {
                self.good(about, permission);
            }
            Ok(_) => {
                let found = format!("no {permission}");
                let advice = match what {
                    "topic" => "roles/pubsub.publisher gives it",
                    _ => "roles/pubsub.subscriber gives it",
                };
                self.find(Severity::Bad, about, &found, advice.into());
            }
            Err(failed) => {
                let advice = format!("could not be asked: {}", failed.reason);
                self.find(Severity::Unverified, about, "unverified", advice);
            }
        }
    }

    /// What we may not see is unverified; what fails otherwise is an error.
    fn unread(&mut self, about: String, failed: &Failed) -> Result<(), BrokerError> {
        match failed.code {
            Code::PermissionDenied | Code::Unimplemented => {
                let advice = format!("could not be read: {}", failed.reason);
                self.find(Severity::Unverified, about, "unverified", advice);
                Ok(())
            }
            _ => Err(outcome::error(&about, failed)),
        }
    }
}

fn new_topic(name: &str) -> wire::Topic {
    wire::Topic {
        name: name.to_owned(),
        ..wire::Topic::default()
    }
}
