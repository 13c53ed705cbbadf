//! `outlast incidents`: what needs a person.

use clap::{Args, Subcommand};
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
pub(crate) struct Incidents {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List what needs a person, oldest first
    #[command(after_help = "\
Alike failures have the same SIGNATURE: mend one cause, then retry them all.

Example:
  outlast incidents ls --json | jq -r '[.signature, .consumer] | @tsv' | sort | uniq -c")]
    Ls {
        /// Only of this consumer, or of the jobs of this name
        #[arg(long, value_name = "NAME")]
        consumer: Option<String>,
        /// How many at most
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
}

#[derive(Serialize)]
struct Listed<'a> {
    kind: &'a str,
    consumer: &'a str,
    owner: Option<&'a str>,
    about: Uuid,
    #[serde(rename = "type")]
    event_type: &'a str,
    tenant: &'a str,
    key: Option<&'a str>,
    class: &'a str,
    failures: i32,
    reason: Option<&'a str>,
    signature: Option<&'a str>,
    version: Option<i32>,
    count: i64,
    opened_at: &'a str,
}

impl<'a> Listed<'a> {
    fn from_row(row: &'a Row) -> Self {
        Self {
            kind: row.get("kind"),
            consumer: row.get("consumer"),
            owner: row.get("owner"),
            about: row.get("about"),
            event_type: row.get("type"),
            tenant: row.get("tenant"),
            key: row.get("key"),
            class: row.get("class"),
            failures: row.get("failures"),
            reason: row.get("reason"),
            signature: row.get("signature"),
            version: row.get("version"),
            count: row.get("count"),
            opened_at: row.get("opened_at"),
        }
    }
}

impl Incidents {
    pub(crate) async fn run(&self, global: &Global) -> Answer {
        let Command::Ls { consumer, limit } = &self.command;
        let out = global.out();
        let database = Database::to_read(global).await?;
        let given = [
            (consumer as _, Type::TEXT),
            (&i64::from(*limit) as _, Type::INT8),
        ];
        let rows = database
            .rows(
                "list incidents",
                include_str!("../../sql/parked/incidents.sql"),
                &given,
            )
            .await?;
        if out.json {
            out.objects(rows.iter().map(Listed::from_row))?;
            return Ok(Exit::Done);
        }
        if rows.is_empty() {
            out.say("nothing needs a person")?;
            return Ok(Exit::Done);
        }
        const HEADINGS: [&str; 8] = [
            "OPENED",
            "KIND",
            "CONSUMER",
            "OWNER",
            "ABOUT",
            "CLASS",
            "SIGNATURE",
            "REASON",
        ];
        let mut table = Table::new(HEADINGS).whole(["ABOUT", "CONSUMER"]);
        for one in rows.iter().map(Listed::from_row) {
            let (owner, about) = (one.owner.unwrap_or_default(), one.about.to_string());
            let (signature, reason) = (
                one.signature.unwrap_or_default(),
                one.reason.unwrap_or_default(),
            );
            table.row([
                &text::time(one.opened_at),
                one.kind,
                one.consumer,
                owner,
                &about,
                one.class,
                signature,
                reason,
            ]);
        }
        out.table(&table)?;
        let ways = ways(&rows);
        out.say(&format!(
            "{}; when its cause is mended: {}",
            text::count(rows.len(), "incident", "incidents"),
            ways.join("; ")
        ))?;
        Ok(Exit::Done)
    }
}

/// What mends each kind that is there.
fn ways(rows: &[Row]) -> Vec<&'static str> {
    let kind = |row: &Row| match row.get("kind") {
        "stopped job" => "job",
        "unknown command" | "stopped command" | "contradicted command" => "command",
        "settlement without a command" => "settlement",
        "stopped entity" | "late refs" => "entity",
        _ => "event",
    };
    let all = [
        ("event", "outlast parked retry ABOUT --consumer CONSUMER"),
        ("job", "of a job: outlast jobs retry ABOUT"),
        ("command", "of a command: outlast commands show ABOUT"),
        (
            "settlement",
            "of a settlement: give the command, or outlast commands discard CONSUMER KEY --reason WHY",
        ),
        ("entity", "of an entity: outlast entities show ABOUT"),
    ];
    let are_there = |wanted: &str| rows.iter().any(|row| kind(row) == wanted);
    let mut ways: Vec<&str> = all
        .into_iter()
        .filter(|(kind, _)| are_there(kind))
        .map(|(_, way)| way)
        .collect();
    // Alone it needs no telling apart.
    if let [way] = ways.as_mut_slice() {
        *way = way.split_once(": ").map_or(*way, |(_, way)| way);
    }
    ways
}
