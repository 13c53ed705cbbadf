//! `outlast entities ls`.

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
    /// Marked: runs now, at its time, or when a person has decided
    Waiting,
    /// Waits for a person
    Stopped,
    /// A worker has it
    Running,
    /// Nothing is to be done until it is marked again
    Converged,
    /// A runner that had lost its lease had made something elsewhere
    LateRefs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  outlast entities ls --state waiting --before 1h        what has not been converged for long
  outlast entities ls --state stopped --name chat_membership
  outlast entities ls --tenant acme --json")]
pub(super) struct Ls {
    /// Only entities of this name
    #[arg(long)]
    name: Option<String>,
    /// Only entities of this tenant ('' is the default tenant)
    #[arg(long)]
    tenant: Option<String>,
    /// Only the entity of this key
    #[arg(long)]
    key: Option<String>,
    /// Only in this state
    #[arg(long)]
    state: Option<State>,
    /// Only those whose oldest mark that is not converged (else the last that was) came since: 90s, 15m, 6h, 2d ago, or a time
    #[arg(long, value_name = "TIME")]
    since: Option<Since>,
    /// Only those whose oldest mark came before that: waiting for longer than 90s, 15m, 6h, 2d, or since before a time
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
        let given: [Given<'_>; 9] = [
            (&self.name, Type::TEXT),
            (&self.tenant, Type::TEXT),
            (&self.key, Type::TEXT),
            (&since.0, Type::TEXT),
            (&since.1, Type::TEXT),
            (&before.0, Type::TEXT),
            (&before.1, Type::TEXT),
            (&state, Type::TEXT),
            (&limit, Type::INT8),
        ];
        let sql = include_str!("../../../sql/entity/list.sql");
        let rows = database.rows("list entities", sql, &given).await?;
        let entities = rows.iter().map(Standing::from_row);
        if out.json {
            out.objects(entities)?;
            return Ok(Exit::Done);
        }
        const HEADINGS: [&str; 9] = [
            "ID", "MARKED", "NAME", "TENANT", "KEY", "STATE", "DUE", "TRIES", "REASON",
        ];
        let mut table = Table::new(HEADINGS)
            .right(["TRIES"])
            .whole(["ID", "MARKED"]);
        for entity in entities {
            let id = entity.id.map(|id| id.to_string()).unwrap_or_default();
            let (due, tries) = (entity.due(), entity.attempt.to_string());
            table.row([
                &id,
                &text::time(entity.accepted_at),
                entity.name,
                entity.tenant,
                entity.key,
                entity.state,
                &due,
                &tries,
                entity.reason.unwrap_or_default(),
            ]);
        }
        if table.is_empty() {
            out.say("there is no such entity")?;
        } else {
            out.table(&table)?;
        }
        Ok(Exit::Done)
    }
}
