//! `outlast commands ls`.

use clap::{Args, ValueEnum};
use tokio_postgres::types::Type;

use super::Standing;
use crate::{
    args::Global,
    database::{Database, Given},
    exit::Exit,
    out::{Table, text},
    problem::Answer,
    since::Since,
};

#[derive(Clone, Copy, Debug, ValueEnum)]
enum State {
    /// Not sent, or certainly without effect
    Waiting,
    /// On its way
    Running,
    /// The provider took it and has not settled it
    Pending,
    /// It may have had an effect, and nobody has said
    Unknown,
    /// Waits for a person
    Stopped,
    /// Told another end than it has
    Contradicted,
    /// The provider did it
    Settled,
    /// The provider refused it
    Rejected,
    /// There was nothing to do any more
    Obsolete,
    /// Withdrawn
    Cancelled,
    /// Given up by a person
    Abandoned,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  outlast commands ls --state unknown --before 1h     what nobody has known the end of for long
  outlast commands ls --state stopped --account acme  what waits for a person
  outlast commands ls --name charge_card --since 2d --json")]
pub(super) struct Ls {
    /// Only commands of this name
    #[arg(long)]
    name: Option<String>,
    /// Only commands of this tenant ('' is the default tenant)
    #[arg(long)]
    tenant: Option<String>,
    /// Only the command of this key
    #[arg(long)]
    key: Option<String>,
    /// Only commands of this provider account
    #[arg(long)]
    account: Option<String>,
    /// Only in this state
    #[arg(long)]
    state: Option<State>,
    /// Only commands accepted since: 90s, 15m, 6h, 2d ago, or a time such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME")]
    since: Option<Since>,
    /// Only commands accepted before that: older than 90s, 15m, 6h, 2d, or than a time
    #[arg(long, value_name = "TIME")]
    before: Option<Since>,
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

impl Ls {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        let out = global.out();
        let database = Database::to_read(global).await?;
        let (since, before) = (Since::given(&self.since), Since::given(&self.before));
        let state = self.state.and_then(|state| state.to_possible_value());
        let state = state.as_ref().map(clap::builder::PossibleValue::get_name);
        let limit = i64::from(self.limit);
        let given: [Given<'_>; 10] = [
            (&self.name, Type::TEXT),
            (&self.tenant, Type::TEXT),
            (&self.key, Type::TEXT),
            (&self.account, Type::TEXT),
            (&since.0, Type::TEXT),
            (&since.1, Type::TEXT),
            (&before.0, Type::TEXT),
            (&before.1, Type::TEXT),
            (&state, Type::TEXT),
            (&limit, Type::INT8),
        ];
        let sql = include_str!("../../../sql/command/list.sql");
        let rows = database.rows("list commands", sql, &given).await?;
        let commands = rows.iter().map(Standing::from_row);
        if out.json {
            out.objects(commands)?;
            return Ok(Exit::Done);
        }
        const HEADINGS: [&str; 10] = [
            "ID", "ACCEPTED", "NAME", "TENANT", "ACCOUNT", "KEY", "STATE", "DUE", "TRIES", "REASON",
        ];
        let mut table = Table::new(HEADINGS)
            .right(["TRIES"])
            .whole(["ID", "ACCEPTED"]);
        for command in commands {
            let id = command.id.to_string();
            let (due, tries) = (command.due(), command.attempt.to_string());
            table.row([
                &id,
                &text::time(command.accepted_at),
                command.name,
                command.tenant,
                command.account,
                command.key.unwrap_or_default(),
                command.state,
                &due,
                &tries,
                command.reason.unwrap_or_default(),
            ]);
        }
        if table.is_empty() {
            out.say("there is no such command")?;
        } else {
            out.table(&table)?;
        }
        Ok(Exit::Done)
    }
}
