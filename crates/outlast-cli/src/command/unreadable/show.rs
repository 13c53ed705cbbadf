//! `outlast unreadable show`.

use clap::Args;
use serde::Serialize;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::{
    args::Global,
    database::Database,
    exit::Exit,
    out::text::{self, Payload},
    problem::{Answer, Problem},
};

#[derive(Debug, Args)]
pub(super) struct Show {
    /// The message's id, as ls lists it
    id: Uuid,
    /// Only as it came to this consumer
    #[arg(long, value_name = "NAME")]
    consumer: Option<String>,
}

#[derive(Serialize)]
struct Shown<'a> {
    id: Uuid,
    consumer: &'a str,
    why: &'a str,
    seen: i64,
    broker: Option<&'a str>,
    topic: Option<&'a str>,
    broker_id: &'a str,
    first_at: &'a str,
    last_at: &'a str,
    attributes: Vec<(String, String)>,
    bytes: usize,
    payload_encoding: &'static str,
    payload: &'a str,
}

/// Attributes as they are kept: pairs, as JSON.
pub(super) fn attributes(kept: &[u8]) -> Vec<(String, String)> {
    serde_json::from_slice(kept).unwrap_or_default()
}

impl Show {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        let out = global.out();
        let database = Database::to_read(global).await?;
        let what = format!("show message {}", self.id);
        let given = [
            (&self.id as _, Type::UUID),
            (&self.consumer as _, Type::TEXT),
        ];
        let sql = include_str!("../../../sql/unreadable/show.sql");
        let rows = database.rows(&what, sql, &given).await?;
        if rows.is_empty() {
            let next = "`outlast unreadable ls` lists those that there are";
            return Err(Problem::new(Exit::Found, what, "there is no such message").next(next));
        }
        for row in &rows {
            let payload = row.get::<_, &[u8]>("payload");
            let (bytes, payload) = (payload.len(), Payload::of(payload));
            let shown = Shown {
                id: self.id,
                consumer: row.get("consumer"),
                why: row.get("why"),
                seen: row.get("seen"),
                broker: row.get("broker"),
                topic: row.get("topic"),
                broker_id: row.get("broker_id"),
                first_at: row.get("first_at"),
                last_at: row.get("last_at"),
                attributes: attributes(row.get("attributes")),
                bytes,
                payload_encoding: payload.encoding(),
                payload: payload.as_str(),
            };
            if out.json {
                out.object(&shown)?;
                continue;
            }
            let lines = [
                ("id", shown.id.to_string()),
                ("consumer", shown.consumer.to_owned()),
                ("why", shown.why.to_owned()),
                ("seen", text::count(shown.seen, "time", "times")),
                ("first", shown.first_at.to_owned()),
                ("last", shown.last_at.to_owned()),
                ("topic", shown.topic.unwrap_or_default().to_owned()),
                ("called", shown.broker_id.to_owned()),
            ];
            for (name, value) in lines {
                out.say(&format!("{name:10} {}", text::line(&value)))?;
            }
            for (name, value) in &shown.attributes {
                let (name, value) = (text::line(name), text::line(value));
                out.say(&format!("attribute  {name}: {value}"))?;
            }
            let note = match shown.payload_encoding {
                "hex" => ", not UTF-8: shown in hex",
                _ => "",
            };
            let bytes = text::count(shown.bytes, "byte", "bytes");
            out.say(&format!("payload    {bytes}{note}"))?;
            out.say(&format!("\n{}\n", text::lines(shown.payload)))?;
        }
        Ok(Exit::Done)
    }
}
