//! `outlast entities show`: one entity with what is kept of it, what is to be cleaned up, and what to do next.

use clap::Args;
use serde::Serialize;
use tokio_postgres::{Row, types::Type};
use uuid::Uuid;

use super::{Standing, next::Hindered, which::Which};
use crate::{
    args::Global,
    database::Database,
    exit::Exit,
    out::{
        Out, Table,
        text::{self, Payload},
    },
    problem::Answer,
    work::Work,
};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  outlast entities show chat_membership 7/3 --tenant acme
  outlast entities show 01890a5d-ac96-774b-bcce-b302099a8057      as `outlast incidents ls` tells it")]
pub(super) struct Show {
    #[command(flatten)]
    which: Which,
}

#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    standing: Standing<'a>,
    version: i32,
    /// Of its last claim.
    fence: i64,
    exclusive: Option<&'a str>,
    /// Who else has that key.
    held_by: Option<Uuid>,
    /// Why nobody takes entities of its name.
    paused: Option<&'a str>,
    actor: Option<&'a str>,
    correlation_id: Option<Uuid>,
    causation_id: Option<Uuid>,
    traceparent: Option<&'a str>,
    content_type: Option<&'a str>,
    codec_key: Option<&'a str>,
    payload_encoding: Option<&'static str>,
    payload: Option<String>,
    /// What is kept: what others call it.
    refs: Option<Refs<'a>>,
    /// What is to be cleaned up.
    deleted: Vec<Refs<'a>>,
    /// What late runners had made.
    late: Vec<Refs<'a>>,
    next: Vec<String>,
}

/// What others call it.
#[derive(Serialize)]
struct Refs<'a> {
    /// When it was deleted, or told too late.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    actor: Option<&'a str>,
    codec_key: Option<&'a str>,
    encoding: &'static str,
    refs: String,
}

impl<'a> Refs<'a> {
    fn of(bytes: &[u8], codec_key: Option<&'a str>) -> Self {
        let refs = Payload::of(bytes);
        Self {
            at: None,
            actor: None,
            codec_key,
            encoding: refs.encoding(),
            refs: refs.as_str().to_owned(),
        }
    }

    /// Of a row of `refs.sql`.
    fn from_row(row: &'a Row) -> Self {
        Self {
            at: Some(row.get("at")),
            actor: row.get("actor"),
            ..Self::of(row.get("refs"), row.get("codec_key"))
        }
    }

    /// For people: encrypted ones are none of their business.
    fn shown(&self) -> String {
        match self.codec_key {
            Some(key) => format!("(encoded with key {key})"),
            None => self.refs.clone(),
        }
    }
}

impl Show {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        let out = global.out();
        let meant = self.which.meant()?;
        let what = format!("show entity {}", self.which.shown());
        let database = Database::to_read(global).await?;
        let sql = include_str!("../../../sql/entity/show.sql");
        let rows = database.rows(&what, sql, &meant.given()).await?;
        let Some(row) = rows.first() else {
            return Err(Work::Entity.absent(what));
        };
        let id: Option<Uuid> = row.get("id");
        let sql = include_str!("../../../sql/entity/refs.sql");
        let refs = database.rows(&what, sql, &[(&id, Type::UUID)]).await?;
        let shown = Shown::from_rows(row, &refs);
        if out.json {
            out.object(&shown)?;
        } else {
            print(out, &shown)?;
        }
        Ok(Exit::Done)
    }
}

