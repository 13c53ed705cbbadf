//! Outboxes of other systems in `outlast relay status`.

use serde::Serialize;
use tokio_postgres::{Row, types::Type};

use crate::{
    database::Database,
    out::{Out, Table, text},
    problem::Answer,
};

#[derive(Serialize)]
struct Outbox<'a> {
    outbox: &'a str,
    broker: &'a str,
    table: &'a str,
    topic: &'a str,
    ordered: bool,
    state: &'a str,
    reason: Option<&'a str>,
    /// Rows that are not published yet; none where this login may not count them.
    waiting: Option<i64>,
    /// There are more than were counted.
    more: bool,
    oldest_seconds: Option<i64>,
    /// Why nothing was counted.
    problem: Option<&'a str>,
    claims: Option<i64>,
    retrying: i64,
    behind: i64,
    quarantined: i64,
    outages: i64,
    outage: Option<&'a str>,
}

impl<'a> Outbox<'a> {
    fn from_row(row: &'a Row) -> Self {
        Self {
            outbox: row.get("name"),
            broker: row.get("broker"),
            table: row.get("table"),
            topic: row.get("topic"),
            ordered: row.get("ordered"),
            state: row.get("state"),
            reason: row.get("reason"),
            waiting: row.get("waiting"),
            more: row.get("more"),
            oldest_seconds: row.get("oldest_seconds"),
            problem: row.get("problem"),
            claims: row.get("claims"),
            retrying: row.get("retrying"),
            behind: row.get("behind"),
            quarantined: row.get("quarantined"),
            outages: row.get("outages"),
            outage: row.get("outage"),
        }
    }

    fn waiting(&self) -> String {
        match (self.waiting, self.more) {
            (Some(n), true) => format!("over {n}"),
            (Some(n), false) => n.to_string(),
            (None, _) => "?".into(),
        }
    }

    /// What it is doing, and why it is not.
    fn state(&self) -> String {
        match (self.outages > 0, self.outage, self.reason, self.problem) {
            (true, why, _, _) => format!("outage: {}", text::line(why.unwrap_or("it fails"))),
            (_, _, Some(why), _) => format!("{}: {}", self.state, text::line(why)),
            (_, _, _, Some(why)) => format!("{}; not counted: {}", self.state, text::line(why)),
            _ => self.state.to_owned(),
        }
    }
}

/// Shows this one, or all; answers how many there are.
pub(super) async fn show(out: Out, database: &Database, outbox: Option<&str>) -> Answer<usize> {
    let sql = include_str!("../../../sql/relay/outboxes.sql");
    let rows = database
        .rows("look at the outboxes", sql, &[(&outbox, Type::TEXT)])
        .await?;
    let outboxes = rows.iter().map(Outbox::from_row);
    if out.json {
        out.objects(outboxes)?;
        return Ok(rows.len());
    }
    const HEADINGS: [&str; 9] = [
        "OUTBOX", "BROKER", "TABLE", "TOPIC", "WAITING", "OLDEST", "CLAIMS", "PARKED", "STATE",
    ];
    let mut table = Table::new(HEADINGS)
        .right(["WAITING", "OLDEST", "CLAIMS", "PARKED"])
        .whole(["OUTBOX"]);
    for one in outboxes {
        let quarantined = match one.quarantined {
            0 => String::new(),
            n => format!(" + {n} in quarantine"),
        };
        let oldest = one.oldest_seconds.map(|s| format!("{s} s"));
        table.row([
            one.outbox,
            one.broker,
            one.table,
            one.topic,
            &one.waiting(),
            &oldest.unwrap_or_default(),
            &one.claims.unwrap_or(0).to_string(),
            &format!("{}{quarantined}", one.retrying + one.behind),
            &one.state(),
        ]);
    }
    if !table.is_empty() {
        out.table(&table)?;
    }
    Ok(rows.len())
}
