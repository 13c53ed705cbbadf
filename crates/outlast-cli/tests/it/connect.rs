//! Every way not to get in: a message that says what to do, and an exit code of its own.

use std::{
    net::TcpListener,
    os::unix::fs::{MetadataExt, chown},
};

use outlast_postgres::cluster::{Cluster, Stop};
use outlast_testkit::{
    pg,
    pooler::{Pooler, is_installed},
};

use crate::{Folder, command, execute, outlast, run};

#[tokio::test]
async fn without_a_database_it_says_how_to_name_one() {
    let ran = run(command(&["events", "ls"]), b"").await;
    ran.with(2).says("OUTLAST_DATABASE_URL").says("OUT-0008");
}

#[tokio::test]
async fn a_url_that_cannot_be_read_is_told_without_its_password() {
    for url in [
        "mysql://a:secret@h/d",
        "postgres://a:secret@h/d?sslmod=require",
        "postgres://a:%zzsecret@h/d",
    ] {
        let ran = outlast(url, &["events", "ls"]).await.with(2);
        assert!(!ran.err.contains("secret"), "{ran:#?}");
    }
}

#[tokio::test]
async fn no_server() {
    // A port that was free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|free| free.local_addr())
        .expect("a free port")
        .port();
    let url = format!("postgres://me:secret@127.0.0.1:{port}/shop");
    let ran = outlast(&url, &["events", "ls"])
        .await
        .with(3)
        .says("no server answers there")
        .says("outlast dev");
    assert!(!ran.err.contains("secret"), "{ran:#?}");
    let ran = outlast(&url, &["--json", "migrate"]).await.with(3);
    let error: serde_json::Value =
        serde_json::from_str(&ran.err).expect("one JSON document on stderr");
    assert_eq!(error["error"]["code"], "OUT-0001");
}

#[tokio::test]
async fn wrong_password_no_password_no_database_and_a_standby() {
    let folder = Folder::new();
    let cluster = Cluster::kept(folder.path())
        .start()
        .await
        .expect("a server");
    let good = cluster.url("postgres");
    outlast(&good, &["migrate"]).await.fine();

    let (user, rest) = good.split_once('@').expect("a URL with a login");
    let (bare, password) = user.rsplit_once(':').expect("a password");
    let ran = outlast(&format!("{bare}:wrong@{rest}"), &["events", "ls"])
        .await
        .with(3);
    let ran = ran.says("refuses this user or password").says("~/.pgpass");
    assert!(
        !ran.err.contains("wrong@") && !ran.err.contains(password),
        "{ran:#?}"
    );
    outlast(&format!("{bare}@{rest}"), &["events", "ls"])
        .await
        .with(3)
        .says("none was given");
    outlast(&cluster.url("shop"), &["events", "ls"])
        .await
        .with(3)
        .says("no such database");

    // The same data, started as a standby: it can be read, and nothing is written or migrated there.
    cluster.stop(Stop::Fast).await.expect("it stops");
    let signal = folder.path().join("data/standby.signal");
    std::fs::write(&signal, "").expect("the folder can be written");
    let owner = std::fs::metadata(folder.path().join("data")).expect("the data is there");
    chown(&signal, Some(owner.uid()), Some(owner.gid()))
        .expect("the file can be given to the server");
    cluster.start().await.expect("it starts");
    outlast(&good, &["events", "ls"]).await.fine();
    for args in [
        &["migrate"][..],
        &["emit", "a", "{}"],
        &["pause", "--all", "--reason", "x"],
    ] {
        outlast(&good, args)
            .await
            .with(5)
            .says("OUT-0004")
            .says("connect to the primary");
    }
    cluster.stop(Stop::Immediate).await.expect("it stops");
}

/// From the first migration to the last check, with four connections to the server and no session of one's own.
#[tokio::test(flavor = "multi_thread")]
async fn every_command_works_behind_a_transaction_pooler() {
    if !is_installed() {
        return;
    }
    let database = pg::empty().await;
    let pooler = Pooler::before(database.direct_url()).await.unwrap();
    let url = pooler.url(database.name());
    outlast(&url, &["migrate"]).await.with(0).says("functions");
    outlast(&url, &["migrate", "status"]).await.with(0);
    outlast(&url, &["emit", "booking.confirmed", r#"{"n":1}"#])
        .await
        .with(0);
    outlast(&url, &["events", "ls"])
        .await
        .with(0)
        .says("booking.confirmed");
    let sql = "select from outlast.register('billing', array['booking.confirmed'])";
    execute(&database.connect().await, sql).await;
    outlast(&url, &["pause", "billing", "--reason", "stock-taking"])
        .await
        .with(0);
    outlast(&url, &["consumers", "ls"])
        .await
        .with(0)
        .says("stock-taking");
    for command in ["incidents", "parked"] {
        outlast(&url, &[command, "ls"]).await.with(0);
    }
    outlast(&url, &["verify"]).await.with(0);
}
