//! The look of the poller: whatever commits is news at the next look, and other work is none, nor is an id that was drawn.

use outlast_postgres::watch::{News, Watch};
use outlast_postgres::{cluster::Cluster, migrate};
use tokio_postgres::{Client, NoTls};

use crate::sql;

async fn connect(server: &Cluster) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.socket_url("postgres"), NoTls)
        .await
        .expect("connects");
    tokio::spawn(connection);
    client
}

async fn look(client: &Client, watch: &mut Watch) -> bool {
    let rows = client
        .query(Watch::LOOK, &[&watch.last()])
        .await
        .expect("looks");
    match watch.news(&rows).expect("is a look") {
        News::None => false,
        News::Some => true,
        News::Above(above) => sql::one(client, Watch::VISIBLE, &[&above]).await,
    }
}

/// What may happen between two steps of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meanwhile {
    Look,
    /// A transaction of somebody else comes and goes.
    Other,
}

/// All rows of up to three such things.
fn meanwhiles() -> Vec<Vec<Meanwhile>> {
    let mut all = vec![vec![]];
    for n in 0..3 {
        let longest: Vec<_> = all
            .iter()
            .filter(|row: &&Vec<_>| row.len() == n)
            .cloned()
            .collect();
        for row in longest {
            for next in [Meanwhile::Look, Meanwhile::Other] {
                all.push([&row[..], &[next]].concat());
            }
        }
    }
    all
}

/// A server of its own: somebody else's transactions would help.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_commits_is_news_at_the_next_look_and_idle_is_quiet() {
    let server = outlast_testkit::pg::cluster()
        .start()
        .await
        .expect("a server");
    let mut client = connect(&server).await;
    migrate::run(&mut client, |_| ()).await.expect("migrates");
    let (writer, other, looker) = (
        connect(&server).await,
        connect(&server).await,
        connect(&server).await,
    );

    let mut missed = Vec::new();
    for before in meanwhiles() {
        for after in meanwhiles() {
            let mut watch = Watch::default();
            while look(&looker, &mut watch).await {}
            sql::run(&writer, "begin; select pg_current_xact_id()").await;
            let play = async |meanwhile: &[Meanwhile], watch: &mut Watch| {
                for one in meanwhile {
                    match one {
                        Meanwhile::Look => {
                            look(&looker, watch).await;
                        }
                        Meanwhile::Other => sql::run(&other, "select pg_current_xact_id()").await,
                    }
                }
            };
            play(&before, &mut watch).await;
            sql::emit(&writer, "a", None).await;
            if before.contains(&Meanwhile::Other) || after.contains(&Meanwhile::Other) {
                // The end of another one may be news by mistake.
                play(&after, &mut watch).await;
            } else {
                for _ in &after {
                    assert!(
                        !look(&looker, &mut watch).await,
                        "{before:?}, {after:?}: nothing has committed yet"
                    );
                }
            }
            sql::run(&writer, "commit").await;
            if !look(&looker, &mut watch).await {
                missed.push(format!("{before:?}, emit, {after:?}, commit"));
            }
            // Then it is quiet, whatever others do.
            look(&looker, &mut watch).await;
            for _ in 0..3 {
                sql::run(&other, "select pg_current_xact_id()").await;
                assert!(
                    !look(&looker, &mut watch).await,
                    "{before:?}, {after:?}: other work is no news"
                );
            }
        }
    }
    assert!(
        missed.is_empty(),
        "{} commits were no news:\n{}",
        missed.len(),
        missed.join("\n")
    );
}

/// Goal: what another transaction has committed meanwhile is not overlooked because of one that is open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_commits_beside_an_open_writer_is_news_at_the_next_look() {
    let server = outlast_testkit::pg::cluster()
        .start()
        .await
        .expect("a server");
    let mut client = connect(&server).await;
    migrate::run(&mut client, |_| ()).await.expect("migrates");
    let (writer, other) = (connect(&server).await, connect(&server).await);
    for looks_between in [false, true] {
        let mut watch = Watch::default();
        while look(&client, &mut watch).await {}
        sql::run(&writer, "begin").await;
        sql::emit(&writer, "a", None).await;
        if looks_between {
            assert!(!look(&client, &mut watch).await);
        }
        sql::emit(&other, "a", None).await;
        assert!(look(&client, &mut watch).await, "{looks_between}");
        sql::run(&writer, "commit").await;
        assert!(
            look(&client, &mut watch).await,
            "{looks_between}: the open one"
        );
        sql::run(&writer, "begin").await;
        sql::emit(&writer, "a", None).await;
        sql::run(&writer, "rollback").await;
        while look(&client, &mut watch).await {}
        sql::emit(&other, "a", None).await;
        assert!(
            look(&client, &mut watch).await,
            "{looks_between}: the last one"
        );
    }
}