impl<'a> Shown<'a> {
    fn from_rows(row: &'a Row, refs: &'a [Row]) -> Self {
        let standing = Standing::from_row(row);
        let payload: Option<&[u8]> = row.get("payload");
        let payload = payload.map(Payload::of);
        let kept: Option<&[u8]> = row.get("refs");
        let those = |what: &str| {
            let of = refs.iter().filter(|row| row.get::<_, &str>("what") == what);
            of.map(Refs::from_row).collect()
        };
        let (paused, held_by) = (row.get::<_, Option<&str>>("paused"), row.get("held_by"));
        let next = standing.next(&Hindered {
            is_paused: paused.is_some(),
            held_by,
            held_by_kind: row.get("held_by_kind"),
        });
        Self {
            version: row.get("version"),
            fence: row.get("fence"),
            exclusive: row.get("exclusive"),
            held_by,
            paused,
            actor: row.get("actor"),
            correlation_id: row.get("correlation_id"),
            causation_id: row.get("causation_id"),
            traceparent: row.get("traceparent"),
            content_type: row.get("content_type"),
            codec_key: row.get("codec_key"),
            payload_encoding: payload.as_ref().map(Payload::encoding),
            payload: payload.map(|payload| payload.as_str().to_owned()),
            refs: kept.map(|kept| Refs::of(kept, row.get("refs_codec_key"))),
            deleted: those("deleted"),
            late: those("late"),
            next,
            standing,
        }
    }

    /// Name and value, as far as there is one.
    fn lines(&self) -> Vec<(&'static str, Option<String>)> {
        let entity = &self.standing;
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let ids = |id: Option<Uuid>| id.map(|id| id.to_string());
        let text = |text: Option<&str>| text.map(str::to_owned);
        let time = |time: Option<&str>| time.map(text::time);
        let yes = |is: bool, says: &str| is.then(|| says.to_owned());
        vec![
            ("entity", Some(format!("{} {}", entity.name, entity.key))),
            ("id", ids(entity.id)),
            ("version", Some(self.version.to_string())),
            ("tenant", some(entity.tenant)),
            ("state", some(entity.state)),
            ("due", some(&entity.due())),
            ("tries", Some(entity.attempt.to_string())),
            ("class", text(entity.class)),
            ("reason", text(entity.reason)),
            ("marked", time(Some(entity.marked_at))),
            (
                "since",
                time(Some(entity.accepted_at)).filter(|_| entity.converged_at.is_none()),
            ),
            ("converged", time(entity.converged_at)),
            ("stopped", time(entity.incident_at)),
            ("deleted", yes(entity.gone, "its newest mark says so")),
            (
                "again",
                yes(
                    entity.again,
                    "marked since it was claimed: it runs once more",
                ),
            ),
            (
                "fence",
                Some(self.fence.to_string()).filter(|_| self.fence > 0),
            ),
            ("kept", self.refs.as_ref().map(Refs::shown)),
            ("exclusive", text(self.exclusive)),
            ("paused", text(self.paused)),
            ("actor", text(self.actor)),
            ("correlation", ids(self.correlation_id)),
            ("causation", ids(self.causation_id)),
            ("traceparent", text(self.traceparent)),
            ("content type", text(self.content_type)),
            ("codec key", text(self.codec_key)),
        ]
    }
}

fn print(out: Out, shown: &Shown<'_>) -> Answer<()> {
    for (name, value) in shown.lines() {
        if let Some(value) = value {
            out.say(&format!("{name:13} {}", text::line(&value)))?;
        }
    }
    if let Some(payload) = &shown.payload {
        out.say(&format!("\n{}", text::lines(payload)))?;
    }
    for (what, refs) in [
        ("to be cleaned up", &shown.deleted),
        ("late refs", &shown.late),
    ] {
        if refs.is_empty() {
            continue;
        }
        out.say(&format!("\n{what}:"))?;
        let mut table = Table::new(["AT", "ACTOR", "REFS"]).whole(["AT"]);
        for one in refs {
            let refs = one.shown();
            table.row([
                &text::time(one.at.unwrap_or_default()),
                one.actor.unwrap_or_default(),
                &refs,
            ]);
        }
        out.table(&table)?;
    }
    if !shown.next.is_empty() {
        out.say("\nwhat to do next:")?;
        for line in &shown.next {
            out.say(&format!("  {}", text::line(line)))?;
        }
    }
    Ok(())
}
