//! `outlast events show`.

use clap::Args;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio_postgres::{Row, types::Type};
use uuid::Uuid;

use crate::{
    args::Global,
    database::Database,
    exit::Exit,
    out::{
        Out, Table,
        text::{self, Payload},
    },
    problem::{Answer, Problem},
};

#[derive(Debug, Args)]
pub(super) struct Show {
    /// The event's id
    id: Uuid,
    /// Write the payload alone, exactly the stored bytes
    #[arg(long, conflicts_with = "json")]
    payload: bool,
}

/// The whole envelope. Headers are raw JSON, so that a number in them keeps all of its digits.
#[derive(Serialize)]
struct Shown<'a> {
    id: Uuid,
    #[serde(rename = "type")]
    kind: &'a str,
    version: i32,
    tenant: &'a str,
    key: Option<&'a str>,
    subject: Option<&'a str>,
    source: Option<&'a str>,
    actor: Option<&'a str>,
    aggregate_version: Option<i64>,
    correlation_id: Option<Uuid>,
    causation_id: Option<Uuid>,
    traceparent: Option<&'a str>,
    headers: Option<&'a RawValue>,
    content_type: &'a str,
    emitted_at: &'a str,
    log_id: i64,
    bytes: usize,
    /// Which key it is encrypted with: only a program that has it can read the payload.
    codec_key: Option<&'a str>,
    payload_encoding: &'static str,
    payload: &'a str,
    consumers: Vec<Standing<'a>>,
}

#[derive(Serialize)]
struct Standing<'a> {
    consumer: &'a str,
    state: &'a str,
    failures: i32,
    class: Option<&'a str>,
    reason: Option<&'a str>,
    /// When it was completed, or when the next try is due.
    at: Option<&'a str>,
}

impl Show {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        let out = global.out();
        let database = Database::to_read(global).await?;
        let what = format!("show event {}", self.id);
        let given = [(&self.id as _, Type::UUID)];
        let rows = database
            .rows(&what, include_str!("../../../sql/event/show.sql"), &given)
            .await?;
        let Some(row) = rows.first() else {
            let none = Problem::new(
                Exit::Found,
                what,
                format!("no such event is in the log of {database}"),
            );
            let next =
                "`outlast events ls` lists the newest, `outlast parked ls` those that failed";
            return Err(none.next(next));
        };
        let bytes: &[u8] = row.get("payload");
        if self.payload {
            out.raw(bytes)?;
            return Ok(Exit::Done);
        }
        let standings = database
            .rows(
                &what,
                include_str!("../../../sql/event/standing.sql"),
                &given,
            )
            .await?;
        let consumers = standings.iter().map(Standing::from_row).collect();
        let payload = Payload::of(bytes);
        let event = Shown::from_row(row, bytes.len(), &payload, consumers);
        if out.json {
            out.object(&event)?;
        } else {
            event.print(out)?;
        }
        Ok(Exit::Done)
    }
}

impl<'a> Standing<'a> {
    fn from_row(row: &'a Row) -> Self {
        Self {
            consumer: row.get("consumer"),
            state: row.get("state"),
            failures: row.get("failures"),
            class: row.get("class"),
            reason: row.get("reason"),
            at: row.get("at"),
        }
    }
}

impl<'a> Shown<'a> {
    fn from_row(
        row: &'a Row,
        bytes: usize,
        payload: &'a Payload<'a>,
        consumers: Vec<Standing<'a>>,
    ) -> Self {
        let headers = row.get::<_, Option<&str>>("headers");
        Self {
            id: row.get("id"),
            kind: row.get("type"),
            version: row.get("version"),
            tenant: row.get("tenant"),
            key: row.get("key"),
            subject: row.get("subject"),
            source: row.get("source"),
            actor: row.get("actor"),
            aggregate_version: row.get("aggregate_version"),
            correlation_id: row.get("correlation_id"),
            causation_id: row.get("causation_id"),
            traceparent: row.get("traceparent"),
            headers: headers.map(|json| serde_json::from_str(json).expect("jsonb is JSON")),
            content_type: row.get("content_type"),
            emitted_at: row.get("emitted_at"),
            log_id: row.get("log_id"),
            bytes,
            codec_key: row.get("codec_key"),
            payload_encoding: payload.encoding(),
            payload: payload.as_str(),
            consumers,
        }
    }

    fn print(&self, out: Out) -> Answer<()> {
        let number = |n: i64| n.to_string();
        let lines = [
            ("id", Some(self.id.to_string())),
            ("type", Some(self.kind.to_owned())),
            ("version", Some(self.version.to_string())),
            (
                "tenant",
                Some(self.tenant.to_owned()).filter(|tenant| !tenant.is_empty()),
            ),
            ("key", self.key.map(str::to_owned)),
            ("subject", self.subject.map(str::to_owned)),
            ("source", self.source.map(str::to_owned)),
            ("actor", self.actor.map(str::to_owned)),
            ("aggregate version", self.aggregate_version.map(number)),
            ("correlation", self.correlation_id.map(|id| id.to_string())),
            ("causation", self.causation_id.map(|id| id.to_string())),
            ("traceparent", self.traceparent.map(str::to_owned)),
            ("headers", self.headers.map(|json| json.get().to_owned())),
            ("emitted", Some(self.emitted_at.to_owned())),
            ("content type", Some(self.content_type.to_owned())),
            (
                "payload",
                Some(format!(
                    "{}{}",
                    text::count(self.bytes, "byte", "bytes"),
                    self.note()
                )),
            ),
        ];
        for (name, value) in lines {
            if let Some(value) = value {
                out.say(&format!("{name:18} {}", text::line(&value)))?;
            }
        }
        self.body(out)?;
        if self.consumers.is_empty() {
            return out.say("no consumer has asked for this type");
        }
        let mut table = Table::new(["CONSUMER", "STATE", "FAILURES", "AT", "CLASS", "REASON"])
            .right(["FAILURES"])
            .whole(["CONSUMER", "STATE"]);
        for one in &self.consumers {
            let failures = one.failures.to_string();
            let at = one.at.map(text::time).unwrap_or_default();
            let [class, reason] = [one.class, one.reason].map(Option::unwrap_or_default);
            table.row([one.consumer, one.state, &failures, &at, class, reason]);
        }
        out.table(&table)
    }

    fn body(&self, out: Out) -> Answer<()> {
        if self.codec_key.is_some() {
            return out.say("\n(what is stored is ciphertext; --payload writes it)\n");
        }
        // A pipe gets the text exactly as stored, a terminal what it can show.
        let payload = if out.is_terminal() {
            text::lines(self.payload)
        } else {
            self.payload.to_owned()
        };
        out.say(&format!("\n{payload}\n"))
    }

    fn note(&self) -> String {
        match self.codec_key {
            Some(key) => format!(", encrypted with key {key}"),
            None if self.payload_encoding == "hex" => ", not UTF-8: shown in hex".into(),
            None => String::new(),
        }
    }
}
