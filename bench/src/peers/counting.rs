//! Statements of a room, by pg_stat_statements.

use anyhow::{Context as _, Result};

use super::room::{Room, connect};
use crate::server::Server;

/// Counts the statements of the sessions that begin from now on. False where the server cannot.
pub async fn begin(server: &Server, room: &Room) -> Result<bool> {
    let admin = connect(server, "postgres").await?;
    let extension = "create extension if not exists pg_stat_statements";
    if admin.batch_execute(extension).await.is_err() {
        return Ok(false);
    }
    let name = &room.name;
    admin
        .batch_execute(&format!(
            "select pg_stat_statements_reset(); alter database {name} set compute_query_id = on; \
             alter database {name} set pg_stat_statements.track = 'top'"
        ))
        .await?;
    Ok(true)
}

/// So far. The runner's own session began before, and is not counted.
pub async fn statements(server: &Server, room: &Room) -> Result<i64> {
    const CALLS: &str = "select coalesce(sum(s.calls), 0)::bigint from pg_stat_statements s \
        join pg_database d on d.oid = s.dbid where d.datname = $1";
    let admin = connect(server, "postgres").await?;
    let row = admin.query_one(CALLS, &[&room.name]).await;
    Ok(row.context("pg_stat_statements")?.get(0))
}
