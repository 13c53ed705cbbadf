//! The test kit against real servers and real processes.

mod cluster;
mod conformance;
mod evidence;
mod folded;
mod orphans;
mod pg;
mod process;
mod provider;
mod proxy;

use std::fs;
use std::process::Command;
use std::time::Duration;

use tokio_postgres::{Client, NoTls};

/// Long enough for a loaded machine; nothing waits so long when all is well.
const PATIENCE: Duration = Duration::from_secs(60);

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls)
        .await
        .expect("a connection");
    tokio::spawn(connection);
    client
}

async fn number(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.expect("a number").get(0)
}

/// One word about a process: `state` or `ppid`. A small Debian has no ps, a Mac has no /proc.
fn ps(pid: u32, word: &str) -> String {
    if let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) {
        // pid (name) state ppid ..: the name may have anything in it.
        let mut words = stat.rsplit(") ").next().unwrap_or_default().split(' ');
        return words
            .nth(usize::from(word == "ppid"))
            .unwrap_or_default()
            .to_owned();
    }
    let asked = Command::new("ps")
        .args(["-o", &format!("{word}="), "-p", &pid.to_string()])
        .output();
    String::from_utf8_lossy(&asked.expect("ps runs").stdout)
        .trim()
        .to_owned()
}
