//! After the database was set back: what may have been sent in what is gone is not sent blindly.

use super::{Contract, Desk, KEYED, KEYLESS, LOOKS, Try};
use crate::sql;

/// One that waits, in a database that a person has let go on after a restore.
async fn restored(desk: &Desk) -> Try {
    desk.accept("k").await;
    sql::run(
        &desk.client,
        "select outlast._confirm('from the backup of last night')",
    )
    .await;
    desk.take().await
}

#[tokio::test]
async fn a_keyed_one_goes_inside_of_a_window_that_counts_from_its_acceptance() {
    let desk = Desk::new().await;
    let one = restored(&desk).await;
    assert!(
        desk.sent(&one, KEYED).await,
        "the provider knows the key if it was sent before"
    );
    assert_eq!(
        desk.record(&one, "rejected").await,
        "unknown",
        "it may be the echo of the first"
    );

    let desk = Desk::new().await;
    let one = restored(&desk).await;
    sql::run(
        &desk.client,
        "update outlast._job set accepted_at = accepted_at - interval '1 day'",
    )
    .await;
    assert!(
        !desk.sent(&one, KEYED).await,
        "the provider may have forgotten the key"
    );
    assert_eq!(desk.incidents().await, ["unknown command"]);
    desk.must_be_sound().await;
}

#[tokio::test]
async fn one_that_can_be_asked_after_is_asked_first_and_a_keyless_one_is_a_persons() {
    let desk = Desk::new().await;
    let one = restored(&desk).await;
    assert!(!desk.sent(&one, LOOKS).await);
    let look = desk.take_later().await;
    assert_eq!(look.next, 'l');
    assert_eq!(desk.record(&look, "not_applied").await, "waiting");
    let again = desk.take().await;
    assert!(desk.sent(&again, LOOKS).await);
    desk.must_be_sound().await;

    let desk = Desk::new().await;
    let one = restored(&desk).await;
    assert!(!desk.sent(&one, KEYLESS).await);
    assert_eq!(desk.state(one.id).await, "unknown");
    assert_eq!(desk.incidents().await, ["unknown command"]);
    desk.must_be_sound().await;
}

#[tokio::test]
async fn what_is_accepted_afterwards_is_sent_as_ever() {
    let desk = Desk::new().await;
    sql::run(
        &desk.client,
        "select outlast._confirm('from the backup of last night')",
    )
    .await;
    desk.accept("k").await;
    let one = desk.take().await;
    assert!(desk.sent(&one, Contract::default()).await);
    desk.must_be_sound().await;
}
