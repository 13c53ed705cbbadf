//! Deduplication keys: they answer for as long as they are set to, then `expired`, and are forgotten a week later.

use super::Barn;
use crate::sql;

async fn emit(barn: &Barn, key: &str) -> (bool, bool) {
    let sql = "select new, expired from outlast.emit(type => 'a', payload => '{}', dedup => $1)";
    let row = barn.client.query_one(sql, &[&key]).await.expect("emits");
    (row.get(0), row.get(1))
}

async fn forget(barn: &Barn) -> i32 {
    sql::one(&barn.client, "select outlast._forget_keys(2)", &[]).await
}

#[tokio::test]
async fn a_key_answers_then_is_expired_and_a_week_later_it_is_forgotten() {
    let barn = Barn::new().await;
    assert_eq!(emit(&barn, "k").await, (true, false));
    barn.days(29).await;
    assert_eq!(emit(&barn, "k").await, (false, false));
    barn.days(2).await;
    assert_eq!(emit(&barn, "k").await, (false, true));
    assert_eq!(forget(&barn).await, 0);
    barn.days(5).await;
    assert_eq!(emit(&barn, "k").await, (false, true));
    barn.days(2).await;
    assert_eq!(forget(&barn).await, 1);
    assert_eq!(
        emit(&barn, "k").await,
        (true, false),
        "a key that is forgotten is like any other"
    );
}

#[tokio::test]
async fn the_horizon_follows_the_setting_and_keys_go_in_bounded_pieces() {
    let barn = Barn::new().await;
    for key in ["1", "2", "3"] {
        emit(&barn, key).await;
    }
    sql::run(
        &barn.client,
        "insert into outlast._setting (name, value) values ('retention.dedup', '9d')",
    )
    .await;
    barn.days(10).await;
    assert_eq!(emit(&barn, "1").await, (false, true));
    barn.days(7).await;
    assert_eq!(
        (
            forget(&barn).await,
            forget(&barn).await,
            forget(&barn).await
        ),
        (2, 1, 0)
    );
}

#[tokio::test]
async fn an_own_event_id_is_never_taken_twice() {
    let barn = Barn::new().await;
    let own: uuid::Uuid = sql::one(&barn.client, "select outlast._v7(outlast.clock())", &[]).await;
    let emit = "select new from outlast.emit(type => 'a', payload => '{}', event_id => $1)";
    assert!(sql::one::<bool>(&barn.client, emit, &[&own]).await);
    sql::run(
        &barn.client,
        "insert into outlast._setting (name, value) values ('retention.dedup', '8d')",
    )
    .await;
    for _ in 0..16 {
        barn.days(1).await;
        forget(&barn).await;
        match barn.client.query_one(emit, &[&own]).await {
            Ok(row) => assert!(!row.get::<_, bool>(0)),
            Err(error) => assert_eq!(sql::short(&error), "OL008"),
        }
    }
    assert_eq!(barn.count("select count(*) from outlast._dedup").await, 0);
    assert_eq!(
        sql::state(barn.client.query_one(emit, &[&own]).await),
        "OL008"
    );
}
