use super::{client, database, drivers, drivers::sqlx_pool, in_every_driver, one, shown};
use outlast_postgres::{
    Error,
    event::{Body, Envelope, Envelopes, KEY_LIMIT, PAYLOAD_LIMIT, TENANT_LIMIT, emit, emit_all},
    schema::Schema,
    tx::{Tx, Value},
};
use outlast_testkit::pg;
use uuid::Uuid;

async fn sql(tx: &mut dyn Tx, sql: &'static str) -> Option<String> {
    let row = tx
        .call(sql, &[])
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    row.into_iter().next().flatten()
}

fn paid(json: &str) -> Envelope<'_> {
    Envelope::new("paid", 1, Body::Json(json))
}

#[tokio::test]
async fn an_event_and_the_business_row_are_both_there_or_neither_in_every_driver() {
    let db = database().await;
    let watcher = client(db.url()).await;
    watcher
        .batch_execute("create table booking (driver text)")
        .await
        .unwrap();
    for commit in [false, true] {
        let all = in_every_driver(db.url(), commit, async |driver, tx| {
            tx.call("insert into booking values ($1)", &[driver.into()])
                .await
                .unwrap();
            let envelope = Envelope {
                key: Some(driver),
                ..paid("{}")
            };
            assert!(emit(tx, &envelope).await.unwrap().new);
        })
        .await;
        let expected = if commit { all } else { 0 };
        let counts =
            "select (select count(*) from booking) || ' ' || (select count(*) from outlast.event)";
        assert_eq!(
            one(&watcher, counts).await,
            Some(format!("{expected} {expected}"))
        );
        let same = "select count(*)::text from booking b join outlast.event e on e.key = b.driver";
        assert_eq!(one(&watcher, same).await, Some(expected.to_string()));
    }
}

