//! Events that no worker here can read: no failure, no charge, no incident; they wait for a worker that can.

use tokio_postgres::Client;
use uuid::Uuid;

use super::{Yard, ids, parked};
use crate::sql;

async fn wait_for_version(
    client: &Client,
    token: Uuid,
    id: Uuid,
) -> Result<u64, tokio_postgres::Error> {
    client
        .execute("select outlast._wait_for_version($1, $2)", &[&token, &id])
        .await
}

async fn claim(yard: &Yard, types: &[&str], versions: &[i32]) -> Vec<(Uuid, Uuid, i32)> {
    let sql = "select event_id, token, attempt from outlast._claim_parked($1, 10, 60000, $2, $3)";
    let rows = yard
        .client
        .query(sql, &[&yard.consumer, &types, &versions])
        .await
        .expect("claims");
    rows.iter()
        .map(|row| (row.get(0), row.get(1), row.get(2)))
        .collect()
}

#[tokio::test]
async fn a_newer_version_waits_without_a_charge_until_a_worker_that_can_asks() {
    let yard = Yard::new().await;
    let id: Uuid = sql::one(
        &yard.client,
        "select id from outlast.emit(type => 'a', payload => '1'::text, version => 3)",
        &[],
    )
    .await;
    let other = yard.emit(1).await[0];
    let batch = yard.claim().await;
    assert_eq!(ids(&batch), [id, other]);
    wait_for_version(&yard.client, batch[0].token, id)
        .await
        .expect("parks");
    sql::complete(&yard.client, batch[0].token, other)
        .await
        .expect("completes");
    assert_eq!(
        sql::finish(&yard.client, &[batch[0].token])
            .await
            .expect("finishes"),
        [0]
    );
    assert_eq!(
        yard.look(id).await,
        Some(parked("waiting-version", "waiting-version", 0, 0))
    );
    assert!(yard.incidents().await.is_empty());
    yard.must_be_sound().await;

    for (types, versions) in [(&["a"][..], &[2][..]), (&["b"], &[3]), (&[], &[])] {
        assert!(
            claim(&yard, types, versions).await.is_empty(),
            "{types:?} {versions:?}"
        );
    }
    let got = claim(&yard, &["b", "a"], &[1, 3]).await;
    assert_eq!(
        got.iter()
            .map(|(id, _, attempt)| (*id, *attempt))
            .collect::<Vec<_>>(),
        [(id, 1)]
    );
    sql::complete(&yard.client, got[0].1, id)
        .await
        .expect("completes");
    assert_eq!(yard.look(id).await, None);
}

/// An older worker got it from the retries: it goes back to waiting with what it was charged, no more.
#[tokio::test]
async fn a_retry_that_an_older_worker_gets_waits_again_with_its_charges() {
    let yard = Yard::new().await;
    let id = yard.emit(1).await[0];
    let batch = yard.claim().await;
    sql::fail(&yard.client, batch[0].token, id, "retry")
        .await
        .expect("fails");
    let again = yard.claim_parked(1).await.remove(0);
    wait_for_version(&yard.client, again.token, id)
        .await
        .expect("parks");
    assert_eq!(
        yard.look(id).await,
        Some(parked("waiting-version", "waiting-version", 1, 0))
    );
    assert_eq!(
        sql::state(wait_for_version(&yard.client, again.token, id).await),
        "OL003",
        "it was given up"
    );
    assert_eq!(
        sql::state(sql::complete(&yard.client, again.token, id).await),
        "OL003"
    );
    let woken = claim(&yard, &["a"], &[1]).await;
    assert_eq!((woken[0].0, woken[0].2), (id, 2));
    yard.must_be_sound().await;
}

#[tokio::test]
async fn what_a_later_try_owns_does_not_wait_for_a_version() {
    let yard = Yard::new().await;
    let id = yard.emit(1).await[0];
    let batch = yard.claim().await;
    sql::fail(&yard.client, batch[0].token, id, "retry")
        .await
        .expect("fails");
    let running = yard.claim_parked(1).await.remove(0);
    assert_eq!(
        sql::state(wait_for_version(&yard.client, batch[0].token, id).await),
        "OL003"
    );
    sql::complete(&yard.client, running.token, id)
        .await
        .expect("the running try is not disturbed");
}
