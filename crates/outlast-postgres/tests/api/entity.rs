//! Marks of entities through every driver: with the caller's rows or not at all, byte for byte, and bad input costs nobody his transaction.

use super::{client, database, in_every_driver, one, shown};
use outlast_postgres::{
    entity::{Deleted, Mark, PAYLOAD_LIMIT, REFS_LIMIT, changed, deleted},
    event::Body,
};

fn thing<'a>(key: &'a str, json: &'a str) -> Mark<'a> {
    Mark::new("thing", 1, Body::Json(json), key)
}

const fn plain(refs: &[u8]) -> Deleted<'_> {
    Deleted {
        refs,
        codec_key: None,
        digest: None,
    }
}

#[tokio::test]
async fn marks_and_the_business_row_are_both_there_or_neither_in_every_driver() {
    let db = database().await;
    let watcher = client(db.url()).await;
    let table = "create table member (driver text)";
    watcher.batch_execute(table).await.unwrap();
    for commit in [false, true] {
        let all = in_every_driver(db.url(), commit, async |driver, tx| {
            tx.call("insert into member values ($1)", &[driver.into()])
                .await
                .unwrap();
            let mark = thing(driver, "{}");
            changed(tx, &mark).await.unwrap();
            deleted(tx, &mark, &plain(b"{\"sid\": 7}")).await.unwrap();
        })
        .await;
        let expected = if commit { all } else { 0 };
        let counts = "select count(distinct m.driver) || ' ' || count(*) from member m
            join outlast._entity_mark e on e.entity_id = m.driver";
        assert_eq!(
            one(&watcher, counts).await,
            Some(format!("{expected} {}", 2 * expected))
        );
    }
}

#[tokio::test]
async fn everything_that_was_said_of_an_entity_is_stored_and_bytes_are_exactly_the_given_ones() {
    let db = database().await;
    let watcher = client(db.url()).await;
    let (bytes, refs): (&[u8], &[u8]) = (&[0, 255, 1, 0, b'\\', b'\''], &[7, 0, 254, b'"']);
    let all = in_every_driver(db.url(), true, async |driver, tx| {
        let body = Body::Bytes {
            bytes,
            content_type: "application/json",
        };
        let mark = Mark {
            tenant: "acme",
            exclusive: Some("chat/7'\\ä"),
            actor: Some("jane"),
            codec_key: Some("k1"),
            ..Mark::new("thing", 3, body, driver)
        };
        let gone = Deleted {
            refs,
            codec_key: Some("k2"),
            digest: Some(&[9; 32]),
        };
        deleted(tx, &mark, &gone).await.unwrap();
    })
    .await;
    let rows = "select entity_id, concat_ws('|', tenant, exclusive, actor, schema_version, codec_key, refs_codec_key), payload, refs, refs_digest
        from outlast._entity_mark order by id";
    let rows = watcher.query(rows, &[]).await.unwrap();
    assert_eq!(rows.len(), all);
    for row in rows {
        let driver: &str = row.get(0);
        assert_eq!(
            row.get::<_, &str>(1),
            "acme|chat/7'\\ä|jane|3|k1|k2",
            "{driver}"
        );
        assert_eq!(row.get::<_, &[u8]>(2), bytes, "{driver}");
        assert_eq!(row.get::<_, &[u8]>(3), refs, "{driver}");
        assert_eq!(row.get::<_, &[u8]>(4), [9; 32], "{driver}");
    }
}

/// Goal: bad input never costs the caller the business transaction.
/// Method: after each refusal the same transaction must still take a statement.
#[tokio::test]
async fn bad_marks_leave_the_transaction_usable_with_nothing_written() {
    let db = database().await;
    let large = format!("\"{}\"", "x".repeat(PAYLOAD_LIMIT));
    let long = "k".repeat(501);
    let many = vec![b' '; REFS_LIMIT + 1];
    in_every_driver(db.url(), true, async |driver, tx| {
        let good = thing("k", "{}");
        let hostile = [
            thing("k", &large),
            thing("k", "\"\0\""),
            thing("k", "{"),
            thing("", "{}"),
            thing(&long, "{}"),
            Mark {
                name: "'; drop schema outlast cascade; --",
                ..good.clone()
            },
            Mark {
                tenant: "\0",
                ..good.clone()
            },
            Mark {
                exclusive: Some(""),
                ..good.clone()
            },
            Mark {
                version: 0,
                ..good.clone()
            },
        ];
        for mark in &hostile {
            let refused = changed(tx, mark).await;
            assert!(refused.is_err(), "{driver}: {mark:?}");
        }
        let refs = [&b"{"[..], b"\xff", &many].map(plain);
        let digest = Deleted {
            codec_key: Some("k"),
            digest: Some(&[1]),
            ..plain(b"x")
        };
        for gone in refs.iter().chain([&digest]) {
            let refused = deleted(tx, &good, gone).await;
            assert!(refused.is_err(), "{driver}: {}", shown(&refused));
        }
        let usable = tx.call("select 'usable'", &[]).await.unwrap();
        assert_eq!(usable, [Some("usable".to_owned())], "{driver}");
    })
    .await;
    let none = "select count(*)::text from outlast._entity_mark";
    assert_eq!(
        one(&client(db.url()).await, none).await.as_deref(),
        Some("0")
    );
}
