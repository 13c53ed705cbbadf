//! A private server: made, kept, killed, refused.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use outlast_postgres::cluster::{Cluster, Error, Stop};
use outlast_testkit::wait_for;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use sqlx::Connection;
use tokio_postgres::NoTls;

use crate::{PATIENCE, connect, number, ps};

/// A folder that the server's user can reach, also when the tests run as root.
pub(crate) fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

async fn shown(cluster: &Cluster, setting: &str) -> String {
    let client = connect(&cluster.socket_url("postgres")).await;
    client
        .query_one(&format!("show {setting}"), &[])
        .await
        .unwrap()
        .get(0)
}

#[tokio::test]
async fn a_kept_cluster_keeps_data_password_and_port() {
    let folder = folder();
    let cluster = Cluster::kept(folder.path().join("dev"))
        .start()
        .await
        .unwrap();
    let url = cluster.url("postgres");
    connect(&url)
        .await
        .batch_execute("create table kept as select 1::bigint as n")
        .await
        .unwrap();
    cluster.stop(Stop::Fast).await.unwrap();
    assert!(!cluster.is_running());
    drop(cluster);

    let cluster = Cluster::kept(folder.path().join("dev"))
        .start()
        .await
        .unwrap();
    assert_eq!(cluster.url("postgres"), url);
    assert_eq!(number(&connect(&url).await, "select n from kept").await, 1);
}

#[tokio::test]
async fn what_was_committed_survives_a_kill_and_an_immediate_stop() {
    let cluster = Cluster::temporary().start().await.unwrap();
    let url = cluster.socket_url("postgres");
    connect(&url)
        .await
        .batch_execute("create table t (n bigint)")
        .await
        .unwrap();
    for round in 1..=2 {
        let mut client = connect(&url).await;
        client
            .batch_execute("insert into t values (1)")
            .await
            .unwrap();
        let open = client.transaction().await.unwrap();
        open.batch_execute("insert into t values (2)")
            .await
            .unwrap();
        let before = cluster.pid();
        if round == 1 {
            cluster.kill().await.unwrap();
        } else {
            cluster.stop(Stop::Immediate).await.unwrap();
        }
        assert!(!cluster.is_running());
        cluster.start().await.unwrap();
        assert_ne!(cluster.pid(), before);
        assert_eq!(
            number(&connect(&url).await, "select count(*) from t where n = 1").await,
            round
        );
        assert_eq!(
            number(&connect(&url).await, "select count(*) from t where n = 2").await,
            0
        );
    }
    cluster.restart(Stop::Fast).await.unwrap();
    assert_eq!(
        number(&connect(&url).await, "select count(*) from t").await,
        2
    );
}

#[tokio::test]
async fn it_is_durable_unless_told_otherwise() {
    let cluster = Cluster::temporary()
        .set("max_connections", "17")
        .start()
        .await
        .unwrap();
    for setting in ["fsync", "synchronous_commit", "full_page_writes"] {
        assert_eq!(shown(&cluster, setting).await, "on");
    }
    assert_eq!(shown(&cluster, "max_connections").await, "17");
    drop(cluster);
    let cluster = Cluster::temporary()
        .set("fsync", "off")
        .start()
        .await
        .unwrap();
    assert_eq!(shown(&cluster, "fsync").await, "off");
}

#[tokio::test]
async fn tcp_asks_for_the_password_and_the_socket_is_behind_a_closed_door() {
    let cluster = Cluster::temporary().start().await.unwrap();
    connect(&cluster.url("postgres")).await;
    connect(&cluster.socket_url("postgres")).await;
    let without = format!(
        "postgres://postgres:wrong@127.0.0.1:{}/postgres",
        cluster.port()
    );
    assert!(tokio_postgres::connect(&without, NoTls).await.is_err());
    let socket = cluster.socket();
    let door = fs::metadata(socket.parent().unwrap()).unwrap();
    assert_eq!(door.mode() & 0o777, 0o700);
    let password = fs::metadata(cluster.folder().join("password")).unwrap();
    assert_eq!(password.mode() & 0o777, 0o600);
}

