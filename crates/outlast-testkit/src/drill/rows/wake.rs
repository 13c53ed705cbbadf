//! The process that looks for news for all of them is killed, or stands still: another one takes over within its lease,
//! and meanwhile everything arrives.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use outlast_postgres::{
    connect::{self, Target},
    schema::Schema,
    setting::{self, Values},
};
use tokio::time::Instant;

use super::{
    super::{
        worker::{Form, Spec},
        world::{PATIENCE, World},
    },
    Row, Scenario,
};
use crate::{process::Process, wait_for};

/// The poller's lease.
const ELECTED: Duration = Duration::from_secs(5);
/// What a busy machine may take to notice that it has lapsed, and to handle what is there.
const BUSY: Duration = Duration::from_secs(2);
/// Without being woken, a worker looks at everything this often.
const SWEEP: Duration = Duration::from_secs(5);

/// What becomes of the elected process.
#[derive(Clone, Copy)]
enum Fate {
    /// SIGKILL.
    Killed,
    /// SIGSTOP: its sessions stay, and with `notify` the lock under which it sleeps.
    Frozen,
}

pub(super) fn row() -> Row {
    let scenario = |name: &str, way, fate| Scenario::new(name, move |world| dies(world, way, fate));
    Row {
        name: "wake",
        what: "the elected poller is killed or stands still: another one takes over within its lease",
        scenarios: vec![
            scenario("killed-poll", "poll", Fate::Killed).core(),
            scenario("killed-notify", "notify", Fate::Killed),
            scenario("frozen-poll", "poll", Fate::Frozen),
            scenario("frozen-notify", "notify", Fate::Frozen).core(),
        ],
    }
}

async fn dies(world: Arc<World>, way: &'static str, fate: Fate) -> Result<()> {
    let specs = [
        Spec::new("ledger", Form::Tx),
        Spec::new("mail", Form::Outside),
    ];
    woken_by(&world, way).await?;
    let first = world.worker("first").consumers(&specs).running().await?;
    let elected = wait_for("somebody to be elected", PATIENCE, async || {
        elected(&world).await.ok().flatten()
    })
    .await;
    let second = world.worker("second").consumers(&specs).running().await?;
    let successor = name_of(&second)?;
    ensure!(
        elected.process == name_of(&first)?,
        "the first one is elected"
    );
    emit(&world, 1).await?;

    // What it holds last: it may renew until it is hit.
    match fate {
        Fate::Killed => first.kill(),
        Fate::Frozen => first.freeze(),
    }
    let hit = Instant::now();
    let last = elected_now(&world).await?;
    world.fault("the elected poller was hit");
    // Nobody watches now; the others look by themselves.
    emit(&world, 2).await?;
    all_done(&world, "an event without a poller", SWEEP + BUSY).await?;
    let next = wait_for("another one to be elected", PATIENCE, async || {
        let now = elected_now(&world).await.ok()?;
        (now.process != last.process).then_some(now)
    })
    .await;
    let took = hit.elapsed();
    let late = Duration::try_from_secs_f64(next.since - last.until).unwrap_or_default();
    world.note(format_args!(
        "elected {took:?} after the hit, {late:?} after the old lease"
    ));
    if next.process != successor || late > BUSY || took > ELECTED + BUSY {
        world.violated(format_args!("elected {took:?} after the hit, {late:?} after the end of the lease: {next:?} after {last:?}"));
    }
    // It watches: what is emitted is not left to the sweep.
    emit(&world, 3).await?;
    all_done(&world, "an event with a new poller", BUSY).await?;

    if matches!(fate, Fate::Frozen) {
        let now = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint";
        let thawed = world.number(now).await?;
        first.thaw();
        let awake = format!("select count(*) from pg_stat_activity where query ~ '_elect|_event_id|outlast_wake|_wake_lock'
              and pid <> pg_backend_pid() and datname = current_database()
              and extract(epoch from query_start) * 1000000 > {thawed}");
        wait_for("both to ask who is elected", PATIENCE, async || {
            (world.number(&awake).await.ok()? >= 2).then_some(())
        })
        .await;
        emit(&world, 4).await?;
        let still = elected_now(&world).await?;
        if still.process != successor {
            world.violated(format_args!(
                "who slept past its lease took the watch back: {still:?}"
            ));
        }
    }
    world.settle(&specs, 0).await
}

pub(super) async fn woken_by(world: &World, way: &str) -> Result<()> {
    let (mut client, _driver) = connect::connect(&Target::parse(world.url())?).await?;
    let mut wanted = Values::default();
    wanted.set("wake", way).map_err(anyhow::Error::msg)?;
    let shown = setting::plan(&client, Schema::DEFAULT, &wanted).await?;
    setting::apply(&mut client, Schema::DEFAULT, &wanted, &shown).await?;
    Ok(())
}

/// Who is elected. Times are seconds of the database's clock.
#[derive(Debug)]
struct Elected {
    process: String,
    until: f64,
    since: f64,
}

async fn elected(world: &World) -> Result<Option<Elected>> {
    const SQL: &str = "select process::text, extract(epoch from expires_at)::float8 from outlast._lease where room = 'poller'";
    let row = world.client().await?.query_opt(SQL, &[]).await?;
    Ok(row.map(|row| Elected {
        process: row.get(0),
        until: row.get(1),
        since: row.get::<_, f64>(1) - ELECTED.as_secs_f64(),
    }))
}

async fn elected_now(world: &World) -> Result<Elected> {
    elected(world).await?.context("somebody is elected")
}

/// As the database knows it.
fn name_of(worker: &Process) -> Result<String> {
    let lines = worker.lines();
    let name = lines
        .iter()
        .find_map(|line| line.split_once("worker is running process="))
        .and_then(|(_, rest)| rest.split_whitespace().next());
    Ok(name.context("a worker says its name")?.to_owned())
}

async fn emit(world: &World, number: u64) -> Result<()> {
    let client = world.emitter(number).set("transactions", 3).start()?;
    let status = client.exit(PATIENCE).await;
    ensure!(status.success(), "{client:?}");
    Ok(())
}

/// Everything is completed in time, counted from now.
async fn all_done(world: &World, what: &str, most: Duration) -> Result<()> {
    let began = Instant::now();
    wait_for(what, PATIENCE, async || {
        (outlast_checker::open_work(&world.client().await.ok()?, 2)
            .await
            .ok()?
            == 0)
            .then_some(())
    })
    .await;
    let took = began.elapsed();
    world.note(format_args!("{what}: done after {took:?}"));
    if took > most {
        world.violated(format_args!("{what} was done after {took:?} of {most:?}"));
    }
    Ok(())
}
