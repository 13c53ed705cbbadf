//! `outlast events ls`.

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
    since::Since,
};

#[derive(Debug, Args)]
pub(super) struct Ls {
    /// Only events of this type
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Only events of this tenant ('' is the default tenant)
    #[arg(long)]
    tenant: Option<String>,
    /// Only events with this ordering key
    #[arg(long)]
    key: Option<String>,
    /// Only events emitted since: 90s, 15m, 6h, 2d ago, or a time such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME")]
    since: Option<Since>,
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

#[derive(Serialize)]
struct Listed<'a> {
    id: Uuid,
    #[serde(rename = "type")]
    kind: &'a str,
    version: i32,
    tenant: &'a str,
    key: Option<&'a str>,
    emitted_at: &'a str,
    content_type: &'a str,
    bytes: i32,
    log_id: i64,
}

impl Ls {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        let out = global.out();
        let database = Database::to_read(global).await?;
        let (at, ago) = self.since.as_ref().map_or((None, None), Since::parts);
        let rows = database
            .rows(
                "list events",
                include_str!("../../../sql/event/list.sql"),
                &[
                    (&self.kind, Type::TEXT),
                    (&self.tenant, Type::TEXT),
                    (&self.key, Type::TEXT),
                    (&at, Type::TEXT),
                    (&ago, Type::TEXT),
                    (&i64::from(self.limit), Type::INT8),
                ],
            )
            .await?;
        let events = rows.iter().map(Listed::from_row);
        if out.json {
            out.objects(events)?;
            return Ok(Exit::Done);
        }
        let mut table = Table::new(["ID", "EMITTED", "TYPE", "VERSION", "TENANT", "KEY", "BYTES"])
            .right(["VERSION", "BYTES"])
            .whole(["ID", "EMITTED"]);
        for event in events {
            let (version, bytes) = (event.version.to_string(), event.bytes.to_string());
            let key = event.key.unwrap_or_default();
            table.row([
                &event.id.to_string(),
                &text::time(event.emitted_at),
                event.kind,
                &version,
                event.tenant,
                key,
                &bytes,
            ]);
        }
        if table.is_empty() {
            out.say("no such event is in the log")?;
        } else {
            out.table(&table)?;
        }
        Ok(Exit::Done)
    }
}

impl<'a> Listed<'a> {
    fn from_row(row: &'a Row) -> Self {
        Self {
            id: row.get("id"),
            kind: row.get("type"),
            version: row.get("version"),
            tenant: row.get("tenant"),
            key: row.get("key"),
            emitted_at: row.get("emitted_at"),
            content_type: row.get("content_type"),
            bytes: row.get("bytes"),
            log_id: row.get("log_id"),
        }
    }
}
