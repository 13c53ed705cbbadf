//! Every order of the steps of one writer and one tick: twenty orders, three ends, and each fault in at least one of them.

use outlast_testkit::wait_for;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::house::{DEADLINE, House};
use crate::sql::{self, Claim};

/// What the writer does, and up to where the tick is let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    TakeXid,
    Emit,
    End,
    First,
    Second,
    Third,
}

const WRITER: [Step; 3] = [Step::TakeXid, Step::Emit, Step::End];
const TICK: [Step; 3] = [Step::First, Step::Second, Step::Third];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Commit,
    Rollback,
    Prepared,
}

/// All orders in which two people can do three things each.
fn orders() -> Vec<Vec<Step>> {
    let mut orders = Vec::new();
    for bits in 0u32..64 {
        if bits.count_ones() == 3 {
            let (mut writer, mut tick) = (WRITER.into_iter(), TICK.into_iter());
            let next = |bit: u32| {
                if bits & (1 << bit) != 0 {
                    writer.next()
                } else {
                    tick.next()
                }
            };
            orders.push((0..6).filter_map(next).collect());
        }
    }
    orders
}

/// A lock before each step of a tick, opened by the play. They are held by the session, so a claim may end.
const GATES: [i64; 3] = [5001, 5002, 5003];

fn gate(n: usize) -> String {
    format!("perform pg_advisory_xact_lock_shared({});\n  ", GATES[n])
}

const SNAP: &str = "t.snap := pg_current_snapshot();\n";
const HI: &str = "t.hi := coalesce(pg_sequence_last_value('outlast._event_id'), 0);\n";
const H: &str = "t.h := pg_current_xact_id();\n";

/// A transaction id before the tick, which nobody minds.
const EARLY: &str =
    "perform pg_current_xact_id();\n  if false and pg_current_xact_id_if_assigned()";

struct Stage {
    writer: Client,
    other: Client,
    controller: Client,
    consumer: i32,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    lost: usize,
    phantom: usize,
    doubled: usize,
    refused: Vec<String>,
}

impl Stage {
    async fn new(house: &House) -> Self {
        let controller = house.connect().await;
        let consumer = sql::register(&controller, "c", &["a"], "now", None).await;
        Self {
            writer: house.connect().await,
            other: house.connect().await,
            controller,
            consumer,
        }
    }

    async fn play(&self, house: &House, order: &[Step], end: End) -> Outcome {
        let close = GATES
            .map(|gate| format!("select pg_advisory_lock({gate})"))
            .join(";");
        sql::run(&self.controller, &close).await;
        // Something to claim, so that the tick is taken.
        let bait = sql::emit(&self.other, "a", None).await;
        let claimer = house.connect().await;
        let pid = sql::pid(&claimer).await;
        let consumer = self.consumer;
        let claim = tokio::spawn(async move {
            let claimed = Claim::of(consumer).next(&claimer).await;
            (claimer, claimed)
        });
        self.until_at(pid, 0).await;

        let mut event = None;
        sql::run(&self.writer, "begin").await;
        for step in order {
            match step {
                Step::TakeXid => sql::run(&self.writer, "select pg_current_xact_id()").await,
                Step::Emit => event = Some(sql::emit(&self.writer, "a", None).await),
                Step::End => self.end(end).await,
                Step::First => self.open(0, Some((pid, 1))).await,
                Step::Second => self.open(1, Some((pid, 2))).await,
                Step::Third => {
                    self.open(2, None).await;
                    wait_for("the end of the claim", DEADLINE, async || {
                        claim.is_finished().then_some(())
                    })
                    .await;
                }
            }
        }
        let (claimer, first) = claim.await.expect("the claimer ends");
        let mut expected = vec![bait];
        if end != End::Rollback {
            expected.extend(event);
        }
        self.account(&claimer, first, &expected).await
    }

    async fn end(&self, end: End) {
        match end {
            End::Commit => sql::run(&self.writer, "commit").await,
            End::Rollback => sql::run(&self.writer, "rollback").await,
            End::Prepared => {
                let name: String =
                    sql::one(&self.writer, "select current_database()::text", &[]).await;
                sql::run(&self.writer, &format!("prepare transaction '{name}'")).await;
                sql::run(&self.writer, &format!("commit prepared '{name}'")).await;
            }
        }
    }

