//! COMMIT through the proxy, and what becomes of it.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use outlast_testkit::pg::{self, Database};
use outlast_testkit::proxy::{Armed, Fault, Proxy, When};
use outlast_testkit::wait_for;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_postgres::{Client, Error, NoTls};

use crate::{PATIENCE, connect, number};

/// How a driver says COMMIT.
#[derive(Clone, Copy, Debug)]
enum Commit {
    Simple,
    Prepared,
}

const BOTH: [Commit; 2] = [Commit::Simple, Commit::Prepared];

async fn set_up() -> (Database, Proxy) {
    let database = pg::empty().await;
    database
        .connect()
        .await
        .batch_execute("create table t (n bigint)")
        .await
        .unwrap();
    let proxy = Proxy::before(database.url()).await;
    (database, proxy)
}

async fn insert_and_commit(client: &Client, how: Commit) -> Result<(), Error> {
    client
        .batch_execute("begin; insert into t values (1)")
        .await?;
    match how {
        Commit::Simple => client.batch_execute("COMMIT").await,
        Commit::Prepared => client.execute("commit", &[]).await.map(drop),
    }
}

/// Seen on a connection that does not go through the proxy.
async fn rows(database: &Database) -> i64 {
    number(&database.connect().await, "select count(*) from t").await
}

async fn armed(proxy: &Proxy, fault: Fault) -> (Client, Armed) {
    let client = connect(proxy.url()).await;
    let rule = proxy.arm(When::Commit, fault);
    (client, rule)
}

#[tokio::test]
async fn a_dropped_request_is_an_error_and_nothing_is_committed() {
    for how in BOTH {
        let (database, proxy) = set_up().await;
        let (client, fault) = armed(&proxy, Fault::DropRequest).await;
        insert_and_commit(&client, how).await.unwrap_err();
        fault.fired().await;
        assert_eq!(rows(&database).await, 0, "{how:?}");
        // It struck once.
        insert_and_commit(&connect(proxy.url()).await, how)
            .await
            .unwrap();
        assert_eq!(rows(&database).await, 1, "{how:?}");
    }
}

#[tokio::test]
async fn a_dropped_reply_is_an_error_although_it_is_committed() {
    for how in BOTH {
        let (database, proxy) = set_up().await;
        let (client, fault) = armed(&proxy, Fault::DropReply).await;
        insert_and_commit(&client, how).await.unwrap_err();
        assert_eq!(fault.answered().await, "COMMIT");
        assert_eq!(rows(&database).await, 1, "{how:?}");
    }
}

#[tokio::test]
async fn a_held_request_commits_when_it_is_released_also_after_its_client_is_gone() {
    for how in BOTH {
        for client_stays in [true, false] {
            let (database, proxy) = set_up().await;
            let (client, fault) = armed(&proxy, Fault::HoldRequest).await;
            let committing = tokio::spawn(async move { insert_and_commit(&client, how).await });
            fault.fired().await;
            assert_eq!(rows(&database).await, 0, "{how:?}");
            if client_stays {
                fault.release();
                committing.await.unwrap().unwrap();
            } else {
                committing.abort();
                assert!(committing.await.unwrap_err().is_cancelled());
                fault.release();
            }
            assert_eq!(fault.answered().await, "COMMIT");
            assert_eq!(rows(&database).await, 1, "{how:?}");
        }
    }
}

#[tokio::test]
async fn a_client_that_is_hung_up_on_looks_while_its_request_is_still_on_the_way() {
    for how in BOTH {
        let (database, proxy) = set_up().await;
        let (client, fault) = armed(&proxy, Fault::HoldRequest).await;
        let committing = tokio::spawn(async move { insert_and_commit(&client, how).await });
        fault.fired().await;
        fault.hang_up();
        committing.await.unwrap().unwrap_err();
        assert_eq!(rows(&database).await, 0, "{how:?}");
        fault.release();
        assert_eq!(fault.answered().await, "COMMIT");
        assert_eq!(rows(&database).await, 1, "{how:?}");
    }
}

#[tokio::test]
async fn a_held_reply_keeps_the_client_waiting_for_what_is_done_already() {
    for how in BOTH {
        let (database, proxy) = set_up().await;
        let (client, fault) = armed(&proxy, Fault::HoldReply).await;
        let mut committing = pin!(insert_and_commit(&client, how));
        tokio::select! {
            _ = &mut committing => panic!("the reply was held"),
            tag = fault.answered() => assert_eq!(tag, "COMMIT"),
        }
        assert_eq!(rows(&database).await, 1, "{how:?}");
        let early = poll_fn(|cx| Poll::Ready(committing.as_mut().poll(cx).is_ready())).await;
        assert!(!early, "{how:?}");
        fault.release();
        committing.await.unwrap();
        // And the connection is still good.
        insert_and_commit(&client, how).await.unwrap();
        assert_eq!(rows(&database).await, 2, "{how:?}");
    }
}

#[tokio::test]
async fn the_commit_of_a_failed_transaction_is_seen_to_answer_rollback() {
    let (_database, proxy) = set_up().await;
    let (client, fault) = armed(&proxy, Fault::DropReply).await;
    client.batch_execute("begin; select 1/0").await.unwrap_err();
    client.batch_execute("commit").await.unwrap_err();
    assert_eq!(fault.answered().await, "ROLLBACK");
}

