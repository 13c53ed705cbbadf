//! A base backup by PostgreSQL's functions alone: not every server comes with pg_basebackup.

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
};

use anyhow::{Context, Result};
use outlast_postgres::cluster::Cluster;

use super::super::super::server::client;

/// What a server writes about itself while it runs.
const ITS_OWN: [&str; 2] = ["postmaster.pid", "postmaster.opts"];

/// Copies the files of a server that runs, so that one that starts from them has all that had committed by then.
pub(super) async fn backup(from: &Cluster, to: &Path, owner: (u32, u32)) -> Result<()> {
    let data = from.folder().join("data");
    let sql = client(&from.socket_url("postgres")).await?;
    let version: i32 = sql
        .query_one("select current_setting('server_version_num')::int", &[])
        .await?
        .get(0);
    let (start, stop) = match version {
        ..150_000 => (
            "pg_start_backup('drill', true, false)",
            "pg_stop_backup(false, false)",
        ),
        _ => ("pg_backup_start('drill', true)", "pg_backup_stop(false)"),
    };
    sql.batch_execute(&format!("select {start}")).await?;
    tree(&data, to, owner).context("copy the data")?;
    let label = sql
        .query_one(&format!("select labelfile from {stop}"), &[])
        .await?;
    let file = to.join("backup_label");
    fs::write(&file, label.get::<_, &str>(0))?;
    chown(&file, Some(owner.0), Some(owner.1))?;
    // Again, with what was written meanwhile.
    tree(&data.join("pg_wal"), &to.join("pg_wal"), owner).context("copy the log")
}

/// A file may go while it is looked at; one that is written meanwhile is made right by the log.
fn tree(from: &Path, to: &Path, owner: (u32, u32)) -> io::Result<()> {
    if !to.exists() {
        fs::create_dir(to)?;
        fs::set_permissions(to, fs::Permissions::from_mode(0o700))?;
        chown(to, Some(owner.0), Some(owner.1))?;
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if ITS_OWN.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        let copied = match entry.file_type()?.is_dir() {
            true => tree(&entry.path(), &target, owner),
            false => fs::copy(entry.path(), &target)
                .and_then(|_| chown(&target, Some(owner.0), Some(owner.1))),
        };
        match copied {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}
