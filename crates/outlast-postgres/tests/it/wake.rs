//! The setting `wake`: what an emit costs the others, and that no sleeper is left asleep.

use std::time::Duration;

use outlast_postgres::{
    connect::{self, Target},
    migrate,
    schema::Schema,
    setting::{self, Values},
};
use outlast_testkit::pg::{self, Database};
use tokio::sync::mpsc;
use tokio_postgres::{Client, Notification};

use crate::sql;

const LIE_DOWN: &str = "select pg_try_advisory_lock(outlast._wake_lock())";
const GET_UP: &str = "select pg_advisory_unlock(outlast._wake_lock())";

async fn woken_by(way: &str, sql: &mut Client) {
    let mut wanted = Values::default();
    wanted.set("wake", way).unwrap();
    let shown = setting::plan(sql, Schema::DEFAULT, &wanted).await.unwrap();
    setting::apply(sql, Schema::DEFAULT, &wanted, &shown)
        .await
        .unwrap();
}

async fn yes(client: &Client, question: &str) -> bool {
    client.query_one(question, &[]).await.unwrap().get(0)
}

/// Somebody who listens.
struct Ear {
    client: Client,
    heard: mpsc::Receiver<Notification>,
}

impl Ear {
    async fn new(database: &Database) -> Self {
        let target = Target::parse(database.url()).unwrap();
        let (client, heard) = connect::listen(&target).await.unwrap();
        client.batch_execute("listen outlast_wake").await.unwrap();
        Self { client, heard }
    }

    /// How many notifications of others came before now.
    async fn count(&mut self) -> usize {
        // They come in the order of their commits.
        self.client
            .batch_execute("notify outlast_wake, 'end'")
            .await
            .unwrap();
        let mut count = 0;
        loop {
            let next = tokio::time::timeout(Duration::from_secs(20), self.heard.recv());
            match next.await.expect("the end is heard").expect("it listens") {
                told if told.payload() == "end" => return count,
                _ => count += 1,
            }
        }
    }
}

#[tokio::test]
async fn an_emit_notifies_while_a_reader_sleeps_and_never_else() {
    let database = pg::outlast().await;
    let (mut writer, reader) = (database.connect().await, database.connect().await);
    let mut ear = Ear::new(&database).await;
    for (way, asleep, expected) in [
        ("poll", false, 0),
        ("poll", true, 0),
        // Nobody sleeps: no engine runs, or it is awake.
        ("notify", false, 0),
        ("notify", true, 3),
    ] {
        woken_by(way, &mut writer).await;
        if asleep {
            assert!(yes(&reader, LIE_DOWN).await);
        }
        sql::emit(&writer, "a", None).await;
        sql::run(
            &writer,
            "select count(*) from outlast.emit_all('a', '{1,2,3}')",
        )
        .await;
        // However many a transaction emits, it is one; one that is rolled back is none.
        sql::run(&writer, "begin; select outlast.emit('a', '1'::text); select outlast.emit('a', '2'::text); commit").await;
        sql::run(
            &writer,
            "begin; select outlast.emit('a', '3'::text); rollback",
        )
        .await;
        assert_eq!(ear.count().await, expected, "{way}, asleep: {asleep}");
        if asleep {
            assert!(yes(&reader, GET_UP).await);
        }
    }
}

#[tokio::test]
async fn no_reader_falls_asleep_while_somebody_who_emitted_is_under_way() {
    let database = pg::outlast().await;
    let (mut writer, reader) = (database.connect().await, database.connect().await);
    woken_by("notify", &mut writer).await;
    for end in ["commit", "rollback"] {
        sql::run(&writer, "begin").await;
        sql::emit(&writer, "a", None).await;
        assert!(!yes(&reader, LIE_DOWN).await, "before {end}");
        sql::run(&writer, end).await;
        assert!(yes(&reader, LIE_DOWN).await, "after {end}");
        assert!(yes(&reader, GET_UP).await);
    }
}

