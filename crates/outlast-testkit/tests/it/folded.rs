//! What the checker takes for a completion: a row, a bit, or for a while both.

use outlast_checker::{Consumer, Effects, Expect, Handles, facts::TABLES};
use outlast_testkit::{pg, wait_for};
use tokio_postgres::Client;

use crate::{PATIENCE, number};

/// Emits and completes, all but the last so many.
async fn work(client: &Client, events: i64, open: i64) {
    let written = "insert into drill.business (n, event_id, digest)
        select g.n, e.id, encode(sha256(convert_to('{\"n\":' || g.n || '}', 'UTF8')), 'hex')
        from generate_series(1, $1::bigint) g (n) cross join lateral outlast.emit('did', '{\"n\":' || g.n || '}') e";
    client.execute(written, &[&events]).await.expect("emits");
    let claimed = client
        .query(
            "select token, id from outlast.claim('event', 'ledger', 1000)",
            &[],
        )
        .await
        .expect("claims");
    assert_eq!(claimed.len() as i64, events);
    for row in claimed.iter().take((events - open) as usize) {
        let (token, id): (uuid::Uuid, uuid::Uuid) = (row.get(0), row.get(1));
        client
            .execute("select outlast.complete($1, $2)", &[&token, &id])
            .await
            .expect("completes");
    }
}

#[tokio::test]
async fn a_completion_is_one_whether_it_is_a_row_or_a_bit_or_both() {
    let database = pg::outlast().await;
    let client = database.connect().await;
    client.batch_execute(TABLES).await.expect("its tables");
    client
        .batch_execute("select outlast.register('ledger', array['did'])")
        .await
        .expect("registers");
    work(&client, 60, 0).await;
    let ends = "select count(*) from outlast._lease l cross join lateral outlast._finish(array[l.token]) where l.room = 'batch'";
    assert_eq!(number(&client, ends).await, 1);
    work(&client, 20, 1).await;
    let folder = tempfile::tempdir().expect("a folder");
    let expect = Expect {
        consumers: vec![Consumer {
            name: "ledger".into(),
            effects: Effects::Inside,
            handles: Handles::Intents,
        }],
        durable: true,
        fan_out: None,
        quarantined: Default::default(),
        given_up: Default::default(),
        rewound: false,
    };
    // One event is not done, and its batch is in flight.
    let seen = async |state: &str| {
        let open = outlast_checker::open_work(&client, 1).await;
        assert_eq!(open.expect("counts"), 2, "{state}");
        let (facts, _) = outlast_checker::check(&client, folder.path(), &expect)
            .await
            .expect("judges");
        assert_eq!(facts.seals.len(), 79, "{state}");
    };
    seen("rows").await;
    client
        .batch_execute(
            "create or replace function outlast.clock() returns timestamptz language sql volatile as
               $$ select clock_timestamp() + interval '4 days' $$",
        )
        .await
        .expect("time goes by");
    let folds = "select coalesce(sum(f.completed), 0)::bigint from outlast._consumer c cross join lateral outlast._fold(c.id) f";
    // Whoever runs on this server, in any database, may own an id of the range until he has ended.
    let folded = wait_for("the ended batch to be folded", PATIENCE, async || {
        Some(number(&client, folds).await).filter(|n| *n > 0)
    });
    assert_eq!(folded.await, 60);
    seen("both").await;
    client
        .batch_execute(
            "delete from outlast._processed_event p using outlast._event e, outlast._folded f
             where e.event_id = p.event_id and e.id between f.base and f.base + 8191 and get_bit(f.done, (e.id - f.base)::int) = 1",
        )
        .await
        .expect("their leaf is emptied");
    assert_eq!(
        number(&client, "select count(*) from outlast._processed_event").await,
        19
    );
    seen("bits").await;
}
