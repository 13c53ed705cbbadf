//! `outlast jobs show`.

use clap::Args;
use serde::Serialize;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::Standing;
use crate::{
    args::Global,
    database::Database,
    exit::Exit,
    out::text::{self, Payload},
    problem::Answer,
    work::Work,
};

#[derive(Debug, Args)]
pub(super) struct Show {
    /// The job's id
    id: Uuid,
}

#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    standing: Standing<'a>,
    version: i32,
    /// What its own budget of tries is, if it has one.
    attempts: Option<i32>,
    source: Option<&'a str>,
    actor: Option<&'a str>,
    correlation_id: Option<Uuid>,
    causation_id: Option<Uuid>,
    traceparent: Option<&'a str>,
    /// Why nobody takes jobs of its name.
    paused: Option<&'a str>,
    content_type: &'a str,
    codec_key: Option<&'a str>,
    payload_encoding: &'static str,
    payload: &'a str,
}

impl Show {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        let out = global.out();
        let id = self.id;
        let what = format!("show job {id}");
        let database = Database::to_read(global).await?;
        let sql = include_str!("../../../sql/job/show.sql");
        let rows = database.rows(&what, sql, &[(&id, Type::UUID)]).await?;
        let Some(row) = rows.first() else {
            return Err(Work::Job.absent(what));
        };
        let payload = Payload::of(row.get("payload"));
        let shown = Shown {
            standing: Standing::from_row(row),
            version: row.get("version"),
            attempts: row.get("attempts"),
            source: row.get("source"),
            actor: row.get("actor"),
            correlation_id: row.get("correlation_id"),
            causation_id: row.get("causation_id"),
            traceparent: row.get("traceparent"),
            paused: row.get("paused"),
            content_type: row.get("content_type"),
            codec_key: row.get("codec_key"),
            payload_encoding: payload.encoding(),
            payload: payload.as_str(),
        };
        if out.json {
            out.object(&shown)?;
            return Ok(Exit::Done);
        }
        let job = &shown.standing;
        let ids = |id: Option<Uuid>| id.map(|id| id.to_string());
        let lines = [
            ("job", Some(format!("{} {id}", job.name))),
            ("version", Some(shown.version.to_string())),
            (
                "tenant",
                Some(job.tenant.to_owned()).filter(|t| !t.is_empty()),
            ),
            ("key", job.key.map(str::to_owned)),
            ("state", Some(job.state.to_owned())),
            ("due", Some(job.due()).filter(|due| !due.is_empty())),
            ("tries", Some(tries(job.attempt, shown.attempts))),
            ("class", job.class.map(str::to_owned)),
            ("reason", job.reason.map(str::to_owned)),
            ("paused", shown.paused.map(str::to_owned)),
            ("priority", Some(job.priority.to_string())),
            ("enqueued", Some(text::time(job.accepted_at))),
            ("ended", job.ended_at.map(text::time)),
            ("stopped", job.incident_at.map(text::time)),
            ("actor", shown.actor.map(str::to_owned)),
            ("source", shown.source.map(str::to_owned)),
            ("correlation", ids(shown.correlation_id)),
            ("causation", ids(shown.causation_id)),
            ("traceparent", shown.traceparent.map(str::to_owned)),
            ("content type", Some(shown.content_type.to_owned())),
            ("codec key", shown.codec_key.map(str::to_owned)),
        ];
        for (name, value) in lines {
            if let Some(value) = value {
                out.say(&format!("{name:13} {}", text::line(&value)))?;
            }
        }
        out.say(&format!("\n{}", text::lines(shown.payload)))?;
        if job.incident_at.is_some() {
            out.say(&format!(
                "\nwhen its cause is mended: outlast jobs retry {id}"
            ))?;
        }
        Ok(Exit::Done)
    }
}

fn tries(charged: i32, own: Option<i32>) -> String {
    match own {
        Some(own) => format!("{charged} of {own}"),
        None => charged.to_string(),
    }
}
