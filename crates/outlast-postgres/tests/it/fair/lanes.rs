//! Another number of lanes while claims go on: order is kept, nothing is done twice or left out.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use super::{done, emit};
use crate::house::House;
use crate::sql::{self, Claim, Event};

#[tokio::test]
async fn the_number_of_lanes_changes_at_a_common_place_while_claims_go_on() {
    let house = House::new().await;
    let client = house.connect().await;
    let consumer = sql::register(&client, "c", &["a"], "now", Some(4)).await;
    let mut rng = fastrand::Rng::with_seed(7);
    let mut held: Vec<Vec<Event>> = Vec::new();
    let mut last: HashMap<String, i64> = HashMap::new();
    let mut seen: HashSet<Uuid> = HashSet::new();
    let (mut counts, mut emitted) = (Vec::new(), 0);
    for step in 0.. {
        if step < 120 && step % 3 == 0 {
            emit(
                &client,
                if step % 2 == 0 { "heavy" } else { "light" },
                60,
                11,
            )
            .await;
            emitted += 60;
        }
        for (at, lanes) in [(20, 9), (60, 2), (90, 16)] {
            if step == at {
                let sql = format!("select outlast.change_lanes('c', {lanes})");
                sql::run(&client, &sql).await;
            }
        }
        let claim = Claim {
            lanes: 2,
            sides: 2,
            ..Claim::of(consumer).n(40)
        };
        // What is in flight holds its lane back.
        let nothing_held = held.is_empty();
        let claimed = claim.run(&client).await.expect("claims");
        let mut batches: HashMap<Uuid, Vec<Event>> = HashMap::new();
        for event in claimed.events.clone() {
            assert!(seen.insert(event.id), "claimed twice");
            batches.entry(event.token).or_default().push(event);
        }
        held.extend(batches.into_values());
        if !held.is_empty() && (step >= 120 || rng.u8(..3) > 0) {
            let batch = held.swap_remove(rng.usize(..held.len()));
            for event in &batch {
                let tenant: String = sql::one(
                    &client,
                    "select tenant from outlast._event where event_id = $1",
                    &[&event.id],
                )
                .await;
                let key = format!("{tenant} {}", event.key.as_deref().unwrap_or_default());
                let before = last.insert(key.clone(), event.log_id).unwrap_or(0);
                assert!(
                    before < event.log_id,
                    "{key}: {} after {before}",
                    event.log_id
                );
            }
            done(&client, &batch).await;
        }
        let lanes: i32 = sql::one(
            &client,
            "select lanes from outlast._consumer where id = $1",
            &[&consumer],
        )
        .await;
        if counts.last() != Some(&lanes) {
            counts.push(lanes);
        }
        if step >= 120 && nothing_held && !claimed.moved && claimed.events.is_empty() {
            break;
        }
        assert!(step < 5000, "it does not end: {counts:?}");
    }
    assert_eq!(seen.len(), emitted);
    assert_eq!(counts.first(), Some(&4));
    assert_eq!(counts.last(), Some(&16), "{counts:?}");
    let mixed: i64 = sql::one(
        &client,
        "select count(*) from outlast._batch where parts <> 16",
        &[],
    )
    .await;
    assert_eq!(mixed, 0);
    assert_eq!(sql::broken(&client).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_change_of_lanes_waits_for_what_is_in_flight_and_can_be_taken_back() {
    let house = House::new().await;
    let client = house.connect().await;
    let consumer = sql::register(&client, "c", &["a"], "now", Some(2)).await;
    emit(&client, "t", 20, 10).await;
    let events = Claim::of(consumer).next(&client).await.expect("claims");
    let standing =
        "select lanes || ' ' || coalesce(wanted::text, '-') from outlast._lanes_standing('c')";
    sql::run(&client, "select outlast.change_lanes('c', 5)").await;
    emit(&client, "t", 20, 10).await;
    while !(Claim {
        lanes: 5,
        ..Claim::of(consumer)
    })
    .run(&client)
    .await
    .expect("claims")
    .events
    .is_empty()
    {}
    assert_eq!(
        sql::one::<String>(&client, standing, &[]).await,
        "2 5",
        "a batch is in flight"
    );
    sql::run(&client, "select outlast.change_lanes('c', 2)").await;
    assert_eq!(
        sql::one::<String>(&client, standing, &[]).await,
        "2 -",
        "taken back"
    );
    done(&client, &events).await;

    sql::run(&client, "select outlast.change_lanes('c', 5)").await;
    let mut rest = 0;
    loop {
        let events = Claim::of(consumer).next(&client).await.expect("claims");
        done(&client, &events).await;
        rest += events.len();
        if events.is_empty() {
            break;
        }
    }
    assert_eq!(rest, 20);
    assert_eq!(sql::one::<String>(&client, standing, &[]).await, "5 -");
    for bad in ["'c', 0", "'c', 1025", "'nobody', 3", "'free', 3"] {
        sql::register(&client, "free", &["a"], "now", None).await;
        let state = sql::state(
            client
                .batch_execute(&format!("select outlast.change_lanes({bad})"))
                .await,
        );
        assert!(
            ["OL005", "OL012"].contains(&state.as_str()),
            "{bad}: {state}"
        );
    }
    let audited: i64 = sql::one(
        &client,
        "select count(*) from outlast._audit where action like 'consumer.lanes%'",
        &[],
    )
    .await;
    assert_eq!(audited, 4);
    assert_eq!(sql::broken(&client).await, Vec::<String>::new());
}
