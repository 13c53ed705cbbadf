//! What each end of a try leaves in the database, through both drivers: rows of the handler and the seal, or neither.

use super::{Context, Delivery, End, Form, Kind, Paid, Received, received};
use crate::{Attempt, Consumer, Sealed, attempt::Shape};
use futures_util::FutureExt;
use outlast_core::{Class, Failure, Outcome};
use outlast_postgres::{
    Error,
    connect::{self, Target},
    tx::{OwnedTx, Pool, Tx},
};
use outlast_testkit::{
    pg::{self, Database},
    proxy::{Fault, Proxy, When},
    wait_for,
};
use sqlx::postgres::PgPoolOptions;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;
use tokio_postgres::Client;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// What a handler does after it has written its row.
#[derive(Clone, Copy, Debug)]
enum Then {
    Return,
    Skip,
    Fail,
    Panic,
    /// Runs a statement that fails, and returns `Ok`.
    Swallow,
    /// Runs this statement, and returns `Ok`.
    Run(&'static str),
    /// Tries to seal by itself in another transaction.
    Seal,
}

#[derive(Clone)]
struct State<P> {
    then: Then,
    pool: P,
}

async fn write(tx: &mut dyn Tx, id: Uuid) -> Result<(), Error> {
    let id = id.to_string();
    let sql = "insert into effect values ($1::text::uuid)";
    tx.call(sql, &[id.as_str().into()]).await.map(drop)
}

async fn act<P: Pool>(
    state: State<P>,
    tx: &mut P::Tx,
    e: Attempt<Paid>,
) -> Result<Outcome, Failure> {
    write(tx, e.id()).await?;
    match state.then {
        Then::Return => {}
        Then::Skip => return Ok(Outcome::skipped("not ours")),
        Then::Fail => return Err(Failure::retry("no luck")),
        Then::Panic => panic!("no luck at all"),
        Then::Swallow => drop(tx.call("select 1 / 0", &[]).await),
        Then::Run(sql) => drop(tx.call(sql, &[]).await?),
        Then::Seal => drop(e.seal(state.pool.begin().await?).await?),
    }
    Ok(Outcome::Done)
}

async fn seal<P: Pool>(state: State<P>, e: Attempt<Paid>) -> Result<Sealed, Failure> {
    let mut tx = state.pool.begin().await?;
    write(&mut tx, e.id()).await?;
    let sealed = e.seal(tx).await;
    match state.then {
        Then::Fail => Err(Failure::retry("after the seal")),
        Then::Seal => e.seal(state.pool.begin().await?).await,
        _ => sealed,
    }
}

async fn many<P: Pool>(
    state: State<P>,
    tx: &mut P::Tx,
    events: Vec<Attempt<Paid>>,
) -> Result<(), Failure> {
    for e in &events {
        write(tx, e.id()).await?;
    }
    match state.then {
        Then::Fail => Err(Failure::retry("no luck")),
        Then::Run(sql) => {
            tx.call(sql, &[]).await?;
            Ok(())
        }
        _ => Ok(()),
    }
}

struct Given {
    db: Database,
    sql: Client,
    proxy: Proxy,
}

async fn given() -> Given {
    let db = pg::outlast().await;
    let sql = db.connect().await;
    for once in [
        "create table effect (id uuid)",
        "select outlast.register('ledger', array['paid'])",
    ] {
        sql.batch_execute(once).await.unwrap();
    }
    let proxy = Proxy::before(db.url()).await;
    Given { db, sql, proxy }
}

impl Given {
    fn deadpool(&self) -> deadpool_postgres::Pool {
        connect::pool(&Target::parse(self.proxy.url()).unwrap(), 4).unwrap()
    }

    async fn sqlx(&self) -> sqlx::PgPool {
        let options = PgPoolOptions::new().max_connections(4);
        options.connect(self.proxy.url()).await.unwrap()
    }

    /// Emits `n` events and claims them.
    async fn claim(&self, n: i32) -> Vec<Delivery> {
        let emit = "select outlast.emit('paid', '{\"cents\":5}', version => 2) from generate_series(1, $1)";
        self.sql.execute(emit, &[&n]).await.unwrap();
        let claim = "select token, id, payload from outlast.claim('event', 'ledger', $1, 60000)";
        let rows = self.sql.query(claim, &[&n]).await.unwrap();
        assert_eq!(rows.len(), usize::try_from(n).unwrap());
        rows.iter()
            .map(|row| deliver(row.get(0), row.get(1), row.get(2)))
            .collect()
    }

