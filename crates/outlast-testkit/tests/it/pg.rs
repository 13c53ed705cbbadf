//! A database of its own for each test.

use std::sync::atomic::{AtomicUsize, Ordering};

use outlast_testkit::pg;
use tokio_postgres::NoTls;

use crate::{connect, number};

#[tokio::test]
async fn each_test_has_its_own_empty_database() {
    let (one, two) = tokio::join!(pg::empty(), pg::empty());
    one.connect()
        .await
        .batch_execute("create table only_here ()")
        .await
        .unwrap();
    let tables = "select count(*) from pg_tables where schemaname = 'public'";
    assert_eq!(number(&two.connect().await, tables).await, 0);
    assert_eq!(
        number(
            &one.connect().await,
            "select current_setting('max_prepared_transactions')::bigint"
        )
        .await,
        50
    );
}

#[tokio::test]
async fn a_template_is_migrated_once_however_many_ask() {
    let name = format!("once_{}", uuid::Uuid::new_v4().simple());
    let runs = AtomicUsize::new(0);
    let migrate = async |url: String| {
        runs.fetch_add(1, Ordering::Relaxed);
        connect(&url)
            .await
            .batch_execute("create table migrated as select 7::bigint as n")
            .await
    };
    let (one, two) = tokio::join!(pg::migrated(&name, migrate), pg::migrated(&name, migrate));
    for database in [&one, &two, &pg::migrated(&name, migrate).await] {
        assert_eq!(
            number(&database.connect().await, "select n from migrated").await,
            7
        );
    }
    assert_ne!(one.name(), two.name());
    assert_eq!(runs.into_inner(), 1);
}

#[tokio::test]
async fn a_template_that_failed_half_way_is_made_anew() {
    let name = format!("failed_{}", uuid::Uuid::new_v4().simple());
    let broken = name.clone();
    let failed = tokio::spawn(async move {
        let half = async |url: String| {
            connect(&url)
                .await
                .batch_execute("create table half ()")
                .await
                .unwrap();
            Err("no more")
        };
        pg::migrated(&broken, half).await
    });
    assert!(failed.await.is_err());
    let whole = async |url: String| {
        connect(&url)
            .await
            .batch_execute("create table half (); create table whole ()")
            .await
    };
    let database = pg::migrated(&name, whole).await;
    database
        .connect()
        .await
        .query("table whole", &[])
        .await
        .unwrap();
}

#[tokio::test]
async fn a_dropped_database_takes_its_connections_and_prepared_transactions_along() {
    let database = pg::empty().await;
    let url = database.url().to_owned();
    let open = database.connect().await;
    open.batch_execute(
        "create table t (); begin; insert into t default values; prepare transaction 'it''s mine'",
    )
    .await
    .unwrap();
    let other = pg::empty().await.connect().await;
    let name = database.name().to_owned();
    drop(database);
    assert!(tokio_postgres::connect(&url, NoTls).await.is_err());
    drop(other);
    let elsewhere = pg::empty().await;
    let left = format!("select count(*) from pg_prepared_xacts where database = '{name}'");
    assert_eq!(number(&elsewhere.connect().await, &left).await, 0);
}

#[tokio::test]
async fn a_database_with_outlast_in_it_takes_an_intent() {
    let database = pg::outlast().await;
    let client = database.connect().await;
    client
        .query_one("select id from outlast.emit('it.works', '{}')", &[])
        .await
        .unwrap();
}
