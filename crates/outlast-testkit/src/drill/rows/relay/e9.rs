//! E9: a message is in quarantine, and what is behind it of its key waits. A person mends the cause and has it published, or
//! gives it up: the same id, the order of its key, and a line of the audit.

use std::sync::Arc;

use anyhow::Result;
use serde_json::json;
use uuid::Uuid;

use super::{
    super::{Row, Scenario},
    at_work, done,
    e8::LARGEST,
    readers, served_once, site,
};
use crate::{
    drill::{
        site::Whose,
        source::Kind,
        world::{Judged, PATIENCE, World},
    },
    wait_for,
};

/// An early intent of the first client: most of what it does of that key comes later.
const POISON: i64 = 1_000_002;

pub(super) fn row(kind: Kind) -> Row {
    let mut scenarios = vec![
        Scenario::new("given-up", move |world| {
            quarantine(world, kind, Then::GivenUp)
        })
        .core(),
    ];
    if kind == Kind::Nats {
        // What is too much for Pub/Sub stays so.
        let mended = Scenario::new("mended", move |world| quarantine(world, kind, Then::Mended));
        scenarios.push(mended.core());
    }
    Row {
        name: "E9",
        what: "quarantine and replay: identity, order and audit intact",
        scenarios,
    }
}

/// What a person does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// The broker takes larger messages from now on; it is published.
    Mended,
    /// It is never published.
    GivenUp,
}

async fn quarantine(world: Arc<World>, kind: Kind, then: Then) -> Result<()> {
    const KEY: &str = "(select key from outlast._event e join drill.business b using (event_id) where b.n = 1000002)";
    let specs = readers();
    let site = site(&world, kind, Whose::Shared, &specs).await?;
    if kind == Kind::Nats {
        site.change(json!({ "max_msg_size": LARGEST })).await?;
    }
    served_once(&world, &site).await?;
    site.forget_limits(&world).await?;
    let client = world.emitter(1).set("poison-at", POISON);
    done(&*client.set("transactions", 40).start()?).await?;
    at_work(&world, &site, &specs).await?;
    // All other keys are done to their end; of this one all that was committed later waits.
    let others = format!(
        "select count(*) from outlast._event e where e.key <> {KEY}
           and not exists (select from outlast._processed_event p join outlast._consumer c on c.id = p.consumer
                           where c.name = 'relay/did' and p.event_id = e.event_id)"
    );
    wait_for("the other keys to be published", PATIENCE, async || {
        (world.number(&others).await.ok()? == 0).then_some(())
    })
    .await;
    let waiting =
        "select count(*) from outlast._parked p join outlast._consumer c on c.id = p.consumer
                   where c.name = 'relay/did' and p.state = 'behind'";
    wait_for("what is behind it to wait", PATIENCE, async || {
        (world.number(waiting).await.ok()? > 0).then_some(())
    })
    .await;
    world.fault("a message could not be sent, and its key waits");
    let row = world
        .client()
        .await?
        .query_one(
            "select event_id from drill.business where n = $1",
            &[&POISON],
        )
        .await?;
    let id: Uuid = row.get(0);
    let (did, action) = match then {
        Then::Mended => {
            site.change(json!({ "max_msg_size": -1 })).await?;
            (
                format!("select from outlast.retry('relay/did', '{id}', actor => 'drill')"),
                "parked.retried",
            )
        }
        Then::GivenUp => (
            format!(
                "select from outlast.skip('relay/did', '{id}', 'too much for it', actor => 'drill')"
            ),
            "parked.skipped",
        ),
    };
    world.client().await?.batch_execute(&did).await?;
    let mut judged = Judged {
        again: Some(0),
        failures: 1,
        ..Judged::default()
    };
    if then == Then::GivenUp {
        judged.given_up.insert(POISON);
    }
    world.settle_relayed(&site, &specs, &judged).await?;
    let audited = format!(
        "select count(*) from outlast._audit where action = '{action}' and actor = 'drill' and about like '%{id}'"
    );
    if world.number(&audited).await? != 1 {
        world.violated(format_args!("nobody has written down who did it: {action}"));
    }
    Ok(())
}