    /// The lease goes to somebody newer.
    async fn steal(&self, delivery: &Delivery) {
        let lapse = "update outlast._lease set expires_at = outlast.clock() - interval '1 s' where token = $1";
        assert_eq!(
            self.sql.execute(lapse, &[&delivery.token]).await.unwrap(),
            1
        );
        let taken = self
            .sql
            .query("select token from outlast.claim('event', 'ledger', 1)", &[])
            .await
            .unwrap();
        assert!(!taken.is_empty() && taken[0].get::<_, Uuid>(0) != delivery.token);
    }

    /// Rows of the handler, and how the event was sealed.
    async fn left(&self, id: Uuid) -> (i64, Option<String>) {
        let sql = "select (select count(*) from effect e where e.id = $1), \
            (select outcome || coalesce(': ' || reason, '') from outlast.processed p where p.id = $1)";
        let row = self.sql.query_one(sql, &[&id]).await.unwrap();
        (row.get(0), row.get(1))
    }
}

fn deliver(token: Uuid, id: Uuid, payload: Vec<u8>) -> Delivery {
    let event = Received {
        id,
        payload: payload.into(),
        ..received(2, "")
    };
    let deadline = Instant::now() + Duration::from_secs(600);
    Delivery::new(
        Arc::new(event),
        token,
        1,
        deadline,
        CancellationToken::new(),
    )
}

fn context() -> Context {
    Context {
        kind: Kind::Consumer,
        ordered: false,
        consumer: "ledger".into(),
        around: None,
        codec: None,
        accepted: None,
        provider: None,
    }
}

async fn run<S: Clone>(consumer: Consumer<S>, state: S, delivery: Delivery) -> End {
    match consumer.handlers[0].form.clone() {
        Form::Effect(one) | Form::Tx(one, _) => {
            one.start(context(), state, delivery).await.unwrap()
        }
        Form::Batch(..) | Form::Publish(_) | Form::Command(_) => panic!("one event at a time"),
    }
}

fn in_tx<P: Pool>(pool: &P) -> Consumer<State<P>> {
    Consumer::new("ledger").on_tx(pool, act::<P>)
}

fn sealing<P: Pool>() -> Consumer<State<P>> {
    Consumer::new("ledger").on(seal::<P>)
}

fn said(end: &End) -> String {
    match end {
        End::Failed(failure) => format!("failed, {failure}"),
        other => format!("{other:?}"),
    }
}

/// Rows of the handler, and how its event was sealed.
type Left = (i64, Option<&'static str>);

async fn each_end(given: &Given, pool: impl Pool) {
    let refused = "failed, permanent: the handler ended its transaction itself";
    let swallowed = "failed, unclassified: the handler returned Ok, but a statement of its transaction had failed";
    let table: [(Then, &str, Left); 8] = [
        (Then::Return, "Sealed(Done)", (1, Some("done"))),
        (Then::Skip, "Sealed(Skipped", (1, Some("skipped: not ours"))),
        (Then::Fail, "failed, retry: no luck", (0, None)),
        (
            Then::Panic,
            "failed, unclassified: panicked: no luck at all",
            (0, None),
        ),
        (Then::Swallow, swallowed, (0, None)),
        (Then::Run("rollback"), refused, (0, None)),
        // Its own doing; but not completed, so somebody will look.
        (Then::Run("commit"), refused, (1, None)),
        (
            Then::Seal,
            "failed, permanent: seal: this is sealed already, or will be by on_tx",
            (0, None),
        ),
    ];
    for (then, expected, (rows, sealed)) in table {
        let delivery = given.claim(1).await.remove(0);
        let id = delivery.event.id;
        let state = State {
            then,
            pool: pool.clone(),
        };
        let end = run(in_tx(&pool), state, delivery).await;
        assert!(said(&end).starts_with(expected), "{then:?}: {}", said(&end));
        assert_eq!(
            given.left(id).await,
            (rows, sealed.map(str::to_owned)),
            "{then:?}"
        );
    }
}

#[tokio::test]
async fn a_transactional_try_leaves_rows_and_seal_or_neither() {
    let given = given().await;
    each_end(&given, given.deadpool()).await;
    each_end(&given, given.sqlx().await).await;
}

async fn lost_lease(given: &Given, pool: impl Pool) {
    for consumer in [in_tx(&pool), sealing()] {
        let delivery = given.claim(1).await.remove(0);
        let id = delivery.event.id;
        given.steal(&delivery).await;
        let end = run(
            consumer,
            State {
                then: Then::Return,
                pool: pool.clone(),
            },
            delivery,
        )
        .await;
        assert!(matches!(end, End::Refused(Error::LeaseLost)), "{end:?}");
        assert_eq!(given.left(id).await, (0, None));
    }
}

#[tokio::test]
async fn a_try_whose_lease_was_taken_over_commits_nothing() {
    let given = given().await;
    lost_lease(&given, given.deadpool()).await;
    lost_lease(&given, given.sqlx().await).await;
}

async fn unanswered(given: &Given, pool: impl Pool) {
    for (fault, expected) in [
        (Fault::DropReply, (1, Some("done".to_owned()))),
        (Fault::DropRequest, (0, None)),
    ] {
        for consumer in [in_tx(&pool), sealing()] {
            let delivery = given.claim(1).await.remove(0);
            let id = delivery.event.id;
            let armed = given.proxy.arm(When::Commit, fault);
            let end = run(
                consumer,
                State {
                    then: Then::Return,
                    pool: pool.clone(),
                },
                delivery,
            )
            .await;
            // Sealed and committed in one message: then the lease tells, not the transaction.
            assert!(matches!(end, End::Unsure { .. }), "{fault:?}: {end:?}");
            armed.fired().await;
            let settled = async || (given.left(id).await == expected).then_some(());
            wait_for(
                "what the unanswered commit left",
                Duration::from_secs(30),
                settled,
            )
            .await;
        }
    }
}

#[tokio::test]
async fn a_commit_without_an_answer_leaves_the_truth_to_be_looked_for() {
    let given = given().await;
    unanswered(&given, given.deadpool()).await;
    unanswered(&given, given.sqlx().await).await;
}

async fn own_seal(given: &Given, pool: impl Pool) {
    for then in [Then::Return, Then::Fail, Then::Seal] {
        let delivery = given.claim(1).await.remove(0);
        let id = delivery.event.id;
        let end = run(
            sealing(),
            State {
                then,
                pool: pool.clone(),
            },
            delivery.clone(),
        )
        .await;
        assert!(
            matches!(end, End::Sealed(Outcome::Done)),
            "{then:?}: {end:?}"
        );
        assert_eq!(
            given.left(id).await,
            (1, Some("done".to_owned())),
            "{then:?}"
        );

        let again = Delivery::new(
            delivery.event,
            delivery.token,
            2,
            delivery.deadline,
            delivery.lost,
        );
        let end = run(
            sealing(),
            State {
                then: Then::Return,
                pool: pool.clone(),
            },
            again,
        )
        .await;
        assert!(matches!(end, End::Refused(Error::AlreadySealed)), "{end:?}");
        assert_eq!(
            given.left(id).await,
            (1, Some("done".to_owned())),
            "a second try commits nothing"
        );
    }
}

#[tokio::test]
async fn a_handler_that_seals_by_itself_is_believed_by_its_commit_not_by_what_it_returns() {
    let given = given().await;
    own_seal(&given, given.deadpool()).await;
    own_seal(&given, given.sqlx().await).await;
}

/// A seal is a matter of one transaction: dropped inside its commit, the try does not claim to know.
#[tokio::test]
async fn a_seal_that_is_dropped_inside_its_commit_is_unsure() {
    async fn hasty(state: State<deadpool_postgres::Pool>, e: Attempt<Paid>) -> Result<(), Failure> {
        let tx = state.pool.begin().await?;
        tokio::select! {
            sealed = e.seal(tx) => drop(sealed?),
            () = std::future::ready(()) => {}
        }
        Ok(())
    }
    let given = given().await;
    let delivery = given.claim(1).await.remove(0);
    let pool = given.deadpool();
    // Warm, so that the commit is reached at the first poll after the answer to the seal.
    pool.begin().await.unwrap().rollback().await.unwrap();
    let armed = given.proxy.arm(When::Commit, Fault::HoldRequest);
    let attempt = Attempt::<Paid>::read(delivery.clone(), &Shape::of_event()).unwrap();
    let mut sealing = Box::pin(async { attempt.seal(pool.begin().await?).await });
    tokio::select! {
        _ = &mut sealing => panic!("answered while it was held"),
        () = armed.fired() => {}
    }
    drop(sealing);
    assert!(matches!(
        delivery.seal.take(),
        super::SealState::Unsure(Some(_))
    ));
    armed.release();
    let sealed = async || (given.left(delivery.event.id).await.1.is_some()).then_some(());
    wait_for(
        "the commit goes on without its future",
        Duration::from_secs(30),
        sealed,
    )
    .await;

    let delivery = given.claim(1).await.remove(0);
    let end = run(
        Consumer::new("ledger").on(hasty),
        State {
            then: Then::Return,
            pool,
        },
        delivery,
    )
    .await;
    assert!(matches!(end, End::Done(_)), "nothing was sent yet: {end:?}");
}

#[tokio::test]
async fn waiting_for_a_connection_is_not_an_attempt() {
    let given = given().await;
    let pool = connect::pool(&Target::parse(given.db.url()).unwrap(), 1).unwrap();
    let taken = Pool::begin(&pool).await.unwrap();
    let state = || State {
        then: Then::Return,
        pool: pool.clone(),
    };
    let delivery = given.claim(1).await.remove(0);

    let late = Delivery {
        deadline: Instant::now(),
        ..delivery.clone()
    };
    let end = run(in_tx(&pool), state(), late).await;
    assert!(
        matches!(end, End::NoTransaction(Error::PoolExhausted)),
        "{end:?}"
    );

    let lost = CancellationToken::new();
    let waiting = run(
        in_tx(&pool),
        state(),
        Delivery {
            lost: lost.clone(),
            ..delivery.clone()
        },
    );
    let mut waiting = Box::pin(waiting);
    assert!((&mut waiting).now_or_never().is_none());
    lost.cancel();
    assert!(matches!(waiting.await, End::NotStarted));

    taken.rollback().await.unwrap();
    let end = run(in_tx(&pool), state(), delivery).await;
    assert!(matches!(end, End::Sealed(_)), "{end:?}");
    assert_eq!(pool.status().size, 1);
}

async fn batches(given: &Given, pool: impl Pool) {
    let consumer = Consumer::new("ledger").on_batch(&pool, many::<_>);
    let Form::Batch(handler, probe) = consumer.handlers[0].form.clone() else {
        panic!("a batch handler")
    };
    let start = |then, deliveries| {
        let state = State {
            then,
            pool: pool.clone(),
        };
        handler.clone().start(context(), state, deliveries)
    };
    let fresh = |deliveries: &[Delivery]| -> Vec<Delivery> {
        let again = |d: &Delivery| {
            Delivery::new(
                d.event.clone(),
                d.token,
                d.number + 1,
                d.deadline,
                d.lost.clone(),
            )
        };
        deliveries.iter().map(again).collect()
    };
    let mut deliveries = given.claim(3).await;
    let odd = Received {
        payload: "{".into(),
        ..(*deliveries[1].event).clone()
    };
    deliveries[1].event = Arc::new(odd);
    let ids: Vec<_> = deliveries
        .iter()
        .map(|delivery| delivery.event.id)
        .collect();

    let failed = start(Then::Fail, fresh(&deliveries)).await.unwrap();
    assert!(
        matches!(&failed.end, End::Failed(failure) if failure.reason == "no luck"),
        "{failed:?}"
    );
    let ended = start(Then::Run("rollback"), fresh(&deliveries))
        .await
        .unwrap();
    assert!(
        matches!(&ended.end, End::Failed(failure) if failure.class == Class::Permanent),
        "{ended:?}"
    );
    for id in &ids {
        assert_eq!(given.left(*id).await, (0, None));
    }

    let done = start(Then::Return, fresh(&deliveries)).await.unwrap();
    assert!(matches!(done.end, End::Sealed(Outcome::Done)), "{done:?}");
    assert_eq!(
        (done.ids.as_slice(), done.failed.len()),
        (&[ids[0], ids[2]][..], 1)
    );
    assert_eq!(done.failed[0].0, ids[1]);
    for (id, expected) in ids.iter().zip([
        (1, Some("done".to_owned())),
        (0, None),
        (1, Some("done".to_owned())),
    ]) {
        assert_eq!(given.left(*id).await, expected);
    }

    let again = start(Then::Return, fresh(&deliveries)).await.unwrap();
    assert!(
        matches!(again.end, End::Refused(Error::AlreadySealed)),
        "{again:?}"
    );
    assert_eq!(
        given.left(ids[0]).await.0,
        1,
        "a second run of a batch commits nothing"
    );

    let stolen = given.claim(2).await;
    given.steal(&stolen[0]).await;
    let refused = start(Then::Return, stolen).await.unwrap();
    assert!(
        matches!(refused.end, End::Refused(Error::LeaseLost)),
        "{refused:?}"
    );

    let row = probe.ask("select current_database()::text").await.unwrap();
    assert_eq!(row, [Some(given.db.name().to_owned())]);
}

#[tokio::test]
async fn a_batch_is_one_commit_and_what_cannot_be_read_does_not_hold_it_up() {
    let given = given().await;
    batches(&given, given.deadpool()).await;
    batches(&given, given.sqlx().await).await;
}
