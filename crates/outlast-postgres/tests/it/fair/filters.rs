//! What is a consumer's own: patterns of types, tenants, sources.

use tokio_postgres::Client;
use uuid::Uuid;

use super::done;
use crate::house::House;
use crate::sql::{self, Claim};

async fn register(
    client: &Client,
    types: &[&str],
    tenants: Option<&[&str]>,
    sources: Option<&[&str]>,
) -> i32 {
    sql::one(
        client,
        "select id from outlast._register('c', $1, tenants => $2, sources => $3)",
        &[&types, &tenants, &sources],
    )
    .await
}

async fn emit(client: &Client, kind: &str, tenant: &str, source: Option<&str>) -> Uuid {
    sql::one(
        client,
        "select id from outlast.emit(type => $1, payload => '{}', tenant => $2, source => $3)",
        &[&kind, &tenant, &source],
    )
    .await
}

async fn take_all(client: &Client, consumer: i32) -> Vec<Uuid> {
    let mut got = Vec::new();
    loop {
        let events = Claim::of(consumer).next(client).await.expect("claims");
        if events.is_empty() {
            return got;
        }
        done(client, &events).await;
        got.extend(events.iter().map(|event| event.id));
    }
}

#[tokio::test]
async fn a_pattern_takes_the_types_that_begin_with_it_and_no_other() {
    let house = House::new().await;
    let client = house.connect().await;
    let consumer = register(&client, &["booking.*", "a_b*", "paid"], None, None).await;
    let mut mine = Vec::new();
    for (kind, is_mine) in [
        ("booking.made", true),
        ("booking", false),
        ("bookings.made", false),
        ("a_b", true),
        ("axb", false),
        ("a_b.c", true),
        ("paid", true),
        ("paid.back", false),
    ] {
        let id = emit(&client, kind, "", None).await;
        if is_mine {
            mine.push(id);
        }
    }
    let got = Claim::of(consumer).next(&client).await.expect("claims");
    assert_eq!(got.iter().map(|event| event.id).collect::<Vec<_>>(), mine);
    for event in &got {
        sql::complete(&client, event.token, event.id)
            .await
            .expect("it is in the claim");
    }
    assert_eq!(
        sql::finish(&client, &[got[0].token])
            .await
            .expect("finishes"),
        [0]
    );
    assert_eq!(sql::broken(&client).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_pattern_added_later_counts_from_its_registration_on() {
    let house = House::new().await;
    let client = house.connect().await;
    let consumer = register(&client, &["a"], None, None).await;
    let first = emit(&client, "a", "", None).await;
    emit(&client, "b.one", "", None).await;
    assert_eq!(take_all(&client, consumer).await, [first]);
    emit(&client, "b.one", "", None).await;
    register(&client, &["a", "b.*"], None, None).await;
    let after = emit(&client, "b.two", "", None).await;
    assert_eq!(take_all(&client, consumer).await, [after]);
    assert_eq!(sql::broken(&client).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_filter_of_tenants_and_sources_takes_what_fits_both() {
    let house = House::new().await;
    let client = house.connect().await;
    let consumer = register(&client, &["a"], Some(&["acme", "globex"]), Some(&["shop"])).await;
    let mut mine = Vec::new();
    for tenant in ["acme", "globex", "other", ""] {
        for source in [Some("shop"), Some("else"), None] {
            let id = emit(&client, "a", tenant, source).await;
            if ["acme", "globex"].contains(&tenant) && source == Some("shop") {
                mine.push(id);
            }
        }
    }
    let got = Claim::of(consumer).next(&client).await.expect("claims");
    assert_eq!(got.iter().map(|event| event.id).collect::<Vec<_>>(), mine);
    let foreign = emit(&client, "a", "other", Some("shop")).await;
    let refused = sql::complete(&client, got[0].token, foreign).await;
    assert_eq!(sql::state(refused), "OL003");
    done(&client, &got).await;
    assert_eq!(sql::broken(&client).await, Vec::<String>::new());

    // It is part of what the consumer is.
    for (tenants, sources) in [
        ("null", "null"),
        ("array['acme']", "array['shop']"),
        ("array['acme','globex']", "null"),
    ] {
        let again = format!(
            "select outlast._register('c', array['a'], tenants => {tenants}, sources => {sources})"
        );
        assert_eq!(
            sql::state(client.batch_execute(&again).await),
            "OL005",
            "{tenants} {sources}"
        );
    }
    sql::run(&client, "select outlast._register('c', array['a'], tenants => array['globex','acme','acme'], sources => array['shop'])").await;
}

#[tokio::test]
async fn bad_filters_are_refused() {
    let house = House::new().await;
    let client = house.connect().await;
    for bad in [
        "array['a**']",
        "array['*a']",
        "array['A*']",
        "array['a'], tenants => '{}'",
        "array['a'], sources => array[null]",
        "array['a'], tenants => array(select i::text from generate_series(1, 101) i)",
    ] {
        let sql = format!("select outlast._register('c', {bad})");
        assert_eq!(
            sql::state(client.batch_execute(&sql).await),
            "OL005",
            "{bad}"
        );
    }
    let none: i64 = sql::one(&client, "select count(*) from outlast._consumer", &[]).await;
    assert_eq!(none, 0);
}

/// What a narrow filter lets by is looked at once, and at most so much of it at a time.
#[tokio::test]
async fn a_claim_looks_at_ten_thousand_ids_at_most_and_records_how_far_it_came() {
    let house = House::new().await;
    let client = house.connect().await;
    let consumer = register(&client, &["a"], Some(&["rare"]), None).await;
    for _ in 0..25 {
        super::emit(&client, "common", 1000, 10).await;
    }
    let rare = emit(&client, "a", "rare", None).await;
    let mut moves = 0;
    let got = loop {
        let claimed = Claim::of(consumer).run(&client).await.expect("claims");
        if !claimed.moved {
            break claimed.events;
        }
        moves += 1;
    };
    assert_eq!(got.iter().map(|event| event.id).collect::<Vec<_>>(), [rare]);
    assert_eq!(moves, 2, "25,001 ids in three claims");
}
