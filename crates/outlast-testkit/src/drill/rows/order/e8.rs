//! E8, commands: a provider that is away, that throttles, that allows only so much at once, and an order that kills who sends it.

use std::{os::unix::process::ExitStatusExt, sync::Arc, time::Duration};

use anyhow::{Result, bail, ensure};
use outlast_checker::orders::Expect;

use super::{Scenario, UNDER_WAY};
use crate::{
    drill::{
        desk::{Desk, gone, number},
        order::Wanted,
        world::{PATIENCE, World},
    },
    process::{Process, Signal},
    provider::order::{Fault, Habits, Kind, What},
    wait_for,
};

/// In the account that is limited.
const LIMIT: u32 = 2;
/// What a worker claims ahead of quick commands, for 50 ms of work.
const AHEAD: i64 = 16;
/// What was on its way when an account was paused, or is claimed at that moment.
const UNDER_WAY_MS: u64 = 700;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("provider-away", provider_away).core(),
        Scenario::new("throttled", throttled).core(),
        Scenario::new("limited", limited).core(),
        Scenario::new("kills-its-sender", kills_its_sender),
    ]
}

/// So many of one account and kind.
fn of_account(kind: Kind, account: &str, first: i64, count: i64) -> Vec<Wanted> {
    let at = Kind::ALL
        .into_iter()
        .position(|one| one == kind)
        .expect("a kind");
    let one = |n| Wanted {
        account: account.to_owned(),
        ..Wanted::new(kind, number(at, n))
    };
    (first..first + count).map(one).collect()
}

/// Nobody listens for a while. It is not asked again and again, nothing is unknown, and all goes on when it is back.
async fn provider_away(world: Arc<World>) -> Result<()> {
    let desk = Desk::open(world.clone()).await?;
    desk.sender("only").set("concurrency", 1).running().await?;
    desk.give(of_account(Kind::Keyless, "one", 0, 4)).await?;
    desk.rests().await?;
    gone(desk.provider().process()).await;
    desk.give(of_account(Kind::Keyless, "one", 100, 30)).await?;
    // The measure is a time.
    let away = Duration::from_secs(3);
    tokio::time::sleep(away).await;
    let refused = "select count(*) from outlast._evidence where what = 'failed'";
    let tries = world.number(refused).await?;
    world.fault(format_args!(
        "the provider was away for {away:?}: {tries} tries"
    ));
    // Five find out, and what was claimed ahead of them. Then one at a time does, each later than the one before.
    if tries == 0 || tries > 5 + AHEAD + 2 {
        world.violated(format_args!("{tries} tries in {away:?}, with nobody there"));
    }
    desk.provider_again().await;
    if world.small {
        // A person knows that it is back.
        let resumed = "select outlast.resume_account('one')";
        world.client().await?.batch_execute(resumed).await?;
    }
    let report = desk.settle(&Expect::default()).await?;
    if report.unknown > 0 || report.persons > 0 {
        world.violated(format_args!(
            "{} were unknown, {} are a person's: nobody was there",
            report.unknown, report.persons
        ));
    }
    Ok(())
}

