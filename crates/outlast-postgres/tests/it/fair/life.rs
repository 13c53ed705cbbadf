//! The life of a consumer: another name, its end, a type less.

use super::{Workers, done};
use crate::house::House;
use crate::sql::{self, Claim};

#[tokio::test]
async fn a_renamed_consumer_goes_on_and_its_old_name_is_refused() {
    let house = House::new().await;
    let client = house.connect().await;
    let consumer = sql::register(&client, "geo", &["a"], "now", None).await;
    sql::emit(&client, "a", None).await;
    let events = Claim::of(consumer).next(&client).await.expect("claims");
    sql::run(
        &client,
        "select outlast.rename_consumer('geo', 'places', 'ops')",
    )
    .await;
    // Who runs goes on; what it did stays done.
    done(&client, &events).await;
    assert_eq!(
        sql::register(&client, "places", &["a"], "earliest", None).await,
        consumer
    );
    assert!(
        Claim::of(consumer)
            .next(&client)
            .await
            .expect("claims")
            .is_empty()
    );
    for old in [
        "select outlast._register('geo', array['a'])",
        "select outlast.register('geo', array['a'])",
        "select outlast.claim('event', 'geo')",
        "select outlast.pause('geo', 'why')",
    ] {
        let error = client.batch_execute(old).await.expect_err("refused");
        assert!(
            error
                .as_db_error()
                .expect("an answer")
                .message()
                .contains("places"),
            "{old}"
        );
        assert_eq!(sql::state::<()>(Err(error)), "OL014", "{old}");
    }
    // Neither a name that is another's, nor one that was.
    sql::register(&client, "other", &["a"], "now", None).await;
    for (old, new) in [
        ("places", "other"),
        ("other", "geo"),
        ("other", "places"),
        ("other", "Bad"),
        ("other", "other"),
    ] {
        let sql = format!("select outlast.rename_consumer('{old}', '{new}')");
        assert_eq!(
            sql::state(client.batch_execute(&sql).await),
            "OL005",
            "{old} {new}"
        );
    }
    // Back again.
    sql::run(&client, "select outlast.rename_consumer('places', 'geo')").await;
    assert_eq!(
        sql::register(&client, "geo", &["a"], "now", None).await,
        consumer
    );
    let audited: i64 = sql::one(
        &client,
        "select count(*) from outlast._audit where action = 'consumer.renamed'",
        &[],
    )
    .await;
    assert_eq!(audited, 2);
    assert_eq!(sql::broken(&client).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_retired_consumer_holds_nothing_and_takes_no_seal_any_more() {
    let house = House::new().await;
    let client = house.connect().await;
    for lanes in [None, Some(3)] {
        let name = if lanes.is_some() { "ordered" } else { "free" };
        let consumer = sql::register(&client, name, &["a"], "now", lanes).await;
        for key in ["x", "y", "z", "y", "x", "z"] {
            sql::emit(&client, "a", Some(key)).await;
        }
        let events = Claim::of(consumer)
            .n(2)
            .next(&client)
            .await
            .expect("claims");
        sql::fail(&client, events[0].token, events[0].id, "permanent")
            .await
            .expect("fails");
        let unfinished = client
            .query_one("select waiting, in_flight, quarantined, bytes > 0, more from outlast._unfinished($1)", &[&consumer])
            .await
            .expect("counts");
        let (waiting, in_flight, quarantined): (i64, i64, i64) =
            (unfinished.get(0), unfinished.get(1), unfinished.get(2));
        let behind: i64 = sql::one(
            &client,
            "select count(*) from outlast._parked where consumer = $1 and state = 'behind'",
            &[&consumer],
        )
        .await;
        assert_eq!(
            (waiting + in_flight + behind, quarantined),
            (5, 1),
            "{name}: {waiting} wait, {in_flight} in flight, {behind} behind"
        );
        assert!(waiting == 0 || unfinished.get::<_, bool>(3), "{name}");
        assert!(!unfinished.get::<_, bool>(4));

        assert_eq!(
            sql::state(
                client
                    .batch_execute(&format!("select outlast.retire_consumer('{name}', '')"))
                    .await
            ),
            "OL005"
        );
        sql::run(
            &client,
            &format!("select outlast.retire_consumer('{name}', 'no more', 'ops')"),
        )
        .await;
        let refused = sql::complete(&client, events[1].token, events[1].id).await;
        assert_eq!(sql::state(refused), "OL001", "{name}");
        assert!(
            Claim::of(consumer)
                .next(&client)
                .await
                .expect("answers")
                .is_empty()
        );
        for table in ["_batch", "_lease", "_parked", "_parked_key"] {
            let n: i64 = sql::one(
                &client,
                &format!("select count(*) from outlast.{table} where consumer = $1"),
                &[&consumer],
            )
            .await;
            assert_eq!(n, 0, "{name}: {table}");
        }
        for again in [
            format!("select outlast._register('{name}', array['a'])"),
            format!("select outlast.claim('event', '{name}')"),
            format!("select outlast.resume('{name}')"),
            format!("select outlast.retire_consumer('{name}', 'twice')"),
        ] {
            assert_eq!(
                sql::state(client.batch_execute(&again).await),
                "OL014",
                "{again}"
            );
        }
        let given_up: i64 = sql::one(
            &client,
            "select (detail->>'waiting')::bigint + (detail->>'in_flight')::bigint from outlast._audit where action = 'consumer.retired' and about = $1",
            &[&name],
        )
        .await;
        assert_eq!(given_up, waiting + in_flight, "{name}");
    }
    assert_eq!(sql::broken(&client).await, Vec::<String>::new());
}

/// A seal that is under way keeps a consumer from its end; then it counts.
#[tokio::test]
async fn a_retirement_waits_for_an_open_seal() {
    let house = House::new().await;
    let (client, sealer, operator) = (
        house.connect().await,
        house.connect().await,
        house.connect().await,
    );
    let consumer = sql::register(&client, "c", &["a"], "now", None).await;
    let event = sql::emit(&client, "a", None).await;
    let claimed = Claim::of(consumer).next(&client).await.expect("claims");
    sql::run(&sealer, "begin").await;
    sql::complete(&sealer, claimed[0].token, event)
        .await
        .expect("seals");
    let pid = sql::pid(&operator).await;
    let retired = tokio::spawn(async move {
        sql::run(&operator, "select outlast.retire_consumer('c', 'why')").await;
    });
    sql::until_blocked(&client, pid).await;
    sql::run(&sealer, "commit").await;
    retired.await.expect("retires");
    let given_up: i64 = sql::one(&client, "select (detail->>'in_flight')::bigint from outlast._audit where action = 'consumer.retired'", &[]).await;
    assert_eq!(given_up, 0, "it was done");
}

#[tokio::test]
async fn a_type_is_removed_with_what_is_parked_of_it_but_not_while_it_is_in_work() {
    let house = House::new().await;
    let client = house.connect().await;
    let consumer = sql::register(&client, "c", &["a", "b.*", "b.kept"], "now", None).await;
    for kind in ["a", "b.one", "b.kept"] {
        sql::emit(&client, kind, None).await;
    }
    let events = Claim::of(consumer).next(&client).await.expect("claims");
    let remove = "select outlast.remove_type('c', 'b.*', 'no handler')";
    assert_eq!(
        sql::one::<i32>(&client, remove, &[]).await,
        1,
        "one is in work"
    );
    sql::complete(&client, events[0].token, events[0].id)
        .await
        .expect("completes");
    for event in &events[1..] {
        sql::fail(&client, event.token, event.id, "permanent")
            .await
            .expect("fails");
    }
    sql::finish(&client, &[events[0].token])
        .await
        .expect("finishes");
    assert_eq!(sql::one::<i32>(&client, remove, &[]).await, 0);
    let parked: Vec<String> = client
        .query("select type from outlast._parked", &[])
        .await
        .expect("reads")
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert_eq!(parked, ["b.kept"], "it has an entry of its own");
    let skipped: String = sql::one(
        &client,
        "select reason from outlast._processed_event where outcome = 's'",
        &[],
    )
    .await;
    assert_eq!(skipped, "no handler");

    sql::emit(&client, "b.one", None).await;
    assert!(
        Claim::of(consumer)
            .next(&client)
            .await
            .expect("claims")
            .is_empty(),
        "it is not its own any more"
    );
    for bad in ["'c', 'b.*', 'why'", "'c', 'a', ''", "'nobody', 'a', 'why'"] {
        let state = sql::state(
            client
                .batch_execute(&format!("select outlast.remove_type({bad})"))
                .await,
        );
        assert!(
            ["OL005", "OL012"].contains(&state.as_str()),
            "{bad}: {state}"
        );
    }
    sql::run(&client, "select outlast.remove_type('c', 'a', 'why')").await;
    let last = client
        .batch_execute("select outlast.remove_type('c', 'b.kept', 'why')")
        .await;
    assert_eq!(sql::state(last), "OL005", "the last one");
    assert_eq!(sql::broken(&client).await, Vec::<String>::new());
}

/// Nobody runs it: what it holds grows, and when it was moved last does not change.
#[tokio::test]
async fn a_consumer_that_nobody_runs_shows_since_when_and_what_it_holds() {
    let house = House::new().await;
    house.movable_clock().await;
    let client = house.connect().await;
    let run = sql::register(&client, "run", &["other"], "now", None).await;
    sql::register(&client, "geo", &["a"], "now", None).await;
    crate::house::forward(&client, 7 * 24 * 3600).await;
    super::emit(&client, "t", 100, 3).await;
    let mut workers = Workers::new(&house, run, 1).await;
    workers.until_idle().await;
    let stands = "select ids_behind, bytes_held, extract(epoch from outlast.clock() - moved_at)::bigint from outlast.consumer where name = $1";
    let row = client.query_one(stands, &[&"geo"]).await.expect("reads");
    assert_eq!(row.get::<_, i64>(0), 100);
    assert!(row.get::<_, i64>(1) > 0);
    assert!(row.get::<_, i64>(2) >= 7 * 24 * 3600);
    let row = client.query_one(stands, &[&"run"]).await.expect("reads");
    assert_eq!(
        row.get::<_, i64>(0),
        0,
        "nothing of it is its own, and it went past it"
    );
    assert!(row.get::<_, i64>(2) < 60);
}
