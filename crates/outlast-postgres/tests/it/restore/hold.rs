//! Rewound history: what stays in the database goes on, what leaves it waits for a person.

use tokio_postgres::Client;
use uuid::Uuid;

use crate::house::House;
use crate::sql::{self, Claim};

async fn local(client: &Client, name: &str) -> i32 {
    let sql = "select id from outlast._register($1, array['a'], local => true)";
    sql::one(client, sql, &[&name]).await
}

async fn rewound(client: &Client, process: Uuid) {
    let sql = "select outlast._rewound($1, 7)";
    client.execute(sql, &[&process]).await.expect("says so");
}

#[tokio::test]
async fn after_a_rewind_local_consumers_go_on_and_all_others_wait_for_a_person() {
    let house = House::new().await;
    let client = house.connect().await;
    let inside = local(&client, "inside").await;
    let outside = sql::register(&client, "outside", &["a"], "now", None).await;
    sql::emit(&client, "a", None).await;
    let before = Claim::of(outside).next(&client).await.expect("claims");
    sql::emit(&client, "a", None).await;
    rewound(&client, Uuid::new_v4()).await;
    for refused in [
        sql::state(Claim::of(outside).run(&client).await),
        sql::state(sql::reclaim(&client, outside, 1).await),
        sql::state(sql::claim_parked(&client, outside, 1).await),
        sql::state(
            client
                .execute("select outlast.claim('event', 'outside')", &[])
                .await,
        ),
    ] {
        assert_eq!(refused, "OL020");
    }
    // What runs may still end.
    sql::complete(&client, before[0].token, before[0].id)
        .await
        .expect("completes");
    assert_eq!(
        Claim::of(inside).next(&client).await.expect("claims").len(),
        2
    );

    client
        .execute("select outlast._confirm('looked', 'jo')", &[])
        .await
        .expect("confirms");
    assert_eq!(
        Claim::of(outside)
            .next(&client)
            .await
            .expect("claims")
            .len(),
        1
    );
    let audit = "select action || ' by ' || actor || ': ' || coalesce(detail ->> 'reason', '') from outlast._audit order by id";
    let audit = client.query(audit, &[]).await.expect("reads");
    let lines: Vec<String> = audit.iter().map(|row| row.get(0)).collect();
    assert!(
        lines[0].starts_with("restore.held by outlast: history was rewound"),
        "{lines:?}"
    );
    assert_eq!(lines[1], "restore.confirmed by jo: looked");
}

#[tokio::test]
async fn a_consumer_that_once_had_outside_effects_is_not_local_any_more() {
    let house = House::new().await;
    let client = house.connect().await;
    let consumer = local(&client, "c").await;
    sql::register(&client, "c", &["a"], "now", None).await;
    local(&client, "c").await;
    rewound(&client, Uuid::new_v4()).await;
    assert_eq!(sql::state(Claim::of(consumer).run(&client).await), "OL020");
}

#[tokio::test]
async fn the_report_says_how_much_each_process_misses_and_confirming_empties_it() {
    let house = House::new().await;
    let client = house.connect().await;
    let process = Uuid::new_v4();
    let mark = "select outlast._remember($1, 5, gen_random_uuid(), 4)";
    client.execute(mark, &[&process]).await.expect("remembers");
    rewound(&client, process).await;
    let missing = "select (s -> 'missing' -> 0 ->> 'told') || ' ' || (s -> 'missing' -> 0 ->> 'known') || ' ' || (s ->> 'held')
        from outlast._restore_status() s";
    let said: String = sql::one(&client, missing, &[]).await;
    assert!(said.starts_with("7 5 history was rewound"), "{said}");
    client
        .execute("select outlast._confirm('looked')", &[])
        .await
        .expect("confirms");
    let count = "select jsonb_array_length(s -> 'missing') from outlast._restore_status() s where s ->> 'held' is null";
    assert_eq!(sql::one::<i32>(&client, count, &[]).await, 0);
}