/// One account is throttled for three seconds: it is left alone as a whole, spends nothing, and others go on.
async fn throttled(world: Arc<World>) -> Result<()> {
    let desk = Desk::open(world.clone()).await?;
    let after = 3;
    desk.habits(&Habits {
        account: Some("slow".into()),
        retry_after: after,
        visits: 1,
        ..Habits::only(Fault::Throttled)
    })
    .await;
    for nth in 0..2 {
        desk.sender(&nth.to_string()).running().await?;
    }
    desk.give(of_account(Kind::Keyless, "slow", 0, 10)).await?;
    let orders = async || desk.provider().orders();
    wait_for("the first 429", PATIENCE, async || {
        orders()
            .await
            .iter()
            .any(|entry| entry.what == What::Throttled)
            .then_some(())
    })
    .await;
    // What comes afterwards is taken at once, and the account is left alone all the same.
    desk.habits(&Habits::default()).await;
    desk.give(of_account(Kind::Keyless, "other", 100, 10))
        .await?;
    desk.settle(&Expect::default()).await?;
    let orders = orders().await;
    let throttled = orders.iter().filter(|entry| entry.what == What::Throttled);
    world.faults(throttled.clone().count(), "429 was answered");
    let last = throttled.map(|entry| entry.at_ms).max().unwrap_or_default();
    let pause = last..last + after * 1000 - 50;
    let hit = orders.iter().filter(|entry| {
        entry.account == "slow" && entry.at_ms > last + UNDER_WAY_MS && pause.contains(&entry.at_ms)
    });
    let hit: Vec<_> = hit.collect();
    if !hit.is_empty() {
        world.violated(format_args!(
            "asked while it wanted to be left alone: {hit:?}"
        ));
    }
    let others = orders.iter().filter(|entry| entry.account == "other");
    if others.clone().count() != 10 || others.map(|entry| entry.at_ms).max() > Some(pause.end) {
        world.violated("another account waited for the one that was throttled");
    }
    let spent = world
        .number("select coalesce(sum(failures), 0)::bigint from outlast._job_state")
        .await?;
    if spent > 0 {
        world.violated(format_args!(
            "{spent} attempts were spent by being throttled"
        ));
    }
    Ok(())
}

/// An account is allowed two at once, whoever asks: three processes with room for twelve.
async fn limited(world: Arc<World>) -> Result<()> {
    let desk = Desk::open(world.clone()).await?;
    let limit = format!("select outlast.limit_account('small', concurrency => {LIMIT})");
    world.client().await?.batch_execute(&limit).await?;
    desk.habits(&Habits {
        slow_ms: 120,
        ..Habits::only(Fault::Slow)
    })
    .await;
    let (count, first) = (
        if world.small { 30 } else { 90 },
        of_account(Kind::Keyless, "small", 0, 10),
    );
    desk.give(first).await?;
    for nth in 0..3 {
        desk.sender(&nth.to_string()).running().await?;
    }
    desk.give(of_account(Kind::Keyless, "small", 100, count))
        .await?;
    world.fault("three senders want more of an account than it is allowed");
    desk.settle(&Expect::default()).await?;
    let orders = desk.provider().orders();
    let most = orders
        .iter()
        .map(|entry| entry.beside)
        .max()
        .unwrap_or_default();
    world.figure(format_args!("at most {most} of the account were under way"));
    if most > LIMIT {
        world.violated(format_args!(
            "{most} were under way at once, and {LIMIT} are allowed"
        ));
    }
    Ok(())
}

/// An order kills its sender whenever it is sent. Somebody starts it again each time; the others go on.
async fn kills_its_sender(world: Arc<World>) -> Result<()> {
    let desk = Desk::open(world.clone()).await?;
    // Keyless: the first death is one too many to send it again.
    let poison = number(3, 2);
    desk.give_each(0, 6).await?;
    let mut deaths = 0;
    loop {
        let sender = desk
            .sender(&format!("life-{deaths}"))
            .set("abort-at", poison)
            .start()?;
        if !dies_or_rests(&world, &sender).await? {
            break;
        }
        deaths += 1;
        world.fault("an order killed its sender");
        ensure!(deaths < 5, "it has killed {deaths} senders, and may go on");
    }
    desk.settle(&Expect {
        in_between: deaths * UNDER_WAY,
        ..Expect::default()
    })
    .await?;
    if deaths != 1 {
        world.violated(format_args!(
            "a keyless order was sent {deaths} times, with nobody knowing what became of the first"
        ));
    }
    Ok(())
}

/// Whether the sender was killed; if not, there is nothing left to do.
async fn dies_or_rests(world: &World, sender: &Process) -> Result<bool> {
    let end = wait_for("a death or rest", PATIENCE, async || match sender.ended() {
        Some(status) => Some(Some(status)),
        None => (world.number(outlast_checker::orders::OPEN).await.ok()? == 0).then_some(None),
    });
    match end.await {
        None => Ok(false),
        Some(status) if status.signal() == Some(Signal::ABORT.as_raw()) => Ok(true),
        Some(status) => bail!("the sender ended otherwise ({status}): {sender:?}"),
    }
}
