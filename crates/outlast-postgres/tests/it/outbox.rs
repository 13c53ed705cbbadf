//! A claim of an outbox table looks at a bounded piece of it, whatever is dead or waiting there; and what nobody needs is not written.

use serde_json::json;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::{
    house::House,
    sql::{one, run},
};

/// Encore's table as the outbox `shop`, with its consumer; `key` makes it an ordered one.
async fn shop(house: &House, key: Option<&str>) -> (Client, i32) {
    let client = house.connect().await;
    run(
        &client,
        "create table public.outbox (id bigserial primary key, topic text not null, data jsonb not null, inserted_at timestamptz not null)
           with (autovacuum_enabled = off);
         create index on public.outbox (topic, id)",
    )
    .await;
    let mut columns =
        json!({"id": "id", "topic": "topic", "payload": "data", "time": "inserted_at"});
    if let Some(key) = key {
        columns["key"] = key.into();
    }
    let outboxes = json!({"shop": {"broker": "b", "schema": "public", "table": "outbox", "topic": "{topic}", "ordered": key.is_some(),
        "content_type": "application/json", "columns": columns}});
    let sql = "select count(*) from outlast._apply_outboxes($1)";
    assert_eq!(one::<i64>(&client, sql, &[&outboxes]).await, 1);
    let sql = "select id from outlast._register_delivered('outbox/shop', array['*'], 'outbox', 'public.outbox', 'shop', $1)";
    let consumer = one(&client, sql, &[&key.is_some()]).await;
    (client, consumer)
}

async fn fill(client: &Client, rows: i64, topics: i64) {
    let sql = format!(
        "insert into public.outbox (topic, data, inserted_at)
         select 't' || n % {topics}, jsonb_build_object('n', n, 'pad', repeat('x', 100)), now() from generate_series(1, {rows}) n"
    );
    run(client, &sql).await;
}

struct Looked {
    token: Option<Uuid>,
    rows: i32,
    next: i64,
    round: bool,
}

async fn claim(client: &Client, consumer: i32, n: i32, block: i64) -> Looked {
    let sql = "select token, rows, next_block, round from outlast._outbox_claim($1, 'shop', $2, 4000000, 1000000, 15000, $3)";
    let row = client.query_one(sql, &[&consumer, &n, &block]).await;
    let row = row.expect("claims");
    Looked {
        token: row.get(0),
        rows: row.get(1),
        next: row.get(2),
        round: row.get(3),
    }
}

/// How many pages a claim at this block looks at.
async fn pages(client: &Client, consumer: i32, block: i64) -> i64 {
    let sql = format!(
        "explain (analyze, buffers, format json) select * from outlast._outbox_claim({consumer}, 'shop', 100, 4000000, 1000000, 15000, {block})"
    );
    let row = client.query_one(&sql, &[]).await.expect("explains");
    let plan: serde_json::Value = row.get(0);
    let of = |what: &str| plan[0]["Plan"][what].as_i64().expect("a number");
    of("Shared Hit Blocks") + of("Shared Read Blocks")
}

#[tokio::test]
async fn what_a_claim_looks_at_is_bounded_among_dead_rows_that_a_snapshot_holds() {
    let house = House::new().await;
    let (client, consumer) = shop(&house, None).await;
    // Plans and catalogs are in memory from here on.
    claim(&client, consumer, 1, 0).await;
    let old = house.connect().await;
    run(&old, "begin isolation level repeatable read").await;
    one::<i64>(&old, "select count(*) from public.outbox", &[]).await;
    fill(&client, 150_000, 3).await;
    run(&client, "delete from public.outbox").await;
    fill(&client, 10, 3).await;
    let blocks: i64 = one(
        &client,
        "select pg_relation_size('public.outbox') / 8192",
        &[],
    )
    .await;
    assert!(blocks > 2_000, "{blocks} blocks");
    for block in [0, 512, 1024] {
        let looked = pages(&client, consumer, block).await;
        assert!(looked < 1_500, "{looked} pages of {blocks} at {block}");
    }
    // Those at the end were found by the first of these, long before it came round to them.
    let known: i64 = one(&client, "select count(*) from outlast._outbox_row", &[]).await;
    assert_eq!(known, 10);
    let first = "select id from public.outbox order by id limit 1";
    let explained = client
        .query_one(
            &format!("explain (analyze, buffers, format json) {first}"),
            &[],
        )
        .await
        .expect("explains");
    let plan: serde_json::Value = explained.get(0);
    let walked = plan[0]["Plan"]["Shared Hit Blocks"].as_i64();
    assert!(
        walked > Some(2_000),
        "the next of an index would walk over all that is dead: {walked:?}"
    );
    run(&old, "rollback").await;
}

#[tokio::test]
async fn a_look_goes_round_and_takes_every_row_once() {
    for key in [None, Some("topic")] {
        let house = House::new().await;
        let (client, consumer) = shop(&house, key).await;
        fill(&client, 5_000, 7).await;
        let (mut block, mut rows, mut looks) = (0, 0, 0);
        loop {
            let looked = claim(&client, consumer, 300, block).await;
            (block, looks) = (looked.next, looks + 1);
            rows += looked.rows;
            let Some(token) = looked.token else {
                assert!(looks < 200, "it does not come round");
                if looked.round {
                    break;
                }
                continue;
            };
            let done = "select outlast._outbox_done('shop', $1, array(select event_id from outlast._outbox_row where token = $1))";
            assert_eq!(one::<i32>(&client, done, &[&token]).await, looked.rows);
            one::<Option<String>>(
                &client,
                "select outlast._outbox_end($1, '{}')::text",
                &[&token],
            )
            .await;
        }
        assert_eq!(rows, 5_000, "{key:?}");
        let left: i64 = one(&client, "select count(*) from public.outbox", &[]).await;
        assert_eq!(left, 0, "{key:?}");
    }
}

#[tokio::test]
async fn a_look_that_finds_nothing_writes_nothing() {
    let house = House::new().await;
    let (client, consumer) = shop(&house, None).await;
    claim(&client, consumer, 100, 0).await;
    run(&client, "begin").await;
    assert!(claim(&client, consumer, 100, 0).await.token.is_none());
    let xid = "select pg_current_xact_id_if_assigned() is null";
    assert!(
        one::<bool>(&client, xid, &[]).await,
        "it took a transaction id"
    );
    run(&client, "commit").await;
}

#[tokio::test]
async fn a_key_that_somebody_has_is_left_alone_and_its_beginning_comes_first() {
    let house = House::new().await;
    let (client, consumer) = shop(&house, Some("topic")).await;
    fill(&client, 20, 2).await;
    let first = claim(&client, consumer, 4, 0).await;
    assert_eq!(first.rows, 4);
    let second = claim(&client, consumer, 100, 0).await;
    assert_eq!(
        (second.rows, second.token),
        (0, None),
        "both keys are taken"
    );
    let order = "select string_agg(key || ':' || row_id, ' ' order by n) from outlast._outbox_row where token = $1";
    let token = first.token.expect("rows");
    let taken: String = one(&client, order, &[&token]).await;
    assert_eq!(taken, "t0:2 t1:1 t0:4 t1:3");
    one::<Option<String>>(
        &client,
        "select outlast._outbox_end($1, array(select event_id from outlast._outbox_row where key = 't0'))::text",
        &[&token],
    )
    .await;
    let third = claim(&client, consumer, 3, 0).await;
    let taken: String = one(&client, order, &[&third.token.expect("rows")]).await;
    assert!(taken.contains("t0:2") && !taken.contains("t0:6"), "{taken}");
}
