//! `outlast commands show`: one command with everything that was sent, answered and told of it, and what to do next.

use clap::Args;
use serde::Serialize;
use tokio_postgres::{Row, types::Type};
use uuid::Uuid;

use super::{Standing, next::Stands};
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
Example:
  outlast incidents ls
  outlast commands show 01890a5d-ac96-774b-bcce-b302099a8057")]
pub(super) struct Show {
    /// The command's id
    id: Uuid,
}

#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    standing: Standing<'a>,
    version: i32,
    /// What its own budget of tries is, if it has one.
    attempts: Option<i32>,
    /// What its provider was told, the same in every try.
    provider_key: &'a str,
    /// How often it has moved or was sent.
    moves: i32,
    first_sent_at: Option<&'a str>,
    /// A send may have had an effect that nobody has told of.
    ambiguous: bool,
    /// When a person must look at one that is not settled.
    pending_until: Option<&'a str>,
    supersedes: Option<Uuid>,
    exclusive: Option<&'a str>,
    /// Who else has that key.
    held_by: Option<Uuid>,
    /// Why it is asked to go, and by whom.
    cancel: Option<&'a str>,
    cancel_by: Option<&'a str>,
    /// Why nobody takes commands of its name.
    paused: Option<&'a str>,
    account_paused: Option<&'a str>,
    source: Option<&'a str>,
    actor: Option<&'a str>,
    correlation_id: Option<Uuid>,
    causation_id: Option<Uuid>,
    traceparent: Option<&'a str>,
    codec_key: Option<&'a str>,
    payload_encoding: &'static str,
    payload: &'a str,
    /// What its provider answered, as JSON.
    answer: Option<&'a str>,
    contradictions: Vec<Contradiction<'a>>,
    evidence: Vec<Evidence<'a>>,
    next: Vec<String>,
}

/// Another end that was told of it after its end.
#[derive(Serialize)]
struct Contradiction<'a> {
    at: &'a str,
    state: &'a str,
    reason: Option<&'a str>,
}

/// A line of what happened.
#[derive(Serialize)]
struct Evidence<'a> {
    at: &'a str,
    what: &'a str,
    result: Option<&'a str>,
    /// Before it.
    state: &'a str,
    /// It was believed.
    moved: bool,
    reference: Option<&'a str>,
    reason: Option<&'a str>,
    /// Of the answer.
    digest: Option<&'a str>,
    actor: Option<&'a str>,
}

impl<'a> Evidence<'a> {
    fn from_row(row: &'a Row) -> Self {
        Self {
            at: row.get("at"),
            what: row.get("what"),
            result: row.get("result"),
            state: row.get("state"),
            moved: row.get("moved"),
            reference: row.get("reference"),
            reason: row.get("reason"),
            digest: row.get("digest"),
            actor: row.get("actor"),
        }
    }
}

impl<'a> Shown<'a> {
    fn from_rows(row: &'a Row, evidence: &'a [Row], payload: &'a Payload<'a>) -> Self {
        let standing = Standing::from_row(row);
        let contradiction = standing.contradicted_at.map(|at| Contradiction {
            at,
            state: row.get("contradicted_as"),
            reason: row.get("contradicted_reason"),
        });
        let answer: Option<&[u8]> = row.get("answer");
        let (paused, account_paused): (Option<&str>, Option<&str>) =
            (row.get("paused"), row.get("account_paused"));
        let cancel: Option<&str> = row.get("cancel");
        let next = Stands {
            id: standing.id,
            name: standing.name,
            key: standing.key.unwrap_or_default(),
            tenant: standing.tenant,
            account: standing.account,
            state: standing.state,
            next: standing.next,
            class: standing.class,
            provider_key: row.get("provider_key"),
            due_in_seconds: standing.due_in_seconds,
            is_incident: standing.incident_at.is_some(),
            contradicted: contradiction.as_ref().map(|other| other.state),
            held_by: row.get("held_by"),
            is_blocked: standing.blocked,
            is_paused: paused.is_some(),
            account_paused: account_paused.map(|_| row.get("account_paused_seconds")),
            is_cancelled: cancel.is_some(),
        }
        .next();
        Self {
            version: row.get("version"),
            attempts: row.get("attempts"),
            provider_key: row.get("provider_key"),
            moves: row.get("moves"),
            first_sent_at: row.get("first_sent_at"),
            ambiguous: row.get("ambiguous"),
            pending_until: row.get("pending_until"),
            supersedes: row.get("supersedes"),
            exclusive: row.get("exclusive"),
            held_by: row.get("held_by"),
            cancel,
            cancel_by: row.get("cancel_by"),
            paused,
            account_paused,
            source: row.get("source"),
            actor: row.get("actor"),
            correlation_id: row.get("correlation_id"),
            causation_id: row.get("causation_id"),
            traceparent: row.get("traceparent"),
            codec_key: row.get("codec_key"),
            payload_encoding: payload.encoding(),
            payload: payload.as_str(),
            // Invariant: answers of commands are JSON, checked when they came.
            answer: answer.and_then(|answer| std::str::from_utf8(answer).ok()),
            contradictions: contradiction.into_iter().collect(),
            evidence: evidence.iter().map(Evidence::from_row).collect(),
            next,
            standing,
        }
    }

