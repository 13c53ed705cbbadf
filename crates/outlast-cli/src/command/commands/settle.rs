//! `outlast commands settle`: another system's word about the end of a command, by its key.

use std::ffi::{OsStr, OsString};

use clap::{ArgGroup, Args, builder::NonEmptyStringValueParser};
use serde::Serialize;
use tokio_postgres::types::Type;

use crate::{
    args::Global,
    database::{Database, Given},
    exit::Exit,
    intent,
    out::text,
    problem::{Answer, Problem},
};

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("as").required(true).args(["settled", "rejected", "obsolete"])))]
#[command(after_help = "\
What a webhook or a settlement file would tell. It counts in whatever state the command is; told of one
that has ended otherwise, it is kept as evidence and put before a person.

Examples:
  outlast commands settle charge_card booking/7/deposit --settled --reference ch_123 --answer '\"ch_123\"'
  outlast commands settle charge_card booking/7/deposit --rejected --reason 'their report of 3 May'")]
pub(super) struct Settle {
    /// The name of the command
    name: String,
    /// Its key
    key: String,
    /// The tenant
    #[arg(long, default_value = "")]
    tenant: String,
    /// The provider has done it
    #[arg(long)]
    settled: bool,
    /// The provider has refused it, and it had no effect; needs --reason
    #[arg(long, requires = "reason")]
    rejected: bool,
    /// There was nothing to do any more, and nothing was done; needs --reason
    #[arg(long, requires = "reason")]
    obsolete: bool,
    /// What the provider calls it
    #[arg(long, value_name = "R", value_parser = NonEmptyStringValueParser::new())]
    reference: Option<String>,
    /// What the provider has answered, as JSON; - reads it from stdin
    #[arg(long, value_name = "JSON", conflicts_with_all = ["rejected", "obsolete"])]
    answer: Option<OsString>,
    /// How that is known
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    reason: Option<String>,
    /// Who tells it; without it the database's user
    #[arg(long, value_name = "WHO")]
    actor: Option<String>,
}

#[derive(Serialize)]
struct Settled<'a> {
    name: &'a str,
    key: &'a str,
    tenant: &'a str,
    outcome: &'a str,
}

/// An answer as the shell gave it; - is stdin.
pub(super) fn said_by_provider(what: &str, given: Option<&OsStr>) -> Answer<Option<String>> {
    let Some(given) = given else { return Ok(None) };
    let answer = String::from_utf8(intent::payload(given)?);
    answer.map(Some).map_err(|_| {
        Problem::new(
            Exit::Usage,
            what,
            "the answer is not UTF-8: JSON is expected",
        )
    })
}

impl Settle {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        let out = global.out();
        let (name, key) = (text::line(&self.name), text::line(&self.key));
        let what = format!("settle {name} {key}");
        let state = match (self.settled, self.rejected) {
            (true, _) => "settled",
            (_, true) => "rejected",
            _ => "obsolete",
        };
        let answer = said_by_provider(&what, self.answer.as_deref())?;
        let database = Database::to_emit(global).await?;
        let given: [Given<'_>; 8] = [
            (&self.name, Type::TEXT),
            (&self.key, Type::TEXT),
            (&state, Type::TEXT),
            (&answer, Type::TEXT),
            (&self.reference, Type::TEXT),
            (&self.reason, Type::TEXT),
            (&self.tenant, Type::TEXT),
            (&self.actor, Type::TEXT),
        ];
        let sql = include_str!("../../../sql/command/settle.sql");
        let rows = database.rows(&what, sql, &given).await?;
        let said = rows.first().map_or("gone", |row| row.get("said"));
        if let Some(problem) = against(&what, said, state, &self.name, &self.key) {
            return Err(problem);
        }
        if out.json {
            out.object(&Settled {
                name: &self.name,
                key: &self.key,
                tenant: &self.tenant,
                outcome: said,
            })?;
            return Ok(Exit::Done);
        }
        out.say(&match said {
            "same" => format!("{name} {key} had ended so before; nothing new was written"),
            "early" => format!(
                "there is no {name} {key} yet: what was told is kept, and counts when it comes; in seven days without it a person must look"
            ),
            said => format!("{name} {key} is {said}"),
        })?;
        Ok(Exit::Done)
    }
}

/// Where a person must look now.
fn against(what: &str, said: &str, told: &str, name: &str, key: &str) -> Option<Problem> {
    let problem = |why: String| Problem::new(Exit::Found, what, why);
    match said {
        "contradicts" => Some(
            problem(format!(
                "it has ended otherwise; that it was told to be {told} is kept as evidence, and nothing moved"
            ))
            .next(format!(
                "`outlast commands ls --name {} --key {}` finds it, `outlast commands resolve ID --noted` ends the incident",
                text::line(name),
                text::line(key)
            )),
        ),
        "gone" => Some(problem(
            "it had ended, and is older than what is kept: what was told could not be compared".into(),
        )),
        _ => None,
    }
}