#[tokio::test]
async fn every_driver_understands_both_connection_strings() {
    let cluster = Cluster::temporary().start().await.unwrap();
    connect(&cluster.url("postgres"))
        .await
        .batch_execute("create database \"odd name?\"")
        .await
        .unwrap();
    for url in [cluster.url("odd name?"), cluster.socket_url("odd name?")] {
        let asked = "select current_database()::text";
        let row = connect(&url).await.query_one(asked, &[]).await.unwrap();
        assert_eq!(row.get::<_, String>(0), "odd name?");
        let mut sqlx = sqlx::PgConnection::connect(&url).await.unwrap();
        let name: String = sqlx::query_scalar(asked)
            .fetch_one(&mut sqlx)
            .await
            .unwrap();
        assert_eq!(name, "odd name?");
        let psql = Command::new(cluster.installation().program("psql"))
            .args([&url, "-Atc", asked])
            .output()
            .unwrap();
        assert_eq!(
            String::from_utf8(psql.stdout).unwrap().trim(),
            "odd name?",
            "{url}"
        );
    }
}

#[tokio::test]
async fn a_second_start_on_the_same_folder_is_refused_and_does_no_harm() {
    let folder = folder();
    let (one, two) = tokio::join!(
        Cluster::kept(folder.path()).start(),
        Cluster::kept(folder.path()).start()
    );
    let (cluster, refused) = match (one, two) {
        (Ok(cluster), Err(refused)) | (Err(refused), Ok(cluster)) => (cluster, refused),
        both => panic!("exactly one may start: {both:?}"),
    };
    assert!(matches!(refused, Error::InUse { .. }), "{refused}");
    let refused = Cluster::kept(folder.path())
        .fresh()
        .start()
        .await
        .unwrap_err();
    assert!(
        refused
            .to_string()
            .contains(&format!("in use by process {}", std::process::id())),
        "{refused}"
    );
    connect(&cluster.url("postgres")).await;
}

