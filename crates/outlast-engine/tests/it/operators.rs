//! What operators own: pauses.

use outlast_core::Failure;
use outlast_engine::{Attempt, Consumer, Start};
use tokio::sync::mpsc;

use crate::given::{Ping, Told, given, next};

async fn effect(told: Told, ping: Attempt<Ping>) -> Result<(), Failure> {
    let _ = told.send(ping.n);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_consumer_claims_nothing_and_a_deploy_does_not_resume_it() {
    let given = given().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let consumer = || Consumer::new("mailer").from(Start::Earliest).on(effect);
    let worker = given.start(told.clone(), consumer());
    worker.registered(&given).await;
    given
        .sql
        .execute("select outlast.pause('mailer', 'provider is down')", &[])
        .await
        .unwrap();
    worker.stop().await.unwrap();

    let worker = given.start(told.clone(), consumer());
    let other = given.start(
        told,
        Consumer::new("other").from(Start::Earliest).on(effect),
    );
    given.emit(0..1).await;
    // The other consumer is the signal that the event was seen.
    next(&mut hears).await;
    given
        .until(
            "select count(*) from outlast.processed where consumer = 'other'",
            1,
        )
        .await;
    assert_eq!(
        given
            .count("select count(*) from outlast.processed where consumer = 'mailer'")
            .await,
        0
    );
    given
        .sql
        .execute("select outlast.resume('mailer')", &[])
        .await
        .unwrap();
    next(&mut hears).await;
    given.processed(2).await;
    worker.stop().await.unwrap();
    other.stop().await.unwrap();
}
