//! The verdict over a run with a broker: what the database has, what the broker has, what consumers did.

use std::{collections::HashSet, fs, time::Duration};

use anyhow::Result;
use outlast_checker::{Consumer, Effects, Expect, Handles, Relayed};

use super::{LEASE, POLL, WORK, World, expect};
use crate::drill::{
    site::{Site, TOPICS},
    source::Kind,
    worker::Spec,
};

/// Until a stream that broke is opened anew, or an outage probed once more.
const AGAIN: Duration = Duration::from_secs(20);

/// What a run with a broker claims about itself.
#[derive(Clone, Debug, Default)]
pub(in crate::drill) struct Judged {
    /// Intents whose events must end in the relay's quarantine.
    pub(in crate::drill) quarantined: HashSet<i64>,
    /// Intents whose events a person has given up.
    pub(in crate::drill) given_up: HashSet<i64>,
    /// The route keeps the order of each key.
    pub(in crate::drill) unordered: bool,
    /// How many messages may be there beyond the first of their event; none: as many as there are.
    pub(in crate::drill) again: Option<i64>,
    /// How often one event may have been charged.
    pub(in crate::drill) failures: u32,
    /// The consumer of this name writes so many children of each event.
    pub(in crate::drill) fan_out: Option<(String, usize)>,
}

impl World {
    /// After the last fault has healed and the last client is done: waits until no work is open and no message is left,
    /// stops all processes, and judges. Answers how many messages were published more than once.
    pub(in crate::drill) async fn settle_relayed(
        &self,
        site: &Site,
        specs: &[Spec],
        judged: &Judged,
    ) -> Result<i64> {
        let expect = expected(specs, judged);
        let consumers = expect.consumers.len();
        let work = self.number("select count(*) from outlast._event").await?;
        let work = WORK * u32::try_from(work)? * u32::try_from(consumers)?;
        let backoff = Duration::from_secs(judged.failures.checked_sub(1).map_or(0, |n| 1 << n));
        // A message whose reader died comes again after its time.
        let again = AGAIN
            + match site.kind() {
                Kind::Nats => Duration::from_secs(2),
                Kind::PubSub => Duration::from_secs(10),
            };
        // What is never published is never completed by those who read the broker.
        let kept = judged.quarantined.len() + judged.given_up.len();
        let never = i64::try_from(kept * specs.len())?;
        self.rests(consumers, never, LEASE + backoff + 2 * POLL + again + work)
            .await?;
        if self.is_at_rest() {
            site.settled(specs).await;
        }
        self.stop().await;

        let client = self.client().await?;
        let (facts, mut report) = outlast_checker::check(&client, self.folder(), &expect).await?;
        let messages = site.seen().await?;
        let ordered: Vec<_> = specs.iter().filter(|spec| spec.ordered).collect();
        let ordered: Vec<_> = ordered.iter().map(|spec| spec.name.clone()).collect();
        let [(_, did), _] = TOPICS;
        let kept = judged.quarantined.union(&judged.given_up);
        let relayed = Relayed {
            event_type: did,
            kept: kept.copied().collect(),
            ordered: &ordered,
            in_order: !judged.unordered,
        };
        let (more, copies) = outlast_checker::relayed(&client, &messages, &relayed).await?;
        report.violations.extend(more.violations);
        let copies = i64::try_from(copies)?;
        let most = self.most(judged)?;
        if let Some(most) = most.filter(|most| copies > *most) {
            report.violations.push(format!(
                "{copies} messages were published again, and only {most} were on their way at a fault"
            ));
        }
        let there = messages.len();
        let most = most.map_or(String::new(), |most| {
            format!(" of {most} on their way at a fault")
        });
        self.figure(format_args!(
            "{there} messages for {} events, {copies} of them again{most}",
            more.events
        ));
        if !report.violations.is_empty() {
            let all = format!("{facts:#?}\n{messages:#?}");
            fs::write(self.folder().join("facts.txt"), all)?;
        }
        self.judged(report);
        Ok(copies)
    }

    /// How many copies there may be: also of what a busy machine did not confirm in time. With an outage nobody knows.
    fn most(&self, judged: &Judged) -> Result<Option<i64>> {
        if self.said("outage: ") > 0 {
            return Ok(None);
        }
        let late = i64::try_from(self.said("class=unknown"))?;
        Ok(judged.again.map(|most| most + late))
    }

    fn is_at_rest(&self) -> bool {
        self.found().rest.is_some_and(|rest| rest.in_time)
    }
}

fn expected(specs: &[Spec], judged: &Judged) -> Expect {
    let mut expect = expect(specs);
    let relay = |(topic, event_type): (&str, &str)| Consumer {
        name: format!("relay/{topic}"),
        effects: Effects::Published,
        handles: match event_type {
            "drill.child" => Handles::Children,
            _ => Handles::Intents,
        },
    };
    expect.consumers.extend(TOPICS.map(relay));
    expect.quarantined.clone_from(&judged.quarantined);
    expect.given_up.clone_from(&judged.given_up);
    expect.fan_out.clone_from(&judged.fan_out);
    expect
}