#[tokio::test]
async fn a_deferred_constraint_is_seen_to_answer_with_its_sqlstate() {
    let (database, proxy) = set_up().await;
    let unique = "alter table t add unique (n) deferrable initially deferred";
    database
        .connect()
        .await
        .batch_execute(unique)
        .await
        .unwrap();
    let (client, fault) = armed(&proxy, Fault::HoldRequest).await;
    client
        .batch_execute("begin; insert into t values (1), (1)")
        .await
        .unwrap();
    let committing = tokio::spawn(async move { client.batch_execute("commit").await });
    fault.fired().await;
    fault.release();
    assert_eq!(fault.answered().await, "23505");
    assert!(
        committing
            .await
            .unwrap()
            .unwrap_err()
            .as_db_error()
            .is_some()
    );
}

#[tokio::test]
async fn statements_before_the_chosen_one_pass_and_a_dropped_rule_never_strikes() {
    let (database, proxy) = set_up().await;
    let client = connect(proxy.url()).await;
    drop(proxy.arm(When::Commit, Fault::DropRequest));
    let fault = proxy.arm_after(2, When::Commit, Fault::DropRequest);
    insert_and_commit(&client, Commit::Simple).await.unwrap();
    insert_and_commit(&client, Commit::Prepared).await.unwrap();
    assert!(!fault.has_fired());
    insert_and_commit(&client, Commit::Prepared)
        .await
        .unwrap_err();
    assert_eq!(rows(&database).await, 2);
}

#[tokio::test]
async fn a_statement_that_commits_by_itself_is_found_by_its_text() {
    let (database, proxy) = set_up().await;
    let client = connect(proxy.url()).await;
    let fault = proxy.arm(When::Contains("insert into t".into()), Fault::DropReply);
    let insert = client.prepare("insert into t values ($1)").await.unwrap();
    client.execute(&insert, &[&5_i64]).await.unwrap_err();
    assert_eq!(fault.answered().await, "INSERT 0 1");
    assert_eq!(rows(&database).await, 1);
}

#[tokio::test]
async fn a_frozen_proxy_is_silent_on_old_and_new_connections_until_it_thaws() {
    let (_database, proxy) = set_up().await;
    let client = connect(proxy.url()).await;
    proxy.freeze();
    let mut old = pin!(number(&client, "select 1::bigint"));
    let mut new = pin!(connect(proxy.url()));
    // A full conversation with the server takes far less time than this one, beside the proxy, three times.
    for _ in 0..3 {
        let beside = pg::empty();
        tokio::select! {
            _ = &mut old => panic!("nothing may pass"),
            _ = &mut new => panic!("nothing may pass"),
            _ = beside => {}
        }
    }
    proxy.thaw();
    assert_eq!(old.await, 1);
    assert_eq!(number(&new.await, "select 2::bigint").await, 2);
}

#[tokio::test]
async fn a_cut_closes_every_connection_and_new_ones_are_welcome() {
    let (_database, proxy) = set_up().await;
    let client = connect(proxy.url()).await;
    proxy.cut();
    wait_for("the client to see it", PATIENCE, async || {
        client.is_closed().then_some(())
    })
    .await;
    connect(proxy.url())
        .await
        .batch_execute("select 1")
        .await
        .unwrap();
}

#[tokio::test]
async fn everything_else_passes_unharmed() {
    let (database, proxy) = set_up().await;
    let client = connect(proxy.url()).await;
    let fault = proxy.arm(When::Commit, Fault::DropReply);
    // Many statements ahead of their answers.
    let ahead = (0..200).map(|_| number(&client, "select 3::bigint"));
    let answers = futures_util::future::join_all(ahead).await;
    assert_eq!(answers.iter().sum::<i64>(), 600);
    // Long answers.
    let long: String = client
        .query_one("select repeat('x', 5000000)", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(long.len(), 5_000_000);
    // COPY in both directions: the server ignores the Sync that the driver sends ahead of the data.
    let sink = client.copy_in("copy t from stdin").await.unwrap();
    let mut sink = pin!(sink);
    futures_util::SinkExt::send(&mut sink, &b"1\n2\n3\n"[..])
        .await
        .unwrap();
    assert_eq!(sink.finish().await.unwrap(), 3);
    let out = client.copy_out("copy t to stdout").await.unwrap();
    assert_eq!(futures_util::StreamExt::count(out).await, 3);
    // A request to cancel has a connection of its own.
    let sleeping = client.batch_execute("select pg_sleep(1000)");
    let cancel = client.cancel_token();
    let mut sleeping = pin!(sleeping);
    let until_cancelled = wait_for("the cancellation", PATIENCE, async || {
        cancel.cancel_query(NoTls).await.unwrap();
        let ended = poll_fn(|cx| Poll::Ready(sleeping.as_mut().poll(cx))).await;
        match ended {
            Poll::Ready(end) => Some(end),
            Poll::Pending => None,
        }
    });
    assert_eq!(
        until_cancelled.await.unwrap_err().code().unwrap().code(),
        "57014"
    );
    assert!(!fault.has_fired());
    // After all that the answers are still told apart.
    insert_and_commit(&client, Commit::Simple)
        .await
        .unwrap_err();
    assert_eq!(fault.answered().await, "COMMIT");
    assert_eq!(rows(&database).await, 4);
}

#[tokio::test]
async fn encryption_is_declined_because_the_proxy_must_read() {
    let (_database, proxy) = set_up().await;
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    stream
        .write_all(&[0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f])
        .await
        .unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), b'N');
}