    /// Name and value, as far as there is one.
    fn lines(&self) -> Vec<(&'static str, Option<String>)> {
        let command = &self.standing;
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let ids = |id: Option<Uuid>| id.map(|id| id.to_string());
        let text = |text: Option<&str>| text.map(str::to_owned);
        let time = |time: Option<&str>| time.map(text::time);
        vec![
            ("command", Some(format!("{} {}", command.name, command.id))),
            ("version", Some(self.version.to_string())),
            ("tenant", some(command.tenant)),
            ("key", text(command.key)),
            ("state", some(command.state)),
            ("due", some(&command.due())),
            ("tries", Some(tries(command.attempt, self.attempts))),
            ("class", text(command.class)),
            ("reason", text(command.reason)),
            ("provider key", some(self.provider_key)),
            ("reference", text(command.reference)),
            ("account", some(command.account)),
            ("exclusive", text(self.exclusive)),
            ("paused", text(self.paused)),
            ("withdrawn", text(self.cancel)),
            ("priority", Some(command.priority.to_string())),
            ("accepted", Some(text::time(command.accepted_at))),
            ("first sent", time(self.first_sent_at)),
            ("settles until", time(self.pending_until)),
            ("ended", time(command.ended_at)),
            ("stopped", time(command.incident_at)),
            ("contradicted", time(command.contradicted_at)),
            ("supersedes", ids(self.supersedes)),
            ("actor", text(self.actor)),
            ("source", text(self.source)),
            ("correlation", ids(self.correlation_id)),
            ("causation", ids(self.causation_id)),
            ("traceparent", text(self.traceparent)),
        ]
    }
}

impl Show {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        let out = global.out();
        let id = self.id;
        let what = format!("show command {id}");
        let database = Database::to_read(global).await?;
        let sql = include_str!("../../../sql/command/show.sql");
        let rows = database.rows(&what, sql, &[(&id, Type::UUID)]).await?;
        let Some(row) = rows.first() else {
            return Err(Work::Command.absent(what));
        };
        let sql = include_str!("../../../sql/command/evidence.sql");
        let evidence = database.rows(&what, sql, &[(&id, Type::UUID)]).await?;
        let payload = Payload::of(row.get("payload"));
        let shown = Shown::from_rows(row, &evidence, &payload);
        if out.json {
            out.object(&shown)?;
        } else {
            tell(out, &shown)?;
        }
        Ok(Exit::Done)
    }
}

/// For people.
fn tell(out: Out, shown: &Shown<'_>) -> Answer<()> {
    for (name, value) in shown.lines() {
        if let Some(value) = value {
            out.say(&format!("{name:13} {}", text::line(&value)))?;
        }
    }
    out.say(&format!("\n{}", text::lines(shown.payload)))?;
    if let Some(answer) = shown.answer {
        out.say(&format!("\nanswer        {}", text::line(answer)))?;
    }
    if !shown.evidence.is_empty() {
        out.say("\nwhat happened:")?;
        const HEADINGS: [&str; 8] = [
            "AT",
            "WHAT",
            "RESULT",
            "WHILE",
            "BELIEVED",
            "REFERENCE",
            "REASON",
            "ACTOR",
        ];
        let mut table = Table::new(HEADINGS).whole(["AT", "WHAT", "RESULT"]);
        for line in &shown.evidence {
            table.row([
                &text::time(line.at),
                line.what,
                line.result.unwrap_or_default(),
                line.state,
                if line.moved { "yes" } else { "no" },
                line.reference.unwrap_or_default(),
                line.reason.unwrap_or_default(),
                line.actor.unwrap_or_default(),
            ]);
        }
        out.table(&table)?;
    }
    for other in &shown.contradictions {
        let reason = text::line(other.reason.unwrap_or_default());
        out.say(&format!(
            "\ncontradicted  {}: {reason}",
            text::time(other.at)
        ))?;
    }
    if !shown.next.is_empty() {
        out.say("\nwhat to do next:")?;
        for line in &shown.next {
            out.say(&format!("  {}", text::line(line)))?;
        }
    }
    Ok(())
}

fn tries(charged: i32, own: Option<i32>) -> String {
    match own {
        Some(own) => format!("{charged} of {own}"),
        None => charged.to_string(),
    }
}
