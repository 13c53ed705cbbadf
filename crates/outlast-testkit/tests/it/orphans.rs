//! Nothing outlives its parent, not even one that is killed.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use outlast_postgres::cluster::Cluster;
use outlast_testkit::process::{self, Process};
use outlast_testkit::wait_for;
use rustix::process::{Pid, test_kill_process, test_kill_process_group};

use crate::cluster::folder;
use crate::{PATIENCE, connect, number};

const HOLD: &str = "OUTLAST_TEST_HOLD";

/// Not a test: the parent that the tests below kill. It is this very program, started again.
#[tokio::test]
async fn hold() {
    let Some(what) = env::var_os(HOLD) else {
        return;
    };
    let _child;
    let _cluster;
    if what == "child" {
        let child =
            Process::spawn(Command::new("sh").args(["-c", "echo $$; sleep 1000 & wait"])).unwrap();
        println!("child {}", child.line("", PATIENCE).await);
        _child = child;
    } else {
        let builder = if what == "temporary" {
            Cluster::temporary()
        } else {
            Cluster::kept(Path::new(&what))
        };
        let cluster = builder.start().await.unwrap();
        println!("folder {}", cluster.folder().display());
        println!("url {}", cluster.socket_url("postgres"));
        println!("postmaster {}", cluster.pid());
        _cluster = cluster;
    }
    std::future::pending::<()>().await;
}

fn holder(what: impl AsRef<std::ffi::OsStr>) -> Process {
    let mut me = Command::new(env::current_exe().unwrap());
    me.args(["--exact", "orphans::hold", "--nocapture"])
        .env(HOLD, what);
    Process::spawn(&mut me).unwrap()
}

/// The last word of the holder's next line of that kind.
async fn told(holder: &Process, kind: &str) -> String {
    let line = holder.line(kind, PATIENCE).await;
    line.rsplit(' ').next().unwrap().to_owned()
}

async fn is_gone(pid: &str) {
    let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
    let gone = async || test_kill_process(pid).is_err().then_some(());
    wait_for("an orphan to end", PATIENCE, gone).await;
}

#[tokio::test]
async fn a_temporary_server_ends_and_cleans_up_when_its_parent_is_killed() {
    let holder = holder("temporary");
    let folder = PathBuf::from(told(&holder, "folder").await);
    let url = told(&holder, "url").await;
    let postmaster = told(&holder, "postmaster").await;
    // A client in the middle of something does not keep it alive.
    let busy = connect(&url).await;
    let query = tokio::spawn(async move { busy.batch_execute("select pg_sleep(1000)").await });
    holder.kill();
    is_gone(&postmaster).await;
    assert!(query.await.unwrap().is_err());
    wait_for("the folder to be removed", PATIENCE, async || {
        (!folder.exists()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_kept_server_ends_when_its_parent_is_killed_and_the_next_parent_takes_over_at_once() {
    let folder = folder();
    let holder = holder(folder.path());
    let url = told(&holder, "url").await;
    let client = connect(&url).await;
    client
        .batch_execute("create table t as select 1::bigint as n")
        .await
        .unwrap();
    holder.kill();
    holder.exit(PATIENCE).await;
    let cluster = Cluster::kept(folder.path()).start().await.unwrap();
    assert_eq!(
        number(
            &connect(&cluster.socket_url("postgres")).await,
            "select n from t"
        )
        .await,
        1
    );
}

#[tokio::test]
async fn a_folder_that_another_process_uses_is_refused_with_its_pid() {
    let folder = folder();
    let holder = holder(folder.path());
    told(&holder, "postmaster").await;
    let refused = Cluster::kept(folder.path())
        .start()
        .await
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains(&format!("in use by process {}", holder.pid())),
        "{refused}"
    );
}

#[tokio::test]
async fn the_child_of_a_killed_test_is_killed_with_its_own_children() {
    let holder = holder("child");
    let child = told(&holder, "child").await;
    let group = Pid::from_raw(child.parse().unwrap()).unwrap();
    test_kill_process_group(group).unwrap();
    holder.kill();
    is_gone(&child).await;
    let gone = async || test_kill_process_group(group).is_err().then_some(());
    wait_for("the whole group to end", PATIENCE, gone).await;
}

#[tokio::test]
async fn with_postgres_gives_a_server_and_takes_it_away_again() {
    let program = process::program("outlast-testkit", "with-postgres");
    let script = r#"echo "url $OUTLAST_TEST_PG"; sleep 1000 & echo "$$ is up"; wait"#;
    let mut command = Command::new(&program);
    command
        .args(["sh", "-c", script])
        .env_remove("OUTLAST_TEST_PG");
    let wrapper = Process::spawn(&mut command).unwrap();
    let url = told(&wrapper, "url").await;
    let client = connect(&url).await;
    assert_eq!(
        number(
            &client,
            "select current_setting('max_prepared_transactions')::bigint"
        )
        .await,
        50
    );
    wrapper.terminate();
    wrapper.exit(PATIENCE).await;
    assert!(
        tokio_postgres::connect(&url, tokio_postgres::NoTls)
            .await
            .is_err()
    );

    let mut fails = Command::new(&program);
    let fails = Process::spawn(
        fails
            .args(["sh", "-c", "exit 7"])
            .env_remove("OUTLAST_TEST_PG"),
    )
    .unwrap();
    assert_eq!(fails.exit(PATIENCE).await.code(), Some(7));
}