#[tokio::test]
async fn a_folder_with_other_things_in_it_is_left_alone() {
    let folder = folder();
    fs::write(folder.path().join("thesis.txt"), "years of work").unwrap();
    for builder in [
        Cluster::kept(folder.path()),
        Cluster::kept(folder.path()).fresh(),
    ] {
        let refused = builder.start().await.unwrap_err();
        assert!(matches!(refused, Error::NotOurs { .. }), "{refused}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn fresh_starts_over_and_so_does_an_initdb_that_was_cut_short() {
    let folder = folder();
    let cluster = Cluster::kept(folder.path()).start().await.unwrap();
    connect(&cluster.url("postgres"))
        .await
        .batch_execute("create table old ()")
        .await
        .unwrap();
    drop(cluster);
    let cluster = Cluster::kept(folder.path()).fresh().start().await.unwrap();
    let tables = "select count(*) from pg_tables where tablename = 'old'";
    assert_eq!(
        number(&connect(&cluster.url("postgres")).await, tables).await,
        0
    );
    drop(cluster);

    fs::rename(folder.path().join("data"), folder.path().join("data.new")).unwrap();
    fs::remove_file(folder.path().join("data.new/PG_VERSION")).unwrap();
    let cluster = Cluster::kept(folder.path()).start().await.unwrap();
    assert!(!cluster.folder().join("data.new").exists());
}

#[tokio::test]
async fn a_server_that_ends_without_our_doing_is_noticed_and_starts_again() {
    let cluster = Cluster::temporary().start().await.unwrap();
    let stopped = || async { (!cluster.is_running()).then_some(()) };
    // Somebody kills the postmaster.
    kill_process(pid(cluster.pid()), Signal::KILL).unwrap();
    wait_for("the death to be noticed", PATIENCE, stopped).await;
    cluster.start().await.unwrap();
    // Somebody asks the shell above it to end: it takes the server along.
    let shell = ps(cluster.pid(), "ppid").parse().unwrap();
    kill_process(pid(shell), Signal::TERM).unwrap();
    wait_for("the server to follow its shell", PATIENCE, stopped).await;
    assert!(test_kill_process(pid(cluster.pid())).is_err());
    cluster.start().await.unwrap();
    connect(&cluster.socket_url("postgres")).await;
}

fn pid(number: u32) -> Pid {
    Pid::from_raw(number.try_into().unwrap()).unwrap()
}

#[tokio::test]
async fn a_temporary_cluster_leaves_nothing_behind() {
    let cluster = Cluster::temporary().start().await.unwrap();
    let (root, socket) = (cluster.folder().to_owned(), cluster.socket());
    assert!(root.exists() && socket.exists());
    drop(cluster);
    assert!(!root.exists() && !socket.exists());
}

#[tokio::test]
async fn a_port_that_somebody_took_is_replaced_unless_it_was_asked_for() {
    let folder = folder();
    let cluster = Cluster::kept(folder.path()).start().await.unwrap();
    let port = cluster.port();
    drop(cluster);
    let squatter = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let cluster = Cluster::kept(folder.path()).start().await.unwrap();
    assert_ne!(cluster.port(), port);
    drop(cluster);
    let refused = Cluster::kept(folder.path())
        .port(port)
        .start()
        .await
        .unwrap_err();
    assert!(
        refused.to_string().contains("Address already in use"),
        "{refused}"
    );
    drop(squatter);
    let cluster = Cluster::kept(folder.path())
        .port(port)
        .start()
        .await
        .unwrap();
    assert_eq!(cluster.port(), port);
}

#[tokio::test]
async fn what_the_server_objects_to_is_in_the_error() {
    let refused = Cluster::temporary()
        .set("max_connections", "many")
        .start()
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("max_connections"), "{refused}");
}

#[tokio::test]
async fn data_of_another_version_is_not_touched() {
    let folder = folder();
    drop(Cluster::kept(folder.path()).start().await.unwrap());
    fs::write(folder.path().join("data/PG_VERSION"), "9\n").unwrap();
    let refused = Cluster::kept(folder.path()).start().await.unwrap_err();
    assert!(
        matches!(refused, Error::OtherVersion { major: 9, .. }),
        "{refused}"
    );
    assert!(
        refused.to_string().contains("written by PostgreSQL 9"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_folder_too_deep_for_a_socket_gets_its_socket_elsewhere() {
    let folder = folder();
    let deep = folder.path().join("deep".repeat(20)).join("down");
    let cluster = Cluster::kept(&deep).start().await.unwrap();
    connect(&cluster.socket_url("postgres")).await;
    assert!(!cluster.socket().starts_with(&deep));
    let socket = cluster.socket().parent().unwrap().to_owned();
    drop(cluster);
    fs::remove_dir_all(socket).unwrap();
}

#[tokio::test]
async fn as_root_it_runs_as_another_user_who_must_be_able_to_get_there() {
    let folder = folder();
    let me = fs::metadata(folder.path()).unwrap().uid();
    let cluster = Cluster::kept(folder.path().join("dev"))
        .start()
        .await
        .unwrap();
    let server = fs::metadata(cluster.socket()).unwrap().uid();
    if me != 0 {
        assert_eq!(server, me);
        return;
    }
    assert_ne!(server, 0);
    drop(cluster);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let refused = Cluster::kept(folder.path().join("dev"))
        .start()
        .await
        .unwrap_err();
    assert!(
        matches!(&refused, Error::Unreachable { blocked, .. } if blocked == folder.path()),
        "{refused}"
    );
    let refused = Cluster::kept(folder.path().join("new"))
        .start()
        .await
        .unwrap_err();
    assert!(matches!(refused, Error::Unreachable { .. }), "{refused}");
    assert!(!folder.path().join("new").exists());
}