    async fn open(&self, gate: usize, then: Option<(i32, usize)>) {
        sql::run(
            &self.controller,
            &format!("select pg_advisory_unlock({})", GATES[gate]),
        )
        .await;
        if let Some((pid, next)) = then {
            self.until_at(pid, next).await;
        }
    }

    async fn until_at(&self, pid: i32, gate: usize) {
        let waits = "select exists (select from pg_locks where pid = $1 and not granted and objid = $2::bigint::oid)";
        wait_for(
            &format!("the tick to come to step {gate}"),
            DEADLINE,
            async || {
                sql::one::<bool>(&self.controller, waits, &[&pid, &GATES[gate]])
                    .await
                    .then_some(())
            },
        )
        .await;
    }

    /// Completes and claims until nothing is there.
    async fn account(
        &self,
        client: &Client,
        first: Result<Vec<sql::Event>, tokio_postgres::Error>,
        expected: &[Uuid],
    ) -> Outcome {
        let (mut outcome, mut got) = (Outcome::default(), Vec::new());
        let mut next = first;
        loop {
            let events = match next {
                Ok(events) if events.is_empty() => break,
                Ok(events) => events,
                Err(error) => {
                    outcome.refused.push(sql::short(&error));
                    break;
                }
            };
            for event in &events {
                got.push(event.id);
                if let Err(error) = sql::complete(client, event.token, event.id).await {
                    outcome.refused.push(sql::short(&error));
                }
            }
            if let Err(error) = sql::finish(client, &[events[0].token]).await {
                outcome.refused.push(sql::short(&error));
            }
            next = Claim::of(self.consumer).next(client).await;
        }
        outcome.lost = expected.iter().filter(|id| !got.contains(id)).count();
        outcome.phantom = got.iter().filter(|id| !expected.contains(id)).count();
        outcome.doubled = expected
            .iter()
            .map(|id| got.iter().filter(|g| *g == id).count().saturating_sub(1))
            .sum();
        outcome
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_every_order_of_a_writer_and_a_tick_each_committed_event_is_claimed_once() {
    let house = House::new().await;
    let (snap, hi, h) = (gate(0) + SNAP, gate(1) + HI, gate(2) + H);
    house
        .plant("_tick", &[(SNAP, &snap), (HI, &hi), (H, &h)])
        .await;
    let stage = Stage::new(&house).await;
    for end in [End::Commit, End::Rollback, End::Prepared] {
        for order in orders() {
            assert_eq!(
                stage.play(&house, &order, end).await,
                Outcome::default(),
                "{order:?}, {end:?}"
            );
        }
    }
    assert_eq!(sql::broken(&stage.controller).await, Vec::<String>::new());
}

/// Plays all orders; which of them show the fault.
async fn must_be_found(what: &str, tick: &[(&str, &str)], other: Option<(&str, &[(&str, &str)])>) {
    let house = House::new().await;
    house.plant("_tick", tick).await;
    if let Some((function, pieces)) = other {
        house.plant(function, pieces).await;
    }
    let stage = Stage::new(&house).await;
    let mut found = 0;
    for order in orders() {
        let outcome = stage.play(&house, &order, End::Commit).await;
        if outcome != Outcome::default() {
            println!("{what}: {order:?}: {outcome:?}");
            found += 1;
        }
    }
    assert!(found > 0, "{what}: not found in any order");
}

/// The gates at the places of the sound tick.
fn gated() -> [(&'static str, String); 3] {
    [(SNAP, gate(0) + SNAP), (HI, gate(1) + HI), (H, gate(2) + H)]
}

fn with<'a>(
    gated: &'a [(&'static str, String); 3],
    more: &[(&'a str, &'a str)],
) -> Vec<(&'a str, &'a str)> {
    gated
        .iter()
        .map(|(old, new)| (*old, new.as_str()))
        .chain(more.iter().copied())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_without_stragglers_is_found() {
    let piece = "here.hi := case when exists (select from outlast._stragglers(here.a, here.b)) then 0 else (here.a).hi end;";
    must_be_found(
        "no stragglers",
        &with(&gated(), &[]),
        Some(("_go_on", &[(piece, "here.hi := (here.a).hi;")])),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_with_only_open_stragglers_is_found() {
    let young = ("t.young := pg_snapshot_xmax(t.snap);", "t.young := null;");
    must_be_found("no stragglers above xmax", &with(&gated(), &[young]), None).await;
}

/// A reader that also asks for `hi` sees nothing above it, so it takes two faults.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hi_before_the_snapshot_is_found_by_a_reader_that_believes_the_snapshot_alone() {
    let hi_first = format!("{}{HI}  {}{SNAP}", gate(0), gate(1));
    let h = gate(2) + H;
    must_be_found(
        "hi before the snapshot",
        &[(HI, ""), (SNAP, &hi_first), (H, &h)],
        Some(("_sees", &[("id <= hi and ", "")])),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h_before_hi_is_found() {
    let snap = gate(0) + SNAP;
    let h_first = format!("{}{H}  {}{HI}", gate(1), gate(2));
    must_be_found(
        "h before hi",
        &[(H, ""), (HI, &h_first), (SNAP, &snap)],
        None,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tick_in_a_transaction_that_has_an_id_is_found() {
    let early = ("if pg_current_xact_id_if_assigned()", EARLY);
    must_be_found(
        "an own transaction id before the tick",
        &with(&gated(), &[early]),
        None,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tick_only_when_the_sequence_moved_is_found() {
    let pieces = [
        (
            "if (t).open is not null and exists (",
            "if false and exists (",
        ),
        ("if (t).young is not null then", "if false then"),
    ];
    must_be_found(
        "a tick only when the sequence moved",
        &with(&gated(), &[]),
        Some(("_beyond", &pieces)),
    )
    .await;
}

/// Two claimers of one consumer at once: the second one waits, and then goes on from where the first one stood.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_ticks_at_once_are_found() {
    for planted in [false, true] {
        let house = House::new().await;
        let snap = gate(0) + SNAP;
        house.plant("_tick", &[(SNAP, &snap)]).await;
        if planted {
            house
                .plant(
                    "_lock_parts",
                    &[(
                        "perform pg_advisory_xact_lock(outlast._lane_lock((c).id, 0));",
                        "",
                    )],
                )
                .await;
            let locks = "pg_try_advisory_xact_lock(outlast._lane_lock(_claim.consumer, 0))";
            house.plant("_claim", &[(locks, "true")]).await;
            // The keys of the batch and of its lease would still stop the second one; that is no answer, only a net.
            let no_net = "alter table outlast._batch drop constraint _batch_pkey; drop index outlast._lease_batch";
            sql::run(&house.connect().await, no_net).await;
        }
        let stage = Stage::new(&house).await;
        sql::run(
            &stage.controller,
            &format!("select pg_advisory_lock({})", GATES[0]),
        )
        .await;
        let event = sql::emit(&stage.other, "a", None).await;
        let mut claims = Vec::new();
        for _ in 0..2 {
            let (client, consumer) = (house.connect().await, stage.consumer);
            let pid = sql::pid(&client).await;
            claims.push(tokio::spawn(async move {
                Claim::of(consumer).next(&client).await.expect("claims")
            }));
            sql::until_blocked(&stage.controller, pid).await;
        }
        sql::run(
            &stage.controller,
            &format!("select pg_advisory_unlock({})", GATES[0]),
        )
        .await;
        let mut got = Vec::new();
        for claim in claims {
            got.extend(claim.await.expect("a claimer ends").iter().map(|e| e.id));
        }
        assert_eq!(got, vec![event; if planted { 2 } else { 1 }]);
    }
}

/// A session that keeps ids in reserve writes below what a tick has seen.
#[tokio::test]
async fn ids_kept_in_reserve_are_refused_and_would_be_lost() {
    let house = House::new().await;
    let (writer, client) = (house.connect().await, house.connect().await);
    let consumer = sql::register(&client, "c", &["a"], "now", None).await;
    sql::run(&client, "alter sequence outlast._event_id cache 20").await;
    sql::emit(&writer, "a", None).await;
    assert_eq!(sql::state(Claim::of(consumer).run(&client).await), "OL011");

    let check = (".cache_size <> 1 then", ".cache_size < 1 then");
    house.plant("_tick", &[check]).await;
    let other = sql::emit(&client, "a", None).await;
    let seen = Claim::of(consumer).next(&client).await.expect("claims");
    assert!(seen.iter().any(|event| event.id == other));
    sql::emit(&writer, "a", None).await;
    assert!(
        Claim::of(consumer)
            .next(&client)
            .await
            .expect("claims")
            .is_empty(),
        "it is lost"
    );
}
