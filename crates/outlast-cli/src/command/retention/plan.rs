//! `outlast retention plan`.

use serde::Serialize;
use tokio_postgres::Row;

use super::size;
use crate::{args::Global, database::Database, exit::Exit, out::Table, problem::Answer};

/// Of fewer rows the size is that of pages that are nearly empty.
const JUDGED: i64 = 1000;

#[derive(Serialize)]
struct Planned<'a> {
    room: &'a str,
    consumer: Option<&'a str>,
    rows: i64,
    bytes: i64,
    bytes_each: Option<f64>,
    per_second: Option<f64>,
    kept_seconds: Option<f64>,
    rows_at_rest: Option<f64>,
    bytes_at_rest: Option<f64>,
}

impl<'a> Planned<'a> {
    fn from_row(row: &'a Row) -> Self {
        Self {
            room: row.get("room"),
            consumer: row.get("consumer"),
            rows: row.get("stored"),
            bytes: row.get("bytes"),
            bytes_each: row.get("bytes_each"),
            per_second: row.get("per_second"),
            kept_seconds: row.get("kept_s"),
            rows_at_rest: row.get("stored_at_rest"),
            bytes_at_rest: row.get("bytes_at_rest"),
        }
    }
}

pub(super) async fn run(global: &Global) -> Answer {
    let out = global.out();
    let database = Database::to_read(global).await?;
    let sql = include_str!("../../../sql/retention/plan.sql");
    let rows = database.rows("plan retention", sql, &[]).await?;
    let planned = rows.iter().map(Planned::from_row);
    if out.json {
        out.objects(planned)?;
        return Ok(Exit::Done);
    }
    const HEADINGS: [&str; 8] = [
        "ROOM",
        "CONSUMER",
        "ROWS",
        "SIZE",
        "EACH",
        "PER SECOND",
        "KEPT",
        "AT REST",
    ];
    let mut table = Table::new(HEADINGS)
        .right(["ROWS", "SIZE", "EACH", "PER SECOND", "KEPT", "AT REST"])
        .whole(["ROOM", "CONSUMER"]);
    let (mut at_rest, mut few) = (0.0, false);
    for one in planned {
        few |= one.rows < JUDGED;
        at_rest += one.bytes_at_rest.unwrap_or_default();
        let said =
            |number: Option<f64>, say: fn(f64) -> String| number.map(say).unwrap_or_default();
        table.row([
            one.room,
            one.consumer.unwrap_or_default(),
            &one.rows.to_string(),
            &size(one.bytes as f64),
            &said(one.bytes_each, |bytes| format!("{bytes:.1} B")),
            &said(one.per_second, |rate| format!("{rate:.1}")),
            &said(one.kept_seconds, |seconds| {
                format!("{:.1} d", seconds / 86400.0)
            }),
            &said(one.bytes_at_rest, size),
        ]);
    }
    out.table(&table)?;
    out.say(&format!(
        "{} at rest, if events go on at this rate and consumers keep up",
        size(at_rest)
    ))?;
    if few {
        out.say(&format!(
            "of fewer than {JUDGED} rows EACH is mostly empty pages: look again when there are more"
        ))?;
    }
    Ok(Exit::Done)
}