#[tokio::test]
async fn a_transaction_that_woke_somebody_cannot_be_prepared_hence_poll() {
    let database = pg::outlast().await;
    let (mut writer, reader) = (database.connect().await, database.connect().await);
    assert!(yes(&reader, LIE_DOWN).await);
    for (way, prepared) in [("poll", true), ("notify", false)] {
        woken_by(way, &mut writer).await;
        sql::run(&writer, "begin").await;
        sql::emit(&writer, "a", None).await;
        let answer = writer.batch_execute("prepare transaction 'emitted'").await;
        assert_eq!(answer.is_ok(), prepared, "{way}: {answer:?}");
        sql::run(
            &writer,
            if prepared {
                "rollback prepared 'emitted'"
            } else {
                "rollback"
            },
        )
        .await;
    }
}

#[tokio::test]
async fn migrate_keeps_what_the_settings_have_chosen() {
    let database = pg::outlast().await;
    let mut sql = database.connect().await;
    let text =
        "select prosrc like '%pg_notify%' from pg_proc where oid = 'outlast._woken'::regproc";
    assert!(!yes(&sql, text).await);
    woken_by("notify", &mut sql).await;
    assert!(yes(&sql, text).await);
    // As if the functions were of another release.
    sql::run(&sql, "delete from outlast._functions").await;
    assert!(migrate::run(&mut sql, |_| {}).await.unwrap().functions);
    assert!(yes(&sql, text).await);
    woken_by("poll", &mut sql).await;
    assert!(!yes(&sql, text).await);
}

/// What a look that waits has seen: the last id, and whether an event, a job or a mark above the one before can be seen.
async fn awaited(client: &Client, last: i64, most_ms: i32) -> (i64, Option<bool>) {
    let sql = "select last_id, visible from outlast._await($1, $2)";
    let row = client.query_one(sql, &[&last, &most_ms]).await.unwrap();
    (row.get(0), row.get(1))
}

async fn last_id(client: &Client) -> i64 {
    sql::one(
        client,
        "select coalesce(pg_sequence_last_value('outlast._event_id'), 0)",
        &[],
    )
    .await
}

#[tokio::test]
async fn a_look_that_waits_in_the_server_ends_with_news_with_its_time_and_with_nobodys_commit() {
    let database = pg::outlast().await;
    let (writer, looker) = (database.connect().await, database.connect().await);
    sql::emit(&writer, "a", None).await;
    let last = last_id(&writer).await;
    assert_eq!(
        awaited(&looker, last, 5).await,
        (last, None),
        "its time is over"
    );
    assert_eq!(
        awaited(&looker, last - 1, 60_000).await,
        (last, Some(true)),
        "it is there already"
    );

    // Nearly for ever: only what is emitted meanwhile ends it.
    let waiting = tokio::spawn(async move {
        let seen = awaited(&looker, last, 60_000).await;
        (looker, seen)
    });
    sql::emit(&writer, "a", None).await;
    let (looker, seen) = waiting.await.unwrap();
    assert_eq!(seen, (last + 1, Some(true)));

    // An id that is drawn and not committed is no event yet, and nobody waits for its end here.
    sql::run(&writer, "begin").await;
    sql::emit(&writer, "a", None).await;
    assert_eq!(
        awaited(&looker, last + 1, 60_000).await,
        (last + 2, Some(false))
    );
    sql::run(&writer, "commit").await;
    assert_eq!(
        awaited(&looker, last + 1, 60_000).await,
        (last + 2, Some(true))
    );
}

#[tokio::test]
async fn a_look_that_waits_knows_a_job_and_a_mark_as_soon_as_they_can_be_seen() {
    let database = pg::outlast().await;
    let (writer, looker) = (database.connect().await, database.connect().await);
    // Of jobs only those count that were enqueued just now, however long this test takes.
    let clock = "create or replace function outlast.clock() returns timestamptz language sql volatile as $$ select timestamptz '2031-01-01' $$";
    sql::run(&writer, clock).await;
    for intent in [
        "select outlast.enqueue('mail', '{}')",
        "select outlast.changed('member', '7')",
    ] {
        let last = last_id(&writer).await;
        sql::run(&writer, "begin").await;
        sql::run(&writer, intent).await;
        let (_, visible) = awaited(&looker, last, 60_000).await;
        assert_eq!(visible, Some(false), "{intent} is not committed");
        sql::run(&writer, "commit").await;
        let (_, visible) = awaited(&looker, last, 60_000).await;
        assert_eq!(visible, Some(true), "{intent}");
        sql::run(&writer, "delete from outlast._job_ready").await;
    }
}
