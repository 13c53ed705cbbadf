//! Pages of a window: full ones, empty ones, big ones; starts; types that came later.

use uuid::Uuid;

use crate::house::House;
use crate::sql::{self, Claim, Event};

async fn emit_many(client: &tokio_postgres::Client, kind: &str, n: i32) -> Vec<Uuid> {
    let sql = "select e.id from outlast.emit_all($1::text, array(select '{}' from generate_series(1, $2::int))) e order by e.ord";
    let rows = client.query(sql, &[&kind, &n]).await.expect("emits");
    rows.iter().map(|row| row.get(0)).collect()
}

fn ids(events: &[Event]) -> Vec<Uuid> {
    events.iter().map(|event| event.id).collect()
}

/// Seals and ends what was claimed.
async fn done(client: &tokio_postgres::Client, events: &[Event]) {
    for batch in events.chunk_by(|a, b| a.token == b.token) {
        sql::seal(client, batch[0].token, &ids(batch))
            .await
            .expect("seals");
        assert_eq!(
            sql::finish(client, &[batch[0].token])
                .await
                .expect("finishes"),
            [0]
        );
    }
}

#[tokio::test]
async fn stragglers_of_more_than_a_page_come_in_their_order_before_what_is_younger() {
    let house = House::new().await;
    let (slow, quick, reader) = (
        house.connect().await,
        house.connect().await,
        house.connect().await,
    );
    let consumer = sql::register(&reader, "c", &["a"], "now", None).await;

    sql::run(&slow, "begin").await;
    let mut late = emit_many(&slow, "a", 250).await;
    let early = sql::emit(&quick, "a", None).await;
    let first = Claim::of(consumer)
        .run(&reader)
        .await
        .expect("claims")
        .events;
    assert_eq!(ids(&first), [early], "an open writer stops nobody");
    done(&reader, &first).await;
    sql::run(&slow, "commit").await;
    let younger = emit_many(&quick, "a", 30).await;

    let mut got = Vec::new();
    let mut pages = Vec::new();
    loop {
        let page = Claim::of(consumer)
            .n(100)
            .run(&reader)
            .await
            .expect("claims")
            .events;
        if page.is_empty() {
            break;
        }
        done(&reader, &page).await;
        pages.push(page.len());
        got.extend(ids(&page));
    }
    late.extend(younger);
    assert_eq!(got, late);
    assert_eq!(pages, [100, 100, 50, 30]);
    assert_eq!(sql::broken(&reader).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_filter_that_matches_little_is_read_in_bounded_steps() {
    let house = House::new().await;
    let client = house.connect().await;
    let consumer = sql::register(&client, "c", &["mine"], "now", None).await;
    emit_many(&client, "theirs", 4500).await;
    let mine = sql::emit(&client, "mine", None).await;
    emit_many(&client, "theirs", 10).await;

    let claim = Claim {
        max_scan: 2000,
        ..Claim::of(consumer)
    };
    for _ in 0..2 {
        let moved = claim.run(&client).await.expect("claims");
        assert!(
            moved.moved && moved.events.is_empty(),
            "it says that there may be more"
        );
    }
    let found = claim.run(&client).await.expect("claims").events;
    assert_eq!(ids(&found), [mine]);
    done(&client, &found).await;
    let rest = claim.run(&client).await.expect("claims");
    assert!(!rest.moved && rest.events.is_empty());
}

#[tokio::test]
async fn stragglers_of_others_do_not_use_up_the_steps_of_a_claim() {
    let house = House::new().await;
    let (slow, client) = (house.connect().await, house.connect().await);
    let consumer = sql::register(&client, "c", &["mine"], "now", None).await;
    sql::run(&client, "select setval('outlast._event_id', 50000)").await;
    sql::run(&slow, "begin").await;
    sql::emit(&slow, "theirs", None).await;
    let first = sql::emit(&client, "mine", None).await;
    let claimed = Claim::of(consumer).run(&client).await;
    // Fifty thousand ids that were never drawn may take steps; a straggler may not.
    let mut claimed = claimed.expect("claims");
    while claimed.moved {
        claimed = Claim::of(consumer).run(&client).await.expect("claims");
    }
    assert_eq!(ids(&claimed.events), [first]);
    done(&client, &claimed.events).await;

    sql::run(&slow, "commit").await;
    let second = sql::emit(&client, "mine", None).await;
    let claimed = Claim::of(consumer).run(&client).await.expect("claims");
    assert_eq!(ids(&claimed.events), [second], "one claim is enough");
}

#[tokio::test]
async fn a_page_ends_at_its_bytes_but_holds_one_event_at_least() {
    let house = House::new().await;
    let client = house.connect().await;
    let consumer = sql::register(&client, "c", &["a"], "now", None).await;
    for _ in 0..5 {
        sql::run(
            &client,
            "select outlast.emit(type => 'a', payload => '\"' || repeat('x', 100000) || '\"')",
        )
        .await;
    }
    let mut pages = Vec::new();
    for max_bytes in [250_000, 10, 10_000_000] {
        let page = Claim {
            max_bytes,
            ..Claim::of(consumer)
        }
        .run(&client)
        .await
        .expect("claims")
        .events;
        done(&client, &page).await;
        pages.push(page.len());
    }
    assert_eq!(pages, [2, 1, 2]);
}

#[tokio::test]
async fn a_start_at_the_earliest_takes_what_is_in_the_log_and_a_start_now_only_what_commits_later()
{
    let house = House::new().await;
    let (slow, client) = (house.connect().await, house.connect().await);
    let before = sql::emit(&client, "a", None).await;
    sql::run(&slow, "begin").await;
    let open = sql::emit(&slow, "a", None).await;
    let now = sql::register(&client, "now", &["a"], "now", None).await;
    let earliest = sql::register(&client, "earliest", &["a"], "earliest", Some(4)).await;
    let after = sql::emit(&client, "a", None).await;

    let mut got = [Vec::new(), Vec::new()];
    for round in 0..2 {
        for (n, consumer) in [now, earliest].into_iter().enumerate() {
            let events = Claim::of(consumer).next(&client).await.expect("claims");
            done(&client, &events).await;
            got[n].extend(ids(&events));
        }
        if round == 0 {
            sql::run(&slow, "commit").await;
        }
    }
    assert_eq!(got[0], [after, open]);
    assert_eq!(got[1], [before, after, open]);
    assert_eq!(sql::broken(&client).await, Vec::<String>::new());
}

/// Whatever the start of the consumer is: what of the new type lies behind its place was stepped over before anybody
/// asked for it, and a batch in flight ends with what it was claimed with.
#[tokio::test]
async fn a_type_added_later_counts_from_its_registration_on() {
    let house = House::new().await;
    let (slow, client) = (house.connect().await, house.connect().await);
    for start in ["now", "earliest"] {
        for lanes in [None, Some(4)] {
            let name = format!("{start}-{lanes:?}")
                .to_lowercase()
                .replace(['(', ')'], "-");
            let (old, new) = (format!("{name}/old"), format!("{name}/new"));
            let consumer = sql::register(&client, &name, &[&old], start, lanes).await;
            let before = sql::emit(&client, &new, Some("k")).await;
            let first = sql::emit(&client, &old, Some("k")).await;
            let in_flight = Claim::of(consumer).next(&client).await.expect("claims");
            assert_eq!(ids(&in_flight), [first], "{name}");
            let token = in_flight[0].token;

            sql::run(&slow, "begin").await;
            let open = sql::emit(&slow, &new, Some("k")).await;
            sql::emit(&client, &new, Some("k")).await;
            sql::register(&client, &name, &[&old, &new], start, lanes).await;
            let foreign = sql::complete(&client, token, before).await;
            assert_eq!(sql::state(foreign), "OL003", "{name}: it was never claimed");
            done(&client, &in_flight).await;
            sql::run(&slow, "commit").await;
            let after = sql::emit(&client, &new, Some("k")).await;

            let mut got = Vec::new();
            loop {
                let events = Claim::of(consumer).next(&client).await.expect("claims");
                if events.is_empty() {
                    break;
                }
                done(&client, &events).await;
                got.extend(ids(&events));
            }
            assert_eq!(got, [open, after], "{name}");
            assert_eq!(sql::broken(&client).await, Vec::<String>::new(), "{name}");
        }
    }
}
