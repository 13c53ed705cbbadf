//! A business transaction that commits asynchronously may be lost in a crash. Then nobody must have seen its event.

use outlast_postgres::cluster::{Cluster, Stop};
use outlast_postgres::migrate;
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

use crate::house::text_of;
use crate::sql::{self, Claim};

async fn connect(server: &Cluster) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.socket_url("postgres"), NoTls)
        .await
        .expect("connects");
    tokio::spawn(connection);
    client
}

/// Commits an event asynchronously, claims it, and kills the server before it writes by itself.
/// Answers whether the event was handed out, and whether it is still there.
async fn crash(server: &Cluster, consumer: i32) -> (bool, bool) {
    let client = connect(server).await;
    sql::run(&client, "set synchronous_commit = off").await;
    let event: Uuid = sql::emit(&client, "a", None).await;
    let got = Claim::of(consumer).next(&client).await.expect("claims");
    let handed = got.iter().any(|e| e.id == event);
    server.restart(Stop::Immediate).await.expect("comes back");
    let client = connect(server).await;
    let there = sql::one(
        &client,
        "select exists (select from outlast._event where event_id = $1)",
        &[&event],
    )
    .await;
    (handed, there)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_of_an_asynchronous_commit_is_durable_before_it_is_handed_out() {
    let server = outlast_testkit::pg::cluster()
        // Nothing writes behind our back between the commit and the crash.
        .set("wal_writer_delay", "10s")
        // A commit that ends on another page of the WAL wakes the writer; images of pages would fill one each.
        .set("full_page_writes", "off")
        .set("autovacuum", "off")
        .start()
        .await
        .expect("a server");
    let mut client = connect(&server).await;
    migrate::run(&mut client, |_| ()).await.expect("migrates");
    let consumer = sql::register(&client, "c", &["a"], "now", None).await;
    for round in 0..3 {
        assert_eq!(
            crash(&server, consumer).await,
            (true, true),
            "round {round}"
        );
    }

    // Without it the event is handed out and then never was. The server may write by itself, so it gets some tries.
    let raise = "perform set_config('synchronous_commit', 'on', true);";
    for claim in ["_claim", "_claim_in_general"] {
        assert!(text_of(claim).contains(raise));
        let planted = text_of(claim).replace(raise, "null;");
        sql::run(&connect(&server).await, &planted).await;
    }
    let mut lost = false;
    for _ in 0..20 {
        lost = lost || crash(&server, consumer).await == (true, false);
    }
    assert!(lost, "the fault does not show, so this proves nothing");
}
