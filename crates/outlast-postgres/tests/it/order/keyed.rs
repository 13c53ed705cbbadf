//! Numbers within a key: without holes, in the order of the log.

use super::Yard;
use crate::sql;

const EMIT: &str = "select id from outlast.emit(type => 'a', payload => '{}'::text, key => $1, dedup => $2, strict_key => true)";

async fn numbers(yard: &Yard) -> Vec<i64> {
    let sql = "select key_seq from outlast.event order by log_id";
    let rows = yard.client.query(sql, &[]).await.expect("looks");
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn the_numbers_of_a_key_have_no_hole_and_are_in_the_order_of_the_log() {
    let yard = Yard::new(1).await;
    let (first, second) = (yard.house.connect().await, yard.house.connect().await);
    let emit = async |client: &tokio_postgres::Client, dedup: Option<&str>| {
        client.query_one(EMIT, &[&"k", &dedup]).await.map(drop)
    };
    emit(&first, Some("once")).await.expect("emits");
    emit(&first, Some("once"))
        .await
        .expect("is the same intent: no number is used up");
    // One that rolls back gives its number to the next, which waited for it.
    sql::run(&first, "begin").await;
    emit(&first, None).await.expect("emits");
    let pid = sql::pid(&second).await;
    let (emitted, ()) = tokio::join!(emit(&second, None), async {
        sql::until_blocked(&yard.client, pid).await;
        sql::run(&first, "rollback").await;
    });
    emitted.expect("emits");
    // Two that commit in the order in which they took the key, whatever else they do.
    sql::run(&first, "begin").await;
    emit(&first, None).await.expect("emits");
    let (emitted, ()) = tokio::join!(emit(&second, None), async {
        sql::until_blocked(&yard.client, pid).await;
        sql::run(&first, "commit").await;
    });
    emitted.expect("emits");
    assert_eq!(numbers(&yard).await, [1, 2, 3, 4]);

    let claimed = "select key_seq from outlast._claim($1, 10, 1000, 1000, 1000, 1)";
    let rows = yard.client.query(claimed, &[&yard.consumer]).await;
    let claimed = rows
        .expect("claims")
        .iter()
        .map(|row| row.get(0))
        .collect::<Vec<i64>>();
    assert_eq!(claimed, [1, 2, 3, 4]);

    sql::run(&second, "begin isolation level repeatable read; select 1").await;
    emit(&first, None).await.expect("emits");
    assert_eq!(sql::state(emit(&second, None).await), "40001");
    sql::run(&second, "rollback").await;
    let keyless = "select outlast.emit(type => 'a', payload => '{}'::text, strict_key => true)";
    assert_eq!(sql::state(first.execute(keyless, &[]).await), "OL005");
}