/// As after a restart of the server: the marks name another run of it.
#[tokio::test]
async fn a_process_that_does_not_report_to_a_new_run_of_the_server_is_shown() {
    let house = House::new().await;
    let client = house.connect().await;
    let (here, gone, nonce) = (Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4());
    for process in [here, gone] {
        let mark = "select outlast._remember($1, 1, $2, 0)";
        client
            .execute(mark, &[&process, &nonce])
            .await
            .expect("remembers");
    }
    sql::run(
        &client,
        "update outlast._process set server = server - interval '1 day'",
    )
    .await;
    let unreported = "select array_agg(process) from outlast.process where not reported";
    assert_eq!(
        sql::one::<Vec<Uuid>>(&client, unreported, &[]).await.len(),
        2
    );
    let greeted = "select greeted from outlast._where($1, 1, $2)";
    assert!(!sql::one::<bool>(&client, greeted, &[&here, &nonce]).await);
    client
        .execute("select outlast._arrive($1, 1, $2)", &[&here, &nonce])
        .await
        .expect("arrives");
    assert!(sql::one::<bool>(&client, greeted, &[&here, &nonce]).await);
    assert_eq!(
        sql::one::<Vec<Uuid>>(&client, unreported, &[]).await,
        [gone]
    );
}

#[tokio::test]
async fn a_copy_made_from_a_template_is_refused_until_it_is_confirmed() {
    let house = House::new().await;
    let client = house.connect().await;
    let consumer = sql::register(&client, "c", &["a"], "now", None).await;
    sql::run(&client, "update outlast._house set database_oid = 1").await;
    assert_eq!(sql::state(Claim::of(consumer).run(&client).await), "OL004");
    client
        .execute("select outlast._confirm('a copy')", &[])
        .await
        .expect("confirms");
    Claim::of(consumer).run(&client).await.expect("claims");
}

#[tokio::test]
async fn an_operator_can_hold_or_stop_all_and_name_the_deployment() {
    let house = House::new().await;
    let client = house.connect().await;
    let inside = local(&client, "inside").await;
    sql::run(&client, "select outlast._stop('restored', false, 'jo')").await;
    Claim::of(inside)
        .run(&client)
        .await
        .expect("local work goes on");
    sql::run(&client, "select outlast._stop('restored', true, 'jo')").await;
    assert_eq!(sql::state(Claim::of(inside).run(&client).await), "OL004");
    sql::run(&client, "select outlast._confirm('looked')").await;
    Claim::of(inside).run(&client).await.expect("claims");
    let name = "select outlast._name_deployment($1)";
    assert_eq!(
        sql::one::<Option<String>>(&client, name, &[&"staging"]).await,
        None
    );
    assert_eq!(
        sql::state(client.execute(name, &[&"Not a name"]).await),
        "OL005"
    );
}

/// The marker is right in the original, and in no copy of its rows: also if the first of them was written, by the worst of
/// chances, under the number that it had.
#[tokio::test]
async fn a_copy_of_the_rows_is_never_taken_for_the_original() {
    let house = House::new().await;
    let client = house.connect().await;
    let ours = "select outlast._xids_are_ours()";
    assert!(sql::one::<bool>(&client, ours, &[]).await);
    let copied = "truncate outlast._marker;
        insert into outlast._marker select pg_current_xact_id()::text::bigint % 4294967296 + d from unnest(array[0, 7]) d";
    client.batch_execute(copied).await.expect("one transaction");
    let right = "select count(*) from outlast._marker m where m.own_xid = m.xmin::text::bigint";
    assert_eq!(sql::one::<i64>(&client, right, &[]).await, 1);
    assert!(!sql::one::<bool>(&client, ours, &[]).await);
    sql::run(&client, "select outlast._mark()").await;
    assert!(sql::one::<bool>(&client, ours, &[]).await);
}
