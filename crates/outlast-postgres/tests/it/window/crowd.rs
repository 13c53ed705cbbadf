//! A crowd for the log: writers of every kind, claimers at once on the same consumers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fastrand::Rng;
use tokio::task::JoinSet;
use tokio_postgres::{Client, Error};

use super::account::{self, Account, EMIT, EMIT_ALL, Got};
use crate::house::{DEADLINE, House, forward};
use crate::sql::{self, Claim};
use outlast_testkit::{pg, wait_for};

/// The size of a run; everything else follows from its seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crowd {
    pub(crate) seed: u64,
    pub(crate) writers: u64,
    pub(crate) transactions: u32,
    /// Events of the one huge transaction; 0 for none.
    pub(crate) huge: i32,
    pub(crate) claimers: u64,
    /// Somebody moves the clock forward, by hours and while everybody works.
    pub(crate) clock_jumps: bool,
}

/// The event types: `narrow` reads only the first.
const TYPES: [&str; 3] = ["said.a", "said.b", "said.c"];

impl Crowd {
    pub(crate) fn of(seed: u64) -> Self {
        Self {
            seed,
            writers: 10,
            transactions: 25,
            huge: 0,
            claimers: 2,
            clock_jumps: false,
        }
    }

    /// Runs it to its end and settles the account.
    pub(crate) async fn run(self, house: &House) -> Account {
        let client = house.connect().await;
        account::open(&client).await;
        let free = sql::register(&client, "free", &TYPES[..2], "now", None).await;
        let laned = sql::register(&client, "laned", &TYPES[..2], "earliest", Some(4)).await;
        let narrow = sql::register(&client, "narrow", &TYPES[..1], "now", None).await;

        let done = Arc::new(AtomicBool::new(false));
        let mut jumper = JoinSet::new();
        if self.clock_jumps {
            let rng = Rng::with_seed(self.seed * 1000 + 900);
            jumper.spawn(jump(house.connect().await, rng, Arc::clone(&done)));
        }
        let mut writers = JoinSet::new();
        for writer in 0..self.writers {
            let rng = Rng::with_seed(self.seed * 1000 + writer);
            writers.spawn(write(
                house.connect().await,
                rng,
                self.transactions,
                format!("{}_{writer}", house.name()),
            ));
        }
        let elsewhere = pg::empty().await;
        for busy in 0..2 {
            let rng = Rng::with_seed(self.seed * 1000 + 500 + busy);
            writers.spawn(be_busy_elsewhere(
                elsewhere.connect().await,
                rng,
                self.transactions * 3,
            ));
        }
        if self.huge > 0 {
            writers.spawn(write_huge(house.connect().await, self.huge));
        }

        // Small pages, but a huge transaction is to be read within minutes.
        let page = if self.huge > 0 { 1000 } else { 60 };
        let mut claimers = JoinSet::new();
        for consumer in [free, laned, narrow] {
            for claimer in 0..self.claimers {
                let rng = Rng::with_seed(self.seed * 1000 + 700 + claimer);
                claimers.spawn(claim_all(
                    house.connect().await,
                    consumer,
                    page,
                    rng,
                    Arc::clone(&done),
                ));
            }
        }
        while let Some(ended) = writers.join_next().await {
            ended.expect("a writer ends well");
        }
        write_the_last_straggler(&client, free, house.connect().await).await;
        done.store(true, Ordering::SeqCst);
        jumper.join_all().await;
        let (mut got, mut refused) = (Vec::new(), Vec::new());
        for (claimed, refusal) in claimers.join_all().await {
            got.extend(claimed);
            refused.extend(refusal);
        }
        let consumers: [(i32, &[&str]); 3] = [
            (free, &TYPES[..2]),
            (laned, &TYPES[..2]),
            (narrow, &TYPES[..1]),
        ];
        let account = account::settle(&client, &consumers, &got).await;
        Account { refused, ..account }
    }
}

/// Some milliseconds, often none, seldom many.
async fn gap(client: &Client, rng: &mut Rng) {
    let ms = match rng.u8(..100) {
        0..40 => return,
        40..95 => rng.f64() * 4.0,
        _ => rng.f64() * 40.0,
    };
    sql::run(client, &format!("select pg_sleep({})", ms / 1000.0)).await;
}

async fn say(client: &Client, rng: &mut Rng) {
    let kind = TYPES[rng.usize(..TYPES.len())];
    let key = format!("key{}", rng.u8(..12));
    client.execute(EMIT, &[&kind, &key]).await.expect("emits");
}

