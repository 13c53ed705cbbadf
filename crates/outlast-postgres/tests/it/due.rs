//! The sweep of a process: one question for all of its consumers, which finds what nobody has told of.

use tokio_postgres::Client;

use crate::house::House;
use crate::sql::{self, Claim};

/// Lapsed, when something parked is due (now or later), and whether a claim may find something.
type Due = (bool, Option<&'static str>, bool);

const NOTHING: Due = (false, None, false);

async fn due(client: &Client, consumers: &[i32]) -> Vec<Due> {
    let sql = "select lapsed, parked_ms, news from outlast._due($1) order by consumer";
    let rows = client.query(sql, &[&consumers]).await.expect("asks");
    rows.iter()
        .map(|row| {
            let parked = row.get::<_, Option<i64>>(1);
            let parked = parked.map(|ms| if ms == 0 { "now" } else { "later" });
            (row.get(0), parked, row.get(2))
        })
        .collect()
}

#[tokio::test]
async fn a_sweep_finds_what_is_new_what_has_lapsed_and_what_is_due_for_each_consumer() {
    let house = House::new().await;
    let client = house.connect().await;
    let a = sql::register(&client, "a", &["a"], "now", None).await;
    let b = sql::register(&client, "b", &["b"], "now", None).await;
    let both = [a, b];
    for consumer in both {
        Claim::of(consumer).next(&client).await.expect("claims");
    }
    assert_eq!(due(&client, &both).await, [NOTHING, NOTHING]);

    sql::emit(&client, "a", None).await;
    let new = (false, None, true);
    assert_eq!(due(&client, &[a]).await, [new]);
    let claimed = Claim::of(a).next(&client).await.expect("claims");
    Claim::of(b).next(&client).await.expect("moves over it");
    assert_eq!(due(&client, &both).await, [NOTHING, NOTHING], "in flight");

    let lapse = "update outlast._lease set expires_at = outlast.clock() - interval '1 second'";
    sql::run(&client, lapse).await;
    let lapsed = (true, None, false);
    assert_eq!(due(&client, &both).await, [lapsed, NOTHING]);

    let token = sql::reclaim(&client, a, 1).await.expect("reclaims")[0].token;
    sql::fail(&client, token, claimed[0].id, "retry")
        .await
        .expect("fails");
    sql::finish(&client, &[token]).await.expect("ends");
    let put = |off: &str| {
        format!("update outlast._parked set next_at = outlast.clock() + interval '{off}'")
    };
    sql::run(&client, &put("1 hour")).await;
    assert_eq!(due(&client, &[a]).await, [(false, Some("later"), false)]);
    sql::run(&client, &put("-1 second")).await;
    assert_eq!(due(&client, &[a]).await, [(false, Some("now"), false)]);
    let claim = "select token from outlast._claim_parked($1, 1, 60000, array['a'], array[1])";
    let _token: uuid::Uuid = sql::one(&client, claim, &[&a]).await;
    assert_eq!(due(&client, &both).await, [NOTHING, NOTHING], "it runs");
    sql::run(&client, lapse).await;
    assert_eq!(
        due(&client, &[a]).await,
        [(true, Some("now"), false)],
        "its runner is gone"
    );

    sql::run(&client, "select outlast.pause('a', 'a test')").await;
    assert_eq!(due(&client, &[a]).await, [NOTHING]);
    assert_eq!(due(&client, &[0]).await, [], "it is not there");
}

#[tokio::test]
async fn a_straggler_is_found_by_a_sweep() {
    let house = House::new().await;
    let (slow, client) = (house.connect().await, house.connect().await);
    let a = sql::register(&client, "a", &["a"], "now", None).await;
    sql::run(&slow, "begin").await;
    sql::emit(&slow, "a", None).await;
    sql::emit(&client, "a", None).await;
    assert_eq!(Claim::of(a).next(&client).await.expect("claims").len(), 1);
    sql::run(&slow, "commit").await;
    assert_eq!(due(&client, &[a]).await, [(false, None, true)]);
}

#[tokio::test]
async fn a_sweep_lets_the_others_go_on_where_one_is_held_and_is_refused_where_all_are_stopped() {
    let house = House::new().await;
    let client = house.connect().await;
    let outside = sql::register(&client, "outside", &["a"], "now", None).await;
    let local = "select id from outlast._register('local', array['b'], 'now', local => true)";
    let local: i32 = sql::one(&client, local, &[]).await;
    Claim::of(local).next(&client).await.expect("claims");
    sql::run(&client, "select outlast._hold('a test')").await;
    assert_eq!(
        due(&client, &[outside, local]).await,
        [(false, None, true), NOTHING],
        "its claim says so"
    );
    sql::run(&client, "update outlast._house set stopped = 'a test'").await;
    let refused = client
        .query("select * from outlast._due($1)", &[&&[local][..]])
        .await;
    assert_eq!(sql::state(refused), "OL004");
}
