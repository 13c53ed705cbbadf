//! A logical copy of a database: made anew elsewhere, row by row, so that transaction ids and files are others.

use anyhow::Result;
use futures_util::{SinkExt, StreamExt, pin_mut};
use outlast_checker::facts::TABLES;
use outlast_postgres::{
    connect::{self, Target},
    migrate,
};
use tokio_postgres::Client;

use super::super::super::server::client;

/// Leaves, not what they are parts of.
const NAMES: &str = "select format('%I.%I', n.nspname, c.relname) from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.relkind = 'r' and n.nspname in ('outlast', 'drill') order by 1";
const SEQUENCES: &str =
    "select format('%I.%I', schemaname, sequencename), last_value from pg_sequences
    where schemaname = 'outlast' and last_value is not null";

/// Copies all rows of one snapshot into an empty database.
pub(super) async fn copy(from: &Client, url: &str) -> Result<()> {
    let (mut made, _driver) = connect::connect(&Target::parse(url)?).await?;
    migrate::run(&mut made, |_| ()).await?;
    made.batch_execute(TABLES).await?;
    let to = client(url).await?;
    from.batch_execute("begin isolation level repeatable read read only")
        .await?;
    let rows = from.query(NAMES, &[]).await?;
    let names: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    // Neither triggers nor references: the rows are right together, not in the order of their tables.
    to.batch_execute(&format!(
        "begin; set local session_replication_role = replica; truncate {}",
        names.join(", ")
    ))
    .await?;
    for name in &names {
        let rows = from.copy_out(&format!("copy {name} to stdout")).await?;
        let sink = to.copy_in(&format!("copy {name} from stdin")).await?;
        pin_mut!(rows, sink);
        while let Some(chunk) = rows.next().await {
            sink.feed(chunk?).await?;
        }
        sink.finish().await?;
    }
    for sequence in from.query(SEQUENCES, &[]).await? {
        let (name, last): (&str, i64) = (sequence.get(0), sequence.get(1));
        to.execute("select setval($1::text::regclass, $2)", &[&name, &last])
            .await?;
    }
    to.batch_execute("commit").await?;
    from.batch_execute("commit").await?;
    Ok(())
}
