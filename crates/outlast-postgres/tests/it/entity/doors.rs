//! The same from Rust, and for a runner in another language.

use outlast_postgres::{
    Error,
    entity::{self, Deleted, Mark},
    event::Body,
    store::{EntityTry, Refs, Rooms, entity_queue},
};
use uuid::Uuid;

use super::Office;
use crate::delivered::{LEASE, store};
use crate::sql::{self, one, run};

#[tokio::test]
async fn what_rust_marks_a_store_claims_keeps_and_completes() {
    let office = Office::new().await;
    let mut app = office.house.connect().await;
    let mut tx = app.transaction().await.expect("begins");
    let mark = Mark {
        tenant: "acme",
        actor: Some("jo"),
        correlation_id: Some(Uuid::from_u128(7)),
        ..Mark::new("crm", 1, Body::Json(r#"{"n":1}"#), "a")
    };
    let refused = entity::changed(
        &mut tx,
        &Mark {
            key: "",
            ..mark.clone()
        },
    )
    .await;
    assert!(matches!(refused, Err(Error::BadName(_))), "{refused:?}");
    entity::changed(&mut tx, &mark).await.expect("marks");
    let gone = Deleted {
        refs: b"{\"group\":1}",
        codec_key: None,
        digest: None,
    };
    entity::deleted(&mut tx, &mark, &gone).await.expect("marks");
    let secret = Deleted {
        refs: &[0, 255],
        codec_key: Some("k1"),
        digest: Some(&[7; 32]),
    };
    entity::deleted(&mut tx, &mark, &secret)
        .await
        .expect("marks");
    tx.commit().await.expect("commits");

    let store = store(&office.house);
    let mut rooms = Rooms::default();
    rooms.ask(&entity_queue("crm"), 1, 5);
    let mut taken = store
        .claim_jobs(&rooms, 1 << 20, LEASE)
        .await
        .expect("claims");
    assert_eq!(taken.len(), 1);
    let work = taken.remove(0).work;
    assert_eq!(
        (
            work.kind.as_str(),
            work.key.as_deref(),
            work.tenant.as_str(),
            work.actor.as_deref()
        ),
        ("entity:crm", Some("a"), "acme", Some("jo"))
    );
    assert_eq!(
        (&*work.payload, work.correlation_id),
        (&br#"{"n":1}"#[..], mark.correlation_id)
    );
    let EntityTry {
        fence,
        refs,
        tombstones,
    } = *work.entity.clone().expect("an entity");
    assert!(fence > 0);
    assert_eq!(refs, None);
    assert_eq!(tombstones.len(), 2);
    assert_eq!(&*tombstones[0].refs.bytes, b"{\"group\":1}");
    assert_eq!(
        (
            &*tombstones[1].refs.bytes,
            tombstones[1].refs.codec_key.as_deref()
        ),
        (&[0, 255][..], Some("k1"))
    );

    let id = work.event_id;
    store
        .cleaned(work.token, id, &[tombstones[0].id])
        .await
        .expect("is done");
    let kept = Refs {
        bytes: vec![1, 2].into(),
        codec_key: Some("k2".into()),
    };
    assert!(
        store
            .keep(work.token, id, Some(&kept), Some(&[9; 32]))
            .await
            .expect("keeps")
    );
    let mut handler = office.house.connect().await;
    let tx = handler.transaction().await.expect("begins");
    let xid: String = tx
        .query_one(
            "select pg_current_xact_id()::text from outlast.complete($1, $2)",
            &[&work.token, &id],
        )
        .await
        .expect("completes")
        .get(0);
    let xid = xid.parse().expect("a number");
    tx.commit().await.expect("commits");
    assert!(
        store
            .entity_landed(work.token, id, xid)
            .await
            .expect("answers")
    );
    assert!(
        !store
            .entity_landed(Uuid::new_v4(), id, xid)
            .await
            .expect("answers")
    );
    assert!(
        !store
            .keep(work.token, id, Some(&kept), None)
            .await
            .expect("is late")
    );

    run(
        &office.client,
        "select outlast.changed('crm', 'a', tenant => 'acme')",
    )
    .await;
    let again = store
        .claim_jobs(&rooms, 1 << 20, LEASE)
        .await
        .expect("claims")
        .remove(0)
        .work;
    let again = again.entity.expect("an entity");
    assert_eq!((again.refs, again.tombstones.len()), (Some(kept), 0));
    assert!(again.fence > fence);
}

#[tokio::test]
async fn a_runner_in_another_language_claims_reads_keeps_and_completes() {
    let office = Office::new().await;
    office.deleted("a", "1").await;
    office.deleted("a", "2").await;
    let claim =
        "select token, id, key, convert_from(payload, 'UTF8') from outlast.claim('entity', 'crm')";
    let row = office.client.query_one(claim, &[]).await.expect("claims");
    let (token, id): (Uuid, Uuid) = (row.get(0), row.get(1));
    assert_eq!(
        (row.get::<_, &str>(2), row.get::<_, &str>(3)),
        ("a", r#"{"id" : "a"}"#)
    );
    let look = "select string_agg(concat_ws(' ', fence > 0, refs, deleted), ', ' order by deleted) from outlast.entity_try($1, $2)";
    assert_eq!(
        one::<String>(&office.client, look, &[&token, &id]).await,
        "t 1, t 2"
    );
    let keep = "select outlast.keep($1, $2, '3')";
    assert_eq!(
        one::<String>(&office.client, keep, &[&token, &id]).await,
        "kept"
    );
    assert_eq!(
        one::<String>(&office.client, look, &[&token, &id]).await,
        "t 3 1, t 3 2"
    );
    let complete = "select outlast.complete($1, $2)";
    office
        .client
        .execute(complete, &[&token, &id])
        .await
        .expect("completes");
    assert_eq!(
        sql::state(office.client.query(look, &[&token, &id]).await),
        "OL003"
    );
    run(
        &office.client,
        "select outlast.release(token) from outlast._lease where room = 'job'",
    )
    .await;
    assert_eq!(
        sql::state(office.client.query(look, &[&token, &id]).await),
        "OL001"
    );
    assert_eq!(office.state("a").await, "converged");
    office.must_be_sound().await;
}
