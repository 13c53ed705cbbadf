//! `outlast jobs ls`.

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
    /// Will run: now, at its time, or when a person has decided
    Waiting,
    /// Waits for a person
    Stopped,
    /// A worker has it
    Running,
    /// Its handler has succeeded
    Done,
    /// There was nothing to do
    Skipped,
    /// Withdrawn
    Cancelled,
    /// Given up by a person
    Abandoned,
}

#[derive(Debug, Args)]
pub(super) struct Ls {
    /// Only jobs of this name
    #[arg(long)]
    name: Option<String>,
    /// Only jobs of this tenant ('' is the default tenant)
    #[arg(long)]
    tenant: Option<String>,
    /// Only the job of this key
    #[arg(long)]
    key: Option<String>,
    /// Only in this state
    #[arg(long)]
    state: Option<State>,
    /// Only jobs enqueued since: 90s, 15m, 6h, 2d ago, or a time such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME")]
    since: Option<Since>,
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

impl Ls {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        let out = global.out();
        let database = Database::to_read(global).await?;
        let (at, ago) = self.since.as_ref().map_or((None, None), Since::parts);
        let state = self.state.and_then(|state| state.to_possible_value());
        let state = state.as_ref().map(clap::builder::PossibleValue::get_name);
        let limit = i64::from(self.limit);
        let mut given: Vec<Given<'_>> = vec![
            (&self.name, Type::TEXT),
            (&self.tenant, Type::TEXT),
            (&self.key, Type::TEXT),
            (&at, Type::TEXT),
            (&ago, Type::TEXT),
            (&limit, Type::INT8),
        ];
        let sql = match &state {
            Some(_) => include_str!("../../../sql/job/list_state.sql"),
            None => include_str!("../../../sql/job/list.sql"),
        };
        if state.is_some() {
            given.push((&state, Type::TEXT));
        }
        let rows = database.rows("list jobs", sql, &given).await?;
        let jobs = rows.iter().map(Standing::from_row);
        if out.json {
            out.objects(jobs)?;
            return Ok(Exit::Done);
        }
        const HEADINGS: [&str; 9] = [
            "ID", "ENQUEUED", "NAME", "TENANT", "KEY", "STATE", "DUE", "TRIES", "REASON",
        ];
        let mut table = Table::new(HEADINGS)
            .right(["TRIES"])
            .whole(["ID", "ENQUEUED"]);
        for job in jobs {
            let (id, due, tries) = (job.id.to_string(), job.due(), job.attempt.to_string());
            table.row([
                &id,
                &text::time(job.accepted_at),
                job.name,
                job.tenant,
                job.key.unwrap_or_default(),
                job.state,
                &due,
                &tries,
                job.reason.unwrap_or_default(),
            ]);
        }
        if table.is_empty() {
            out.say("there is no such job")?;
        } else {
            out.table(&table)?;
        }
        Ok(Exit::Done)
    }
}
