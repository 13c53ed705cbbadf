//! Bytes at rest: what an event, a completion and a folded completion take, heap and indexes apart.

use anyhow::Result;
use serde::Serialize;

use super::{
    Size, history,
    scene::{Scene, Stage},
};
use crate::server::{Database, Server};

#[derive(Debug, Serialize)]
pub struct AtRest {
    pub what: String,
    pub rows: i64,
    pub heap: f64,
    pub index: f64,
}

pub async fn measure(server: &Server, size: Size) -> Result<Vec<AtRest>> {
    let rows = if size == Size::Smoke { 10_000 } else { 500_000 };
    let mut found = Vec::new();
    for (what, keys) in [("without a key", 0), ("with a key of 1,000,000", 1_000_000)] {
        let scene = Scene {
            keys,
            ..Scene::default()
        };
        let stage = Stage::build(server, "growth_rest", scene).await?;
        stage.fill(rows).await?;
        found.push(
            sized(
                &stage.database,
                &format!("an event of 200 B {what}"),
                "\\_event\\__%",
                "_event",
                rows,
            )
            .await?,
        );
    }
    let stage = Stage::build(
        server,
        "growth_rest",
        Scene {
            history: rows,
            ..Scene::default()
        },
    )
    .await?;
    let database = &stage.database;
    found.push(
        sized(
            database,
            "a completion: a row for each event and consumer",
            "\\_processed\\_event\\__%",
            "_processed_event",
            rows,
        )
        .await?,
    );
    history::fold(database).await?;
    let folded = database
        .number("select coalesce(sum(completed), 0)::bigint from outlast._folded")
        .await?;
    found.push(
        sized(
            database,
            "a folded completion",
            "\\_folded",
            "_folded",
            folded,
        )
        .await?,
    );
    server.drop("growth_rest").await?;
    Ok(found)
}

/// The tables whose names are like this, a row.
async fn sized(
    database: &Database,
    what: &str,
    like: &str,
    table: &str,
    rows: i64,
) -> Result<AtRest> {
    database
        .sql
        .batch_execute(&format!("vacuum outlast.{table}"))
        .await?;
    let row = database
        .sql
        .query_one(
            "select sum(pg_table_size(c.oid))::bigint, sum(pg_indexes_size(c.oid))::bigint
             from pg_class c where c.relnamespace = 'outlast'::regnamespace and c.relkind = 'r' and c.relname like $1
               and pg_relation_size(c.oid) > 0",
            &[&like],
        )
        .await?;
    let each = |n: Option<i64>| n.unwrap_or(0) as f64 / rows.max(1) as f64;
    let one = AtRest {
        what: what.to_owned(),
        rows,
        heap: each(row.get(0)),
        index: each(row.get(1)),
    };
    eprintln!("{what}: {:.1} B heap, {:.1} B indexes", one.heap, one.index);
    Ok(one)
}
