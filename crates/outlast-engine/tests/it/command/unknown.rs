//! What nobody knows the end of.

use std::time::Duration;

use outlast_core::{Failure, Found, Sent};
use outlast_engine::{IfUnknown, JobSettings, Settings};

use super::{Acme, Becomes, ChargeId, charge, find, keyed, settled};
use crate::given::{Given, named};

#[tokio::test(flavor = "multi_thread")]
async fn an_error_a_panic_and_a_large_answer_after_sending_are_unknown_and_not_repeated_blindly() {
    let given = named().await;
    let acme = Acme::that(vec![
        Becomes::Fails(Failure::unclassified("connection reset")),
        Becomes::Fails(Failure::unknown("timed out")),
        Becomes::Panics,
        Becomes::Answer(Sent::Settled(ChargeId("x".repeat(100_000)))),
    ]);
    let worker = Given::run(
        given
            .worker(acme.clone())
            .command(charge, IfUnknown::ask_a_person()),
    );
    for n in 0..4 {
        given.give(n..n + 1).await;
        given.commands(n + 1, "unknown").await;
    }
    given.come().await;
    given
        .until(
            "select count(*) from outlast.incident where kind = 'unknown command'",
            4,
        )
        .await;
    assert_eq!(acme.asked.lock().await.len(), 4);
    let resolve = "select count(outlast.resolve(id, 'settled', 'their page', reference => 'ch_7')) from outlast.command";
    assert_eq!(given.count(resolve).await, 4);
    given.commands(4, "settled").await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn inside_of_the_window_it_goes_again_with_the_same_key_and_then_it_is_looked_up() {
    let given = named().await;
    let lost = || Becomes::Fails(Failure::unknown("no answer"));
    let acme = Acme::that(vec![lost(), lost(), Becomes::Answer(settled())]);
    let worker = Given::run(given.worker(acme.clone()).command(charge, keyed()));
    given.give(0..1).await;
    given.commands(1, "settled").await;
    let asked = acme.asked.lock().await.clone();
    assert_eq!(asked.len(), 3);
    assert!(
        asked.iter().all(|key| *key == asked[0] && key.len() == 36),
        "{asked:?}"
    );
    worker.stop().await.unwrap();

    // The window is shorter than a lease and its margin: nothing goes again.
    let acme = Acme::that(vec![lost()]).found(vec![
        Found::Unsure,
        Found::NotApplied,
        Found::Settled(ChargeId("ch_1".into())),
    ]);
    let short = IfUnknown::resend_within(Duration::from_secs(20)).then_look_up(find);
    let worker = Given::run(given.worker(acme.clone()).command(charge, short));
    given.give(1..2).await;
    for left in [2, 1] {
        given.until("select count(*) from outlast._job_later where due_at > now() + interval '2 seconds'", 1).await;
        given.come().await;
        outlast_testkit::wait_for("a look", crate::given::SOON, async || {
            (acme.finds.lock().await.len() <= left).then_some(())
        })
        .await;
    }
    // Proof: it was sent once more, and lost once more.
    given
        .until(
            "select count(*) from outlast._job_later where due_at > now() + interval '2 seconds'",
            1,
        )
        .await;
    assert_eq!(acme.asked.lock().await.len(), 2);
    given.come().await;
    given.commands(2, "settled").await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_after_the_deadline_is_unknown_first_and_then_what_it_says() {
    let given = named().await;
    let acme = Acme::that(vec![Becomes::Late(Duration::from_secs(3))]);
    let mut settings = Settings {
        grace: Duration::from_millis(100),
        ..Given::settings()
    };
    let quick = JobSettings {
        deadline: Some(Duration::from_millis(300)),
        ..JobSettings::default()
    };
    settings.job.insert("charge".into(), quick);
    let worker = given
        .worker_with(acme.clone(), settings)
        .command(charge, IfUnknown::ask_a_person());
    let worker = Given::run(worker);
    given.give(0..1).await;
    given
        .until(
            "select count(*) from outlast.command where state = 'unknown'",
            1,
        )
        .await;
    given.commands(1, "settled").await;
    let late = "select count(*) from outlast.evidence where what = 'late' and result = 'settled' and moved";
    assert_eq!(given.count(late).await, 1);
    assert_eq!(
        given.count("select count(*) from outlast.incident").await,
        0
    );
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn certainly_no_effect_is_tried_again_and_permanent_is_a_persons() {
    let given = named().await;
    let acme = Acme::that(vec![
        Becomes::Fails(Failure::retry("connection refused")),
        Becomes::Fails(Failure::permanent("this card is not one")),
    ]);
    let worker = Given::run(given.worker(acme.clone()).command(charge, keyed()));
    given.give(0..1).await;
    given.until("select count(*) from outlast.incident where kind = 'stopped command' and class = 'permanent'", 1).await;
    given.commands(1, "waiting").await;
    assert_eq!(acme.asked.lock().await.len(), 2);
    let retry = "select count(*) from outlast.command where outlast.retry_job(id) = 'ready'";
    *acme.sends.lock().await = vec![Becomes::Answer(settled())];
    assert_eq!(given.count(retry).await, 1);
    given.commands(1, "settled").await;
    worker.stop().await.unwrap();
}
