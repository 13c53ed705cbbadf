//! `outlast unreadable ls`.

use clap::Args;
use serde::Serialize;
use tokio_postgres::{Row, types::Type};
use uuid::Uuid;

use crate::{
    args::Global,
    database::Database,
    exit::Exit,
    out::{Table, text},
    problem::Answer,
};

#[derive(Debug, Args)]
pub(super) struct Ls {
    /// Only of this consumer
    #[arg(long, value_name = "NAME")]
    consumer: Option<String>,
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

#[derive(Serialize)]
struct Listed<'a> {
    consumer: &'a str,
    id: Uuid,
    why: &'a str,
    /// How often the same bytes came.
    seen: i64,
    broker: Option<&'a str>,
    topic: Option<&'a str>,
    broker_id: &'a str,
    first_at: &'a str,
    last_at: &'a str,
}

impl<'a> Listed<'a> {
    fn from_row(row: &'a Row) -> Self {
        Self {
            consumer: row.get("consumer"),
            id: row.get("id"),
            why: row.get("why"),
            seen: row.get("seen"),
            broker: row.get("broker"),
            topic: row.get("topic"),
            broker_id: row.get("broker_id"),
            first_at: row.get("first_at"),
            last_at: row.get("last_at"),
        }
    }
}

impl Ls {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        let out = global.out();
        let database = Database::to_read(global).await?;
        let given = [
            (&self.consumer as _, Type::TEXT),
            (&i64::from(self.limit) as _, Type::INT8),
        ];
        let sql = include_str!("../../../sql/unreadable/list.sql");
        let rows = database
            .rows("list unreadable messages", sql, &given)
            .await?;
        let listed = rows.iter().map(Listed::from_row);
        if out.json {
            out.objects(listed)?;
            return Ok(Exit::Done);
        }
        if rows.is_empty() {
            out.say("every message could be read")?;
            return Ok(Exit::Done);
        }
        let mut table = Table::new(["CONSUMER", "ID", "FIRST", "SEEN", "TOPIC", "WHY"])
            .right(["SEEN"])
            .whole(["CONSUMER", "ID"]);
        for one in listed {
            table.row([
                one.consumer,
                &one.id.to_string(),
                &text::time(one.first_at),
                &one.seen.to_string(),
                one.topic.unwrap_or_default(),
                one.why,
            ]);
        }
        out.table(&table)?;
        Ok(Exit::Done)
    }
}
