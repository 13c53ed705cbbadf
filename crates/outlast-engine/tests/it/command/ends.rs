//! What a provider answers, and who hears of it.

use std::time::Duration;

use outlast_core::{Command, Failure, Found, Resolution, Resolved, Sent};
use outlast_engine::{Attempt, Consumer, IfUnknown, Outlast};
use outlast_postgres::{
    Error,
    command::Settlement,
    tx::{OwnedTx, Pool},
};
use tokio::sync::mpsc;

use super::{Acme, Becomes, Charge, ChargeId, charge, find, keyed, settled};
use crate::given::{Given, Told, named, next};

async fn heard(told: Told, e: Attempt<Resolved<Charge>>) -> Result<(), Failure> {
    let about = match &e.how {
        Resolution::Settled(ChargeId(id)) => i64::from(id == "ch_1"),
        Resolution::Rejected(_) => 2,
        Resolution::Obsolete(_) => 3,
        Resolution::Cancelled(_) => 4,
        Resolution::Abandoned { .. } => 5,
        #[allow(unreachable_patterns, reason = "more ways may come")]
        _ => 6,
    };
    assert_eq!(e.key(), Some(e.command.key().as_str()));
    let _ = told.send(e.command.n * 10 + about);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_given_is_sent_and_its_end_is_an_event_for_any_consumer() {
    let given = named().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let books = given.start(told, Consumer::new("books").on(heard));
    given
        .until("select count(*) from outlast.consumer", 1)
        .await;
    let acme = Acme::that(vec![
        Becomes::Answer(settled()),
        Becomes::Answer(Sent::Rejected("no funds".into())),
        Becomes::Answer(Sent::Obsolete("the booking was cancelled".into())),
    ]);
    let worker = Given::run(
        given
            .worker(acme.clone())
            .command(charge, IfUnknown::ask_a_person()),
    );
    for n in 1..4 {
        given.give(n..n + 1).await;
        assert_eq!(next(&mut hears).await, n * 10 + n);
    }
    let again = given.give(1..2).await;
    assert!(!again[0].new, "the same command, whatever became of it");
    let mut tx = given.pool.begin().await.unwrap();
    let other = Charge {
        n: 1,
        amount: "2.00".into(),
    };
    let conflict = Outlast::new().command(&mut tx, &other).await;
    assert!(
        matches!(
            conflict,
            Err(Error::Conflict {
                kind: "command",
                ..
            })
        ),
        "{conflict:?}"
    );
    tx.commit().await.unwrap();
    assert_eq!(acme.asked.lock().await.len(), 3);
    given.verified().await;
    worker.stop().await.unwrap();
    books.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_pending_is_polled_or_settled_by_its_key() {
    let given = named().await;
    let acme = Acme::that(vec![Becomes::Answer(Sent::Pending {
        reference: "p_1".into(),
    })])
    .found(vec![
        Found::Pending {
            reference: "p_1".into(),
        },
        Found::Settled(ChargeId("ch_1".into())),
    ]);
    async fn poll(acme: Acme, c: Attempt<Charge>) -> Result<Found<ChargeId>, Failure> {
        assert_eq!(c.reference(), Some("p_1"));
        find(acme, c).await
    }
    let worker = given
        .worker(acme.clone())
        .command(charge, IfUnknown::ask_a_person())
        .poll(Duration::from_secs(1), poll);
    let worker = Given::run(worker);
    given.give(0..1).await;
    given.commands(1, "settled").await;

    *acme.finds.lock().await = vec![Found::Unsure];
    given.give(1..2).await;
    given.commands(1, "pending").await;
    assert_eq!(given.settle("1").await, Settlement::Ends);
    assert_eq!(given.settle("1").await, Settlement::Same);
    given.commands(2, "settled").await;

    assert_eq!(given.settle("2").await, Settlement::Early);
    given.give(2..3).await;
    given.commands(3, "settled").await;
    assert_eq!(
        acme.asked.lock().await.len(),
        2,
        "what was settled before it was there is not sent"
    );
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_throttled_try_pauses_the_account_and_spends_nothing() {
    let given = named().await;
    let acme = Acme::that(vec![
        Becomes::Fails(Failure::throttled(Duration::from_secs(2))),
        Becomes::Answer(settled()),
    ]);
    let worker = Given::run(given.worker(acme).command(charge, keyed()));
    given.give(0..3).await;
    given
        .until(
            "select count(*) from outlast.account where reason is not null",
            1,
        )
        .await;
    given.commands(3, "settled").await;
    given
        .until(
            "select coalesce(max(attempt), 0)::bigint from outlast.command",
            0,
        )
        .await;
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_given_is_told_before_a_statement_is_sent() {
    let given = named().await;
    let mut tx = given.pool.begin().await.unwrap();
    let outlast = Outlast::new();
    let large = Charge {
        n: 1,
        amount: "9".repeat(128 * 1024),
    };
    let refused = outlast.command(&mut tx, &large).await;
    assert!(
        matches!(refused, Err(Error::TooLarge { limit: 131_072, .. })),
        "{refused:?}"
    );
    let far = Charge {
        n: 1,
        amount: "1".into(),
    };
    let refused = outlast
        .command(&mut tx, &far)
        .after(Duration::from_secs(400 * 365 * 24 * 3600))
        .await;
    assert!(matches!(refused, Err(Error::BadName(_))), "{refused:?}");
    let refused = outlast
        .settle::<Charge>(&mut tx, "k", Resolution::Cancelled("no".into()))
        .await;
    assert!(matches!(refused, Err(Error::BadName(_))), "{refused:?}");
    let refused = outlast
        .settle::<Charge>(&mut tx, "k", Resolution::Rejected(String::new()))
        .await;
    assert!(matches!(refused, Err(Error::BadName(_))), "{refused:?}");
    // The transaction is as usable as before.
    let accepted = outlast.command(&mut tx, &far).await.unwrap();
    let withdrawn = outlast
        .cancel_command::<Charge>(&mut tx, "1", "a mistake")
        .await
        .unwrap();
    assert_eq!(withdrawn, outlast_postgres::job::Cancel::Withdrawn);
    tx.commit().await.unwrap();
    given.commands(1, "cancelled").await;

    let mut tx = given.pool.begin().await.unwrap();
    let again = outlast
        .cancel_command::<Charge>(&mut tx, "1", "again")
        .await;
    assert_eq!(again.unwrap(), outlast_postgres::job::Cancel::Ended);
    let status = outlast.status(&mut tx, accepted.id).await.unwrap().unwrap();
    assert!(status.state == outlast_core::command::State::Cancelled);
    assert_eq!(
        (status.kind.as_str(), status.key.as_deref()),
        ("command", Some("1"))
    );
}

#[tokio::test]
async fn a_poll_of_what_is_not_sent_here_is_refused_at_the_start() {
    let given = named().await;
    let worker = given
        .worker(Acme::default())
        .poll(Duration::from_secs(1), find);
    let refused = worker.run_until(std::future::pending::<()>()).await;
    assert!(
        matches!(&refused, Err(Error::Config(why)) if why.contains(".command(")),
        "{refused:?}"
    );
}