#[tokio::test]
async fn everything_that_was_said_is_stored_and_the_bytes_are_exactly_the_given_ones() {
    let db = database().await;
    let watcher = client(db.url()).await;
    let (correlation, causation, id) = (Uuid::new_v4(), Uuid::now_v7(), Uuid::now_v7());
    let odd = r#" {"b":1,"a":1e400, "a":18446744073709551616,"c":"\\ \" ä 😀 \u0001"}  "#;
    let envelope = Envelope {
        key: Some("k'\\ä"),
        tenant: "acme",
        id: Some(id),
        source: Some("shop"),
        subject: Some("booking/7"),
        aggregate_version: Some(i64::MAX),
        actor: Some("jane"),
        correlation_id: Some(correlation),
        causation_id: Some(causation),
        traceparent: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        headers: Some(r#"{"region":"eu"}"#),
        codec_key: Some("key-1"),
        ..Envelope::new("paid", 7, Body::Json(odd))
    };
    let pool = sqlx_pool(db.url(), 1).await;
    let mut tx = pool.begin().await.unwrap();
    let accepted = emit(&mut tx, &envelope).await.unwrap();
    let xid = sql(&mut tx, "select pg_current_xact_id()::text")
        .await
        .unwrap();
    tx.commit().await.unwrap();

    assert_eq!(
        (accepted.id, accepted.new, accepted.xid().to_string()),
        (id, true, xid)
    );
    let row = "select concat_ws('|', id, type, version, tenant, key, source, subject, aggregate_version, actor, \
        correlation_id, causation_id, traceparent, headers, content_type) from outlast.event";
    let expected = format!(
        "{id}|paid|7|acme|k'\\ä|shop|booking/7|{}|jane|{correlation}|{causation}|00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01|{{\"region\": \"eu\"}}|application/json",
        i64::MAX
    );
    assert_eq!(one(&watcher, row).await, Some(expected));
    let bytes: Vec<u8> = watcher
        .query_one("select payload from outlast.event", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(bytes, odd.as_bytes());
}

#[tokio::test]
async fn bytes_of_another_content_type_are_stored_as_they_are() {
    let db = database().await;
    let watcher = client(db.url()).await;
    let bytes: &[u8] = &[0, 255, 1, 0, b'\\', b'\''];
    let all = in_every_driver(db.url(), true, async |driver, tx| {
        let body = Body::Bytes {
            bytes,
            content_type: "application/cbor",
        };
        emit(
            tx,
            &Envelope {
                key: Some(driver),
                ..Envelope::new("scan", 1, body)
            },
        )
        .await
        .unwrap();
    })
    .await;
    let rows = watcher.query(
        "select payload from outlast.event where content_type = 'application/cbor'",
        &[],
    );
    let stored: Vec<Vec<u8>> = rows.await.unwrap().iter().map(|row| row.get(0)).collect();
    assert_eq!(stored, vec![bytes.to_vec(); all]);
}

#[tokio::test]
async fn the_same_dedup_key_is_the_same_intent_and_other_content_is_a_conflict_that_aborts_nothing()
{
    let db = database().await;
    let all = in_every_driver(db.url(), true, async |driver, tx| {
        let once = Envelope {
            dedup: Some(driver),
            ..paid("1")
        };
        let first = emit(tx, &once).await.unwrap();
        let again = emit(tx, &once).await.unwrap();
        assert_eq!(
            (first.new, again.new, again.id),
            (true, false, first.id),
            "{driver}"
        );

        let other = Envelope {
            dedup: Some(driver),
            ..paid("2")
        };
        match emit(tx, &other).await {
            Err(Error::Conflict {
                kind: "event",
                key,
                first: id,
            }) => assert_eq!((key.as_str(), id), (driver, first.id)),
            other => panic!("{driver}: {other:?}"),
        }
        let elsewhere = Envelope {
            tenant: "other",
            ..other.clone()
        };
        assert!(
            emit(tx, &elsewhere).await.unwrap().new,
            "{driver}: another tenant's key is another key"
        );
    })
    .await;
    let watcher = client(db.url()).await;
    assert_eq!(
        one(&watcher, "select count(*)::text from outlast.event").await,
        Some((2 * all).to_string())
    );
}

#[tokio::test]
async fn a_dedup_key_is_expired_after_its_horizon_never_new() {
    let db = database().await;
    let mut client = client(db.url()).await;
    let once = Envelope {
        dedup: Some("k"),
        ..paid("1")
    };
    let mut tx = client.transaction().await.unwrap();
    emit(&mut tx, &once).await.unwrap();
    tx.execute(
        "update outlast._dedup set taken_at = taken_at - interval '31 days'",
        &[],
    )
    .await
    .unwrap();
    let again = shown(&emit(&mut tx, &once).await);
    assert!(
        again.contains("Expired { kind: \"event\", key: \"k\" }"),
        "{again}"
    );
    assert_eq!(
        sql(&mut tx, "select count(*)::text from outlast.event")
            .await
            .as_deref(),
        Some("1")
    );
}

#[tokio::test]
async fn an_explicit_id_again_is_the_same_event() {
    let db = database().await;
    let mut client = client(db.url()).await;
    let mine = Envelope {
        id: Some(Uuid::now_v7()),
        ..paid("1")
    };
    let mut tx = client.transaction().await.unwrap();
    let first = emit(&mut tx, &mine).await.unwrap();
    let again = emit(&mut tx, &mine).await.unwrap();
    assert_eq!(
        (first.new, again.new, Some(again.id)),
        (true, false, mine.id)
    );
    let other = Envelope {
        id: mine.id,
        ..paid("2")
    };
    assert!(matches!(
        emit(&mut tx, &other).await,
        Err(Error::Conflict { .. })
    ));
}

/// Goal: bad input never costs the caller the business transaction.
/// Method: after each refusal the same transaction must still take a statement.
#[tokio::test]
async fn bad_input_leaves_the_transaction_usable_with_nothing_written() {
    let db = database().await;
    let large = format!("\"{}\"", "x".repeat(PAYLOAD_LIMIT));
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let long = "k".repeat(KEY_LIMIT + 1);
    in_every_driver(db.url(), true, async |driver, tx| {
        let hostile = [
            paid(&large),
            paid(&deep),
            paid("\"\0\""),
            paid(r#""\u0000""#),
            paid("{"),
            Envelope {
                name: "'; drop schema outlast cascade; --",
                ..paid("1")
            },
            Envelope {
                tenant: "\0",
                ..paid("1")
            },
            Envelope {
                key: Some(&long),
                ..paid("1")
            },
            Envelope {
                dedup: Some("\0"),
                ..paid("1")
            },
            Envelope {
                actor: Some("\0"),
                ..paid("1")
            },
            Envelope {
                headers: Some("not json"),
                ..paid("1")
            },
            Envelope {
                id: Some(Uuid::new_v4()),
                ..paid("1")
            },
            Envelope::new(
                "scan",
                1,
                Body::Bytes {
                    bytes: b"\xff",
                    content_type: "application/json",
                },
            ),
        ];
        for envelope in hostile {
            let refused = emit(tx, &envelope).await;
            assert!(
                refused.is_err() && !matches!(refused, Err(Error::Database(_))),
                "{driver}: {}",
                shown(&refused)
            );
            assert_eq!(
                sql(tx, "select 'usable'").await.as_deref(),
                Some("usable"),
                "{driver}"
            );
        }
    })
    .await;
    let watcher = client(db.url()).await;
    assert_eq!(
        one(&watcher, "select count(*)::text from outlast.event")
            .await
            .as_deref(),
        Some("0")
    );
}

/// Goal: one truth in two places, `event::check` and `functions/check.sql`, stays one.
/// Method: what stands on both sides of each limit is given to both.
#[tokio::test]
async fn the_check_before_the_statement_refuses_what_the_function_refuses() {
    let db = database().await;
    let mut client = client(db.url()).await;
    let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    let payloads = [
        "null".into(),
        "\"\"".into(),
        "1e400".into(),
        "01".into(),
        "".into(),
        " 1 ".into(),
        "[1,]".into(),
        "{\"a\":1,\"a\":2}".into(),
        "18446744073709551616".into(),
        r#""\\u0000""#.into(),
        r#""\u0000""#.into(),
        r#""\\\u0000""#.into(),
        r#""\ud800""#.into(),
        "\"\u{1}\"".into(),
        "\"[[[[\"".into(),
        nested(100),
        nested(101),
        nested(5000),
        format!("[{}]", nested(3)),
        format!("[{}]", vec!["[[1]]"; 300].join(",")),
        text(PAYLOAD_LIMIT),
        text(PAYLOAD_LIMIT + 1),
        "NaN".into(),
        "'a'".into(),
    ];
    for payload in &payloads {
        agree(&mut client, &paid(payload)).await;
    }
    let long = |n: usize| "ä".repeat(n);
    let (key, too_long_key) = (long(KEY_LIMIT), long(KEY_LIMIT + 1));
    let (tenant, too_long_tenant) = (long(TENANT_LIMIT), long(TENANT_LIMIT + 1));
    let (name, too_long_name) = ("a".repeat(100), "a".repeat(101));
    let envelopes = [
        Envelope {
            key: Some(&key),
            ..paid("1")
        },
        Envelope {
            key: Some(&too_long_key),
            ..paid("1")
        },
        Envelope {
            key: Some(""),
            ..paid("1")
        },
        Envelope {
            key: Some("a\nb"),
            ..paid("1")
        },
        Envelope {
            dedup: Some(&too_long_key),
            ..paid("1")
        },
        Envelope {
            tenant: &tenant,
            ..paid("1")
        },
        Envelope {
            tenant: &too_long_tenant,
            ..paid("1")
        },
        Envelope {
            tenant: "a\tb",
            ..paid("1")
        },
        Envelope {
            name: &name,
            ..paid("1")
        },
        Envelope {
            name: &too_long_name,
            ..paid("1")
        },
        Envelope {
            name: "",
            ..paid("1")
        },
        Envelope {
            name: "Paid",
            ..paid("1")
        },
        Envelope {
            name: "paid\n",
            ..paid("1")
        },
        Envelope {
            name: "a.b_c/d-1",
            ..paid("1")
        },
        Envelope {
            version: 0,
            ..paid("1")
        },
        Envelope {
            version: 32_767,
            ..paid("1")
        },
        Envelope {
            version: 32_768,
            ..paid("1")
        },
        Envelope {
            id: Some(Uuid::new_v4()),
            ..paid("1")
        },
        Envelope {
            id: Some(Uuid::now_v7()),
            ..paid("1")
        },
    ];
    for envelope in envelopes {
        agree(&mut client, &envelope).await;
    }
    let long_token = format!("{}/x", "a".repeat(81));
    for content_type in [
        "application/json",
        "application/json; charset=utf-8",
        "application/problem+json",
        "text/plain",
        "text/plain ; a=b",
        "text",
        "a/b/c",
        "Text/plain",
        "",
        "text/plain; ä",
        "text/plain;\n",
        "application/octet-stream",
        " text/plain",
        "text /plain",
        &long_token,
    ] {
        for bytes in [&b"1"[..], b"\xff", b"{"] {
            agree(
                &mut client,
                &Envelope::new(
                    "scan",
                    1,
                    Body::Bytes {
                        bytes,
                        content_type,
                    },
                ),
            )
            .await;
        }
    }
}

async fn agree(client: &mut tokio_postgres::Client, envelope: &Envelope<'_>) {
    const SQL: &str = "select e.id::text from outlast.emit(type => $1, payload => $2::text, key => $3, tenant => $4, dedup => $5, \
        version => $6::text::int, event_id => $7::text::uuid, bytes => $8, content_type => $9) e";
    let mut tx = client.transaction().await.unwrap();
    let ours = emit(&mut tx, envelope).await.map(drop);
    tx.rollback().await.unwrap();
    let mut tx = client.transaction().await.unwrap();
    let (json, bytes, content_type) = match envelope.body {
        Body::Json(json) => (Some(json), None, "application/json"),
        Body::Bytes {
            bytes,
            content_type,
        } => (None, Some(bytes), content_type),
    };
    let (version, id) = (
        envelope.version.to_string(),
        envelope.id.map(|id| id.to_string()),
    );
    let args = [
        envelope.name.into(),
        json.into(),
        envelope.key.into(),
        envelope.tenant.into(),
        envelope.dedup.into(),
        version.as_str().into(),
        id.as_deref().into(),
        Value::Bytes(bytes),
        content_type.into(),
    ];
    let theirs = tx.call(SQL, &args).await.map(drop);
    let kind = |result: &Result<(), Error>| match result {
        Ok(()) => "taken",
        Err(Error::TooLarge { .. }) => "too large",
        Err(Error::BadName(_)) => "bad name",
        Err(Error::BadPayload(_)) => "bad payload",
        Err(Error::BadId(_)) => "bad id",
        Err(other) => panic!("{envelope:?}: {other:?}"),
    };
    let shown = format!("{envelope:?}");
    let shown: String = shown.chars().take(300).collect();
    assert_eq!(
        kind(&ours),
        kind(&theirs),
        "{shown}\n ours: {ours:?}\n theirs: {theirs:?}"
    );
}

#[tokio::test]
async fn many_events_keep_their_order_their_keys_and_every_byte() {
    let db = database().await;
    let watcher = client(db.url()).await;
    let odd = [
        r#"{"a":"\\\"{},\n"}"#,
        "null",
        "\"NULL\"",
        "\"\"",
        "[1, 2 ]",
        "\"ä😀'\"",
    ];
    let events: Vec<_> = (0..2_500)
        .map(|n| {
            (
                odd[n % odd.len()].to_owned(),
                (n % 3 > 0).then(|| format!("k\"\\{n}")),
            )
        })
        .collect();
    let envelopes = Envelopes {
        schema: Schema::DEFAULT,
        name: "paid",
        version: 2,
        events: events.clone(),
        tenant: "acme",
        source: None,
        actor: Some("jane"),
        correlation_id: None,
        causation_id: None,
        traceparent: None,
    };
    let pool = sqlx_pool(db.url(), 1).await;
    let mut tx = pool.begin().await.unwrap();
    let accepted = emit_all(&mut tx, &envelopes).await.unwrap();
    let none = Envelopes {
        events: Vec::new(),
        ..envelopes.clone()
    };
    assert_eq!(emit_all(&mut tx, &none).await.unwrap(), []);
    tx.commit().await.unwrap();

    let rows = watcher.query(
        "select id, convert_from(payload, 'UTF8'), key from outlast.event order by log_id",
        &[],
    );
    let rows = rows.await.unwrap();
    let stored: Vec<(String, Option<String>)> =
        rows.iter().map(|row| (row.get(1), row.get(2))).collect();
    assert_eq!(stored, events);
    let ids: Vec<Uuid> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(
        ids,
        accepted
            .iter()
            .map(|accepted| accepted.id)
            .collect::<Vec<_>>()
    );
    assert!(accepted.iter().all(|one| one.xid() == accepted[0].xid()));
}

#[tokio::test]
async fn one_bad_event_among_many_is_found_before_the_first_is_written() {
    let db = database().await;
    let mut client = client(db.url()).await;
    let mut events = vec![("1".to_owned(), None); 1_500];
    events.push((r#""\u0000""#.to_owned(), None));
    let envelopes = Envelopes {
        schema: Schema::DEFAULT,
        name: "paid",
        version: 1,
        events,
        tenant: "",
        source: None,
        actor: None,
        correlation_id: None,
        causation_id: None,
        traceparent: None,
    };
    let mut tx = client.transaction().await.unwrap();
    assert!(matches!(
        emit_all(&mut tx, &envelopes).await,
        Err(Error::BadPayload(_))
    ));
    assert_eq!(
        sql(&mut tx, "select count(*)::text from outlast.event")
            .await
            .as_deref(),
        Some("0")
    );
}

#[tokio::test]
async fn a_bare_connection_without_a_transaction_is_refused() {
    use diesel_async::{AsyncConnection, AsyncPgConnection};
    let db = database().await;
    let mut new = sqlx_pool(db.url(), 1).await.acquire().await.unwrap();
    let mut old = drivers::sqlx_0_8_pool(db.url(), 1)
        .await
        .acquire()
        .await
        .unwrap();
    let mut diesel = AsyncPgConnection::establish(db.url()).await.unwrap();
    let bare: [&mut dyn Tx; 3] = [&mut *new, &mut *old, &mut diesel];
    for connection in bare {
        let refused = emit(connection, &paid("1")).await;
        assert!(
            matches!(refused, Err(Error::NoTransaction)),
            "{}",
            shown(&refused)
        );
    }
    let watcher = client(db.url()).await;
    assert_eq!(
        one(&watcher, "select count(*)::text from outlast.event")
            .await
            .as_deref(),
        Some("0")
    );
}

#[tokio::test]
async fn a_database_without_the_schema_says_to_migrate() {
    let db = pg::empty().await;
    in_every_driver(db.url(), false, async |driver, tx| {
        let refused = emit(tx, &paid("1")).await.unwrap_err();
        assert!(
            matches!(refused, Error::NotMigrated { found: 0, .. }),
            "{driver}: {refused:?}"
        );
        assert!(
            refused
                .to_string()
                .contains("run `outlast migrate` (OUT-0002)"),
            "{driver}: {refused}"
        );
    })
    .await;
}
