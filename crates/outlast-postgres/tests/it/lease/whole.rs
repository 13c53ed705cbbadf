//! The end of a batch that was sealed whole does not read its window again, and believes nothing but rows for that.

use tokio_postgres::Client;
use uuid::Uuid;

use crate::house::House;
use crate::sql::{self, Claim, Event};

/// A consumer, and two batches of 40 events each.
async fn two_batches(client: &Client, name: &str) -> [Vec<Event>; 2] {
    let consumer = sql::register(client, name, &[name], "now", None).await;
    let emit = "select from outlast.emit_all($1, array_fill('{}'::text, array[80]))";
    client.query(emit, &[&name]).await.expect("emits");
    let claim = || async {
        Claim::of(consumer)
            .n(40)
            .next(client)
            .await
            .expect("claims")
    };
    let batches = [claim().await, claim().await];
    assert_eq!(batches.each_ref().map(Vec::len), [40, 40]);
    batches
}

fn ids(events: &[Event]) -> Vec<Uuid> {
    events.iter().map(|event| event.id).collect()
}

async fn seal_and_finish(client: &Client, token: Uuid, ids: &[Uuid]) -> i32 {
    sql::one(
        client,
        "select outlast._seal_and_finish($1, $2, false)",
        &[&token, &ids],
    )
    .await
}

async fn flushes(client: &Client) -> i64 {
    sql::one(client, "select count(*) from outlast._flush", &[]).await
}

#[tokio::test]
async fn a_batch_that_was_sealed_whole_ends_without_another_look_at_its_window() {
    let house = House::new().await;
    let client = house.connect().await;
    let [one, other] = two_batches(&client, "a").await;
    let looks = (
        "if (b).events = 0 then return; end if;",
        "raise exception 'looked';",
    );
    house.plant("_left", &[looks]).await;

    assert_eq!(seal_and_finish(&client, one[0].token, &ids(&one)).await, 0);
    let (first, rest) = other.split_at(20);
    for part in [first, rest] {
        sql::seal(&client, other[0].token, &ids(part))
            .await
            .expect("seals");
    }
    assert_eq!(flushes(&client).await, 2);
    let left = sql::finish(&client, &[other[0].token]).await;
    assert_eq!(left.expect("finishes"), [0]);
    assert_eq!(flushes(&client).await, 0);
}

#[tokio::test]
async fn a_batch_of_which_a_part_is_not_sealed_is_looked_at() {
    let house = House::new().await;
    let client = house.connect().await;
    let [one, other] = two_batches(&client, "a").await;
    assert_eq!(
        seal_and_finish(&client, one[0].token, &ids(&one[..39])).await,
        1
    );
    sql::seal(&client, other[0].token, &ids(&other[..38]))
        .await
        .expect("seals");
    let left = sql::finish(&client, &[other[0].token]).await;
    assert_eq!(left.expect("finishes"), [2]);
    assert_eq!(sql::broken(&client).await, Vec::<String>::new());
}

/// A worker that mixes up two batches: as many rows as there are events, but not of these.
#[tokio::test]
async fn as_many_seals_of_other_events_do_not_end_a_batch() {
    for planted in [None, Some("_end"), Some("_end_whole")] {
        let house = House::new().await;
        let piece = match planted {
            Some("_end") => ("and (l).ids_xor = case", "or (l).ids_xor = case"),
            _ => ("l.ids_xor is distinct from outlast._ids_xor(ids)", "false"),
        };
        if let Some(function) = planted {
            house.plant(function, &[piece]).await;
        }
        let client = house.connect().await;
        let left = if planted.is_some() { 0 } else { 40 };
        let [one, other] = two_batches(&client, "a").await;
        let got = seal_and_finish(&client, one[0].token, &ids(&other)).await;
        assert_eq!(got, left);
        if planted == Some("_end_whole") {
            continue;
        }

        let [one, other] = two_batches(&client, "b").await;
        sql::seal(&client, one[0].token, &ids(&other))
            .await
            .expect("seals");
        let got = sql::finish(&client, &[one[0].token]).await;
        assert_eq!(got.expect("finishes"), [left]);
    }
}

/// What was written under a lease that is gone counts for nobody: its rows are there, and are found by looking.
#[tokio::test]
async fn seals_of_a_lease_that_was_taken_over_are_found_in_the_inbox() {
    let house = House::new().await;
    let client = house.connect().await;
    let consumer = sql::register(&client, "a", &["a"], "now", None).await;
    let emit = "select from outlast.emit_all('a', array_fill('{}'::text, array[40]))";
    client.query(emit, &[]).await.expect("emits");
    let batch = Claim::of(consumer)
        .n(40)
        .next(&client)
        .await
        .expect("claims");
    sql::seal(&client, batch[0].token, &ids(&batch[..20]))
        .await
        .expect("seals");
    sql::run(&client, "update outlast._lease set expires_at = 'epoch'").await;
    let rest = sql::reclaim(&client, consumer, 1).await.expect("reclaims");
    assert_eq!(ids(&rest), ids(&batch[20..]));
    assert_eq!(flushes(&client).await, 0);
    let left = seal_and_finish(&client, rest[0].token, &ids(&rest)).await;
    assert_eq!(left, 0);
    assert_eq!(sql::broken(&client).await, Vec::<String>::new());
}
