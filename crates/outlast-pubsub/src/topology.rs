//! Topics and subscriptions: made with settings that keep what is promised, never changed, and told as the server has them.

mod settings;

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
                let advice = "nothing can be published or received without it: let Outlast make it, or make it";
                let missing = Finding::new(Severity::Bad, about, "is missing", advice).missing();
                self.findings.push(missing);
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
