//! The same intent twice is one event: by a dedup key, or by an id of the caller's own.

use tokio_postgres::Client;
use uuid::Uuid;

use crate::house::{House, forward};
use crate::sql;

#[derive(Debug, PartialEq, Eq)]
struct Answer {
    id: Uuid,
    new: bool,
    conflict: bool,
    expired: bool,
}

async fn emit_once(
    client: &Client,
    by: &str,
    key: &str,
    payload: &str,
) -> Result<Answer, tokio_postgres::Error> {
    let sql = format!(
        "select id, new, conflict, expired from outlast.emit(type => 'a', payload => $1::text, {by} => $2::text{})",
        if by == "event_id" { "::uuid" } else { "" }
    );
    let row = client.query_one(&sql, &[&payload, &key]).await?;
    Ok(Answer {
        id: row.get(0),
        new: row.get(1),
        conflict: row.get(2),
        expired: row.get(3),
    })
}

async fn events(client: &Client) -> i64 {
    sql::one(client, "select count(*) from outlast._event", &[]).await
}

/// A key for each of the two ways.
fn ways() -> [(&'static str, String); 2] {
    [
        ("dedup", "order-1".to_owned()),
        ("event_id", Uuid::now_v7().to_string()),
    ]
}

#[tokio::test]
async fn the_same_twice_is_one_event_and_another_payload_is_a_conflict() {
    let house = House::new().await;
    let client = house.connect().await;
    for (n, (by, key)) in ways().into_iter().enumerate() {
        let first = emit_once(&client, by, &key, "1").await.expect("emits");
        assert!(first.new && !first.conflict, "{by}");
        let again = emit_once(&client, by, &key, "1").await.expect("answers");
        assert_eq!(
            again,
            Answer {
                new: false,
                ..Answer {
                    id: first.id,
                    new: false,
                    conflict: false,
                    expired: false
                }
            },
            "{by}"
        );
        let other = emit_once(&client, by, &key, "2")
            .await
            .expect("a conflict is an answer, not an error");
        assert_eq!(
            other,
            Answer {
                id: first.id,
                new: false,
                conflict: true,
                expired: false
            },
            "{by}"
        );
        assert_eq!(events(&client).await, n as i64 + 1, "{by}");
        // The digest of the first tells what the conflict is with.
        let sql = format!(
            "select e.first_digest = outlast._digest('a', 'application/json', '1'::bytea)
             from outlast.emit(type => 'a', bytes => '2', content_type => 'text/plain', {by} => $1::text{}) e",
            if by == "event_id" { "::uuid" } else { "" }
        );
        assert!(sql::one::<bool>(&client, &sql, &[&key]).await, "{by}");
        let sql = sql.replace("'2'", "'1'").replace(
            "e.first_digest = outlast._digest('a', 'application/json', '1'::bytea)",
            "e.conflict",
        );
        assert!(
            sql::one::<bool>(&client, &sql, &[&key]).await,
            "{by}: the same bytes of another kind are another intent"
        );
    }
}

/// CL-10: whoever waits for the first one learns what became of it.
#[tokio::test]
async fn when_the_first_one_rolls_back_exactly_one_of_the_others_is_new() {
    let house = House::new().await;
    for (by, key) in ways() {
        let (first, observer) = (house.connect().await, house.connect().await);
        let before = events(&observer).await;
        sql::run(&first, "begin").await;
        assert!(emit_once(&first, by, &key, "1").await.expect("emits").new);
        let mut others = Vec::new();
        for _ in 0..3 {
            let client = house.connect().await;
            let pid = sql::pid(&client).await;
            let key = key.clone();
            others.push(tokio::spawn(async move {
                emit_once(&client, by, &key, "1").await.expect("answers")
            }));
            sql::until_blocked(&observer, pid).await;
        }
        sql::run(&first, "rollback").await;
        let (mut new, mut ids) = (0, Vec::new());
        for other in others {
            let answer = other.await.expect("ends");
            new += i32::from(answer.new);
            ids.push(answer.id);
        }
        ids.dedup();
        assert_eq!((new, ids.len()), (1, 1), "{by}");
        assert_eq!(events(&observer).await, before + 1, "{by}");
    }
}

#[tokio::test]
async fn when_the_first_one_commits_the_other_one_is_not_new() {
    let house = House::new().await;
    for (by, key) in ways() {
        let (first, observer) = (house.connect().await, house.connect().await);
        for (payload, conflict) in [("1", false), ("2", true)] {
            let key = if by == "dedup" {
                format!("{key}{payload}")
            } else {
                Uuid::now_v7().to_string()
            };
            sql::run(&first, "begin").await;
            let one = emit_once(&first, by, &key, "1").await.expect("emits");
            let other = house.connect().await;
            let pid = sql::pid(&other).await;
            let waiting = tokio::spawn(async move {
                emit_once(&other, by, &key, payload).await.expect("answers")
            });
            sql::until_blocked(&observer, pid).await;
            sql::run(&first, "commit").await;
            assert_eq!(
                waiting.await.expect("ends"),
                Answer {
                    id: one.id,
                    new: false,
                    conflict,
                    expired: false
                },
                "{by}"
            );
        }
    }
}

/// Behind its snapshot a transaction cannot see what committed: it is told to try again, and never writes a second one.
#[tokio::test]
async fn above_read_committed_a_concurrent_one_is_a_serialization_failure() {
    let house = House::new().await;
    for isolation in ["repeatable read", "serializable"] {
        for (by, key) in ways() {
            let key = if by == "dedup" {
                format!("{key}{isolation}")
            } else {
                key
            };
            let (old, quick) = (house.connect().await, house.connect().await);
            let before = events(&quick).await;
            sql::run(
                &old,
                &format!("begin isolation level {isolation}; select 1"),
            )
            .await;
            assert!(emit_once(&quick, by, &key, "1").await.expect("emits").new);
            assert_eq!(
                sql::state(emit_once(&old, by, &key, "1").await),
                "40001",
                "{by} in {isolation}"
            );
            sql::run(&old, "rollback").await;
            assert_eq!(events(&quick).await, before + 1, "{by} in {isolation}");
        }
    }
}

#[tokio::test]
async fn a_key_behind_its_horizon_is_expired_and_never_new() {
    let house = House::new().await;
    house.movable_clock().await;
    let client = house.connect().await;
    let first = emit_once(&client, "dedup", "k", "1").await.expect("emits");
    forward(&client, 30 * 24 * 3600 + 60).await;
    for payload in ["1", "2"] {
        let late = emit_once(&client, "dedup", "k", payload)
            .await
            .expect("answers");
        assert_eq!(
            late,
            Answer {
                id: first.id,
                new: false,
                conflict: false,
                expired: true
            }
        );
    }
    assert_eq!(events(&client).await, 1);
}

#[tokio::test]
async fn keys_belong_to_a_tenant_and_a_type_and_go_with_their_savepoint() {
    let house = House::new().await;
    let client = house.connect().await;
    for (kind, tenant) in [("a", "x"), ("a", "y"), ("b", "x")] {
        let sql = "select new from outlast.emit(type => $1, payload => '1'::text, tenant => $2, dedup => 'k')";
        assert!(sql::one::<bool>(&client, sql, &[&kind, &tenant]).await);
    }
    for (by, key) in ways() {
        sql::run(&client, "begin; savepoint s").await;
        assert!(emit_once(&client, by, &key, "1").await.expect("emits").new);
        assert!(
            !emit_once(&client, by, &key, "1")
                .await
                .expect("answers")
                .new,
            "{by}: its own is there"
        );
        sql::run(&client, "rollback to s").await;
        assert!(
            emit_once(&client, by, &key, "1").await.expect("emits").new,
            "{by}: the first one never was"
        );
        sql::run(&client, "commit").await;
    }
}

/// A refused half must not leave the other half behind: else the next call believes in an event that is not there.
#[tokio::test]
async fn a_dedup_key_and_an_own_id_together_leave_no_half() {
    let house = House::new().await;
    let client = house.connect().await;
    let (one, two) = (Uuid::now_v7(), Uuid::now_v7());
    let sql = "select new, id from outlast.emit(type => 'a', payload => $1::text, dedup => $2::text, event_id => $3)";
    let ask = async |payload: &str, dedup: Option<&str>, id: Option<Uuid>| -> (bool, Uuid) {
        let row = client
            .query_one(sql, &[&payload, &dedup, &id])
            .await
            .expect("answers");
        (row.get(0), row.get(1))
    };
    assert_eq!(ask("1", Some("k"), Some(one)).await, (true, one));
    assert_eq!(
        ask("1", Some("k"), Some(two)).await,
        (false, one),
        "the key is known"
    );
    assert_eq!(
        ask("1", None, Some(two)).await,
        (true, two),
        "the id is not"
    );
    assert_eq!(
        ask("1", Some("other"), Some(one)).await,
        (false, one),
        "the id is known"
    );
    let (new, id) = ask("2", Some("other"), None).await;
    assert!(new && id != one, "the key is not");
}

/// Ids that rise are written at the right end of each index, in the log and by every consumer's seals.
#[tokio::test]
async fn the_ids_of_one_call_rise_in_its_order_and_say_its_time() {
    let house = House::new().await;
    let client = house.connect().await;
    let sql = "select e.id from outlast.emit_all('a', array_fill('1'::text, array[1000])) e order by e.ord";
    let rows = client.query(sql, &[]).await.expect("emits");
    let ids: Vec<Uuid> = rows.iter().map(|row| row.get(0)).collect();
    assert!(ids.is_sorted());
    assert!(ids.iter().all(|id| id.get_version_num() == 7));
    let off = "select count(*) from outlast._event e
        where outlast._v7_time(e.event_id) not between e.emitted_at - interval '1 millisecond' and e.emitted_at";
    assert_eq!(sql::one::<i64>(&client, off, &[]).await, 0);
}