async fn write(client: Client, mut rng: Rng, transactions: u32, name: String) {
    for transaction in 0..transactions {
        let isolation = if rng.u8(..5) == 0 {
            "repeatable read"
        } else {
            "read committed"
        };
        sql::run(&client, &format!("begin isolation level {isolation}")).await;
        if rng.bool() {
            // An id of a transaction that is older than everything it will emit.
            sql::run(&client, "select pg_current_xact_id()").await;
            gap(&client, &mut rng).await;
        }
        for _ in 0..rng.u8(1..4) {
            match rng.u8(..10) {
                0 | 1 => {
                    sql::run(&client, "savepoint s").await;
                    say(&client, &mut rng).await;
                    sql::run(&client, "rollback to s").await;
                }
                2 => {
                    sql::run(&client, "savepoint s").await;
                    say(&client, &mut rng).await;
                    sql::run(&client, "release s").await;
                }
                _ => say(&client, &mut rng).await,
            }
            gap(&client, &mut rng).await;
        }
        match rng.u8(..20) {
            0..3 => sql::run(&client, "rollback").await,
            3..6 => {
                sql::run(
                    &client,
                    &format!("prepare transaction '{name}_{transaction}'"),
                )
                .await;
                gap(&client, &mut rng).await;
                let end = if rng.u8(..4) == 0 {
                    "rollback"
                } else {
                    "commit"
                };
                sql::run(&client, &format!("{end} prepared '{name}_{transaction}'")).await;
            }
            _ => sql::run(&client, "commit").await,
        }
    }
}

/// Transaction ids come and go in another database.
async fn be_busy_elsewhere(client: Client, mut rng: Rng, transactions: u32) {
    for _ in 0..transactions {
        sql::run(&client, "begin; select pg_current_xact_id()").await;
        gap(&client, &mut rng).await;
        sql::run(&client, "commit").await;
    }
}

/// As a machine does that was suspended: at any moment, between any two statements of others.
async fn jump(client: Client, mut rng: Rng, done: Arc<AtomicBool>) {
    while !done.load(Ordering::SeqCst) {
        forward(&client, rng.i32(3600..15 * 3600)).await;
        let ms = rng.f64() * 60.0;
        sql::run(&client, &format!("select pg_sleep({})", ms / 1000.0)).await;
    }
}

async fn write_huge(client: Client, events: i32) {
    sql::run(&client, "begin").await;
    for n in 0..events / 1000 {
        client
            .execute(EMIT_ALL, &[&TYPES[0], &1000])
            .await
            .expect("emits");
        if n % 8 == 7 {
            sql::run(&client, "savepoint s").await;
        }
    }
    sql::run(&client, "commit").await;
}

/// Commits behind a tick that knows its id, and nothing is ever emitted after it.
async fn write_the_last_straggler(observer: &Client, consumer: i32, client: Client) {
    sql::run(&client, "begin").await;
    client
        .execute(EMIT, &[&TYPES[0], &"last"])
        .await
        .expect("emits");
    wait_for("a tick that knows the last id", DEADLINE, async || {
        let ticked = "select max((b).hi) = pg_sequence_last_value('outlast._event_id') from outlast._batch where consumer = $1";
        sql::one::<bool>(observer, ticked, &[&consumer]).await.then_some(())
    })
    .await;
    sql::run(&client, "commit").await;
}

/// Claims, seals and finishes until the writers are done and nothing is left.
async fn claim_all(
    client: Client,
    consumer: i32,
    page: i32,
    mut rng: Rng,
    done: Arc<AtomicBool>,
) -> (Vec<Got>, Vec<String>) {
    let (mut got, mut refused) = (Vec::new(), Vec::new());
    loop {
        let last_round = done.load(Ordering::SeqCst);
        let n = if last_round { 1000 } else { rng.i32(1..page) };
        let claim = Claim {
            lanes: rng.i32(1..5),
            ..Claim::of(consumer).n(n)
        };
        match claim.run(&client).await {
            Ok(claimed) if claimed.events.is_empty() && !claimed.moved => {
                if last_round {
                    return (got, refused);
                }
                // Nothing new: let the writers write.
                sql::run(&client, "select pg_sleep(0.001)").await;
            }
            Ok(claimed) => {
                let one_by_one = rng.bool();
                if let Err(error) =
                    take(&client, consumer, claimed.events, one_by_one, &mut got).await
                {
                    refused.push(sql::short(&error));
                }
            }
            Err(error) => {
                refused.push(sql::short(&error));
                // Where a fault is planted nobody can promise an end.
                if last_round && refused.len() > 20 {
                    return (got, refused);
                }
            }
        }
    }
}

/// Writes down what was claimed and where it stood, then seals and finishes it.
async fn take(
    client: &Client,
    consumer: i32,
    events: Vec<sql::Event>,
    one_by_one: bool,
    got: &mut Vec<Got>,
) -> Result<(), Error> {
    let mut tokens: Vec<_> = events.iter().map(|event| event.token).collect();
    tokens.sort_unstable();
    tokens.dedup();
    for token in &tokens {
        let row = client
            .query_one(
                "select lane, seq from outlast._lease where token = $1",
                &[token],
            )
            .await?;
        let mine = events.iter().filter(|event| event.token == *token);
        got.extend(mine.clone().map(|event| Got {
            consumer,
            lane: row.get(0),
            seq: row.get(1),
            log_id: event.log_id,
            event: event.id,
        }));
        let ids: Vec<_> = mine.map(|event| event.id).collect();
        // The single form checks more, the batch form is what makes a crowd quick.
        let (single, rest) = ids.split_at(if one_by_one { ids.len().min(20) } else { 0 });
        for id in single {
            sql::complete(client, *token, *id).await?;
        }
        if !rest.is_empty() {
            sql::seal(client, *token, rest).await?;
        }
    }
    sql::finish(client, &tokens).await?;
    Ok(())
}
