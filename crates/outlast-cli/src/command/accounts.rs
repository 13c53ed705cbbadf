//! `outlast accounts`: providers' accounts, which are limited, throttled and paused as a whole.

use clap::{Args, Subcommand, builder::NonEmptyStringValueParser};
use outlast_core::duration;
use serde::Serialize;
use std::time::Duration;
use tokio_postgres::{Row, types::Type};

use crate::{
    args::Global,
    database::{Database, Given},
    exit::Exit,
    out::{Table, text},
    problem::Answer,
};

#[derive(Debug, Args)]
pub(crate) struct Accounts {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List accounts that are limited, throttled, failing or paused
    #[command(after_help = "\
open: as fast as its limits allow; throttled: its provider has asked for a pause; failing: nobody answers,
and one try at a time finds out when somebody does; paused: until a person resumes it. What an account may
do is a setting of the cluster: [cluster.account.NAME] and `outlast apply`.")]
    Ls {
        /// Only this account
        #[arg(long)]
        account: Option<String>,
    },
    /// Leave a provider alone: nothing of the account is sent, looked up or polled until it is resumed
    #[command(after_help = "\
What is on its way is not stopped. No deploy resumes it.

Example:
  outlast accounts pause acme --reason 'their incident 4711'")]
    Pause {
        /// The account, as Command::account() names it
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        account: String,
        /// Why, for whoever finds it paused
        #[arg(long, value_parser = NonEmptyStringValueParser::new())]
        reason: String,
        /// Who asks, for the audit; without it the database's user
        #[arg(long, value_name = "WHO")]
        actor: Option<String>,
    },
    /// Let a paused, throttled or failing account go on at once
    Resume {
        /// The account
        account: String,
        /// Who asks, for the audit; without it the database's user
        #[arg(long, value_name = "WHO")]
        actor: Option<String>,
    },
}

#[derive(Serialize)]
struct Listed<'a> {
    name: &'a str,
    state: &'a str,
    /// None while it is paused: until a person resumes it.
    paused_seconds: Option<i64>,
    running: i64,
    /// One after the other.
    failures: i32,
    concurrency: Option<i32>,
    rate: Option<f64>,
    burst: Option<i32>,
    circuit: i32,
    circuit_pause_seconds: i32,
    reason: Option<&'a str>,
    actor: Option<&'a str>,
    since: Option<&'a str>,
}

impl<'a> Listed<'a> {
    fn from_row(row: &'a Row) -> Self {
        Self {
            name: row.get("name"),
            state: row.get("state"),
            paused_seconds: row.get("paused_seconds"),
            running: row.get("running"),
            failures: row.get("failures"),
            concurrency: row.get("concurrency"),
            rate: row.get("rate"),
            burst: row.get("burst"),
            circuit: row.get("circuit"),
            circuit_pause_seconds: row.get("circuit_pause_s"),
            reason: row.get("reason"),
            actor: row.get("actor"),
            since: row.get("since"),
        }
    }

    /// For how long nothing of it is claimed.
    fn left(&self) -> String {
        match (self.state, self.paused_seconds) {
            ("paused", _) => "a person".into(),
            (_, Some(seconds)) => {
                duration::show(Duration::from_secs(seconds.max(0).unsigned_abs()))
            }
            _ => String::new(),
        }
    }
}

#[derive(Serialize)]
struct Changed<'a> {
    account: &'a str,
    state: &'static str,
    reason: Option<&'a str>,
    changed: bool,
}

impl Accounts {
    pub(crate) async fn run(&self, global: &Global) -> Answer {
        match &self.command {
            Command::Ls { account } => ls(global, account.as_deref()).await,
            Command::Pause {
                account,
                reason,
                actor,
            } => {
                let database = Database::to_write(global).await?;
                let sql = include_str!("../../sql/account/pause.sql");
                let given: [Given<'_>; 3] = [
                    (account, Type::TEXT),
                    (reason, Type::TEXT),
                    (actor, Type::TEXT),
                ];
                let what = format!("pause account {}", text::line(account));
                database.rows(what, sql, &given).await?;
                tell(global, account, ("paused", Some(reason)), true)
            }
            Command::Resume { account, actor } => {
                let database = Database::to_write(global).await?;
                let sql = include_str!("../../sql/account/resume.sql");
                let given: [Given<'_>; 2] = [(account, Type::TEXT), (actor, Type::TEXT)];
                let what = format!("resume account {}", text::line(account));
                let rows = database.rows(what, sql, &given).await?;
                let changed = rows.first().is_some_and(|row| row.get("changed"));
                tell(global, account, ("open", None), changed)
            }
        }
    }
}

fn tell(
    global: &Global,
    account: &str,
    (state, reason): (&'static str, Option<&str>),
    changed: bool,
) -> Answer {
    let out = global.out();
    let shown = text::line(account);
    if out.json {
        out.object(&Changed {
            account,
            state,
            reason,
            changed,
        })?;
    } else if changed {
        out.say(&format!("account {shown} is {state}"))?;
    } else {
        out.say(&format!("account {shown} was {state} already"))?;
    }
    Ok(Exit::Done)
}

async fn ls(global: &Global, account: Option<&str>) -> Answer {
    let out = global.out();
    let database = Database::to_read(global).await?;
    let sql = include_str!("../../sql/account/list.sql");
    let rows = database
        .rows("list accounts", sql, &[(&account, Type::TEXT)])
        .await?;
    let accounts = rows.iter().map(Listed::from_row);
    if out.json {
        out.objects(accounts)?;
        return Ok(Exit::Done);
    }
    const HEADINGS: [&str; 9] = [
        "ACCOUNT",
        "STATE",
        "WAITS FOR",
        "RUNNING",
        "AT ONCE",
        "A SECOND",
        "BURST",
        "FAILURES",
        "REASON",
    ];
    let mut table = Table::new(HEADINGS)
        .right(["RUNNING", "AT ONCE", "A SECOND", "BURST", "FAILURES"])
        .whole(["ACCOUNT", "STATE"]);
    for one in accounts {
        let or_nothing = |n: Option<i32>| n.map(|n| n.to_string()).unwrap_or_default();
        let rate = one.rate.map(|rate| rate.to_string()).unwrap_or_default();
        let burst = or_nothing(one.burst.filter(|_| one.rate.is_some()));
        table.row([
            one.name,
            one.state,
            &one.left(),
            &one.running.to_string(),
            &or_nothing(one.concurrency),
            &rate,
            &burst,
            &one.failures.to_string(),
            one.reason.unwrap_or_default(),
        ]);
    }
    if table.is_empty() {
        out.say("no account is limited, throttled, failing or paused")?;
    } else {
        out.table(&table)?;
    }
    Ok(Exit::Done)
}
