//! `outlast adopt check`: reads a table of jobs, says what must be true before its backlog moves in, and prints the statement.

use std::collections::BTreeSet;

use clap::Args;
use outlast_core::broker::Severity::{Bad, Good};
use outlast_postgres::store::entity_of;

use super::{
    Code,
    look::Look,
    mapping::{Mapping, Runner, Told},
    statement,
    table::Table,
};
use crate::{
    args::Global,
    command::doctor::{Shown, found::Found},
    database::Database,
    out::text,
    problem::Answer,
    settings::{Base, Effective, Set},
};

#[derive(Debug, Args)]
#[command(after_help = "\
Nothing is changed: the table is read in a read-only transaction, at most --scan rows of it, and no question takes longer than
a minute. Only --rehearse runs the statement itself, on up to 1,000 rows, in a transaction that is rolled back: that is how
long it takes, and whether a trigger or a right is in the way. No payload is printed.

In your own binary (YOURS adopt check ...) names are compared with what it has handlers for.

Exit code 1 while something is bad. The page is docs/adopt.md.

Examples:
  outlast adopt check old_job
  outlast adopt check --from river --rehearse
  outlast adopt check mail_queue --name \"'send_mail'\" --payload \"jsonb_build_object('to', recipient)\" \\
    --at \"send_at at time zone 'UTC'\" --waiting 'sent_at is null' --running 'locked_until > now()'
  outlast adopt check old_job --json | jq -r 'select(.about == \"statement\").found' | psql")]
pub(super) struct Check {
    /// The table, with its schema where it is in none of the search path
    #[arg(required_unless_present = "from")]
    table: Option<String>,
    /// It is the table of this runner
    #[arg(long, value_enum, value_name = "RUNNER")]
    from: Option<Runner>,
    #[command(flatten)]
    told: Told,
    /// The names that workers have handlers for, where this program has none
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        help_heading = "What is asked"
    )]
    served: Vec<String>,
    /// How many rows are looked at
    #[arg(long, value_name = "ROWS", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..), help_heading = "What is asked")]
    scan: u32,
    /// Move up to 1,000 rows and roll that back
    #[arg(long, help_heading = "What is asked")]
    rehearse: bool,
    /// How many rows the statement moves in one commit
    #[arg(long, value_name = "ROWS", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..), help_heading = "What is asked")]
    portion: u32,
}

impl Check {
    pub(super) async fn run(&self, global: &Global, code: Option<Code<'_>>) -> Answer {
        let base = code.map_or_else(Base::default, |(base, _)| base.clone());
        let effective = Effective::load(global, &Set::default(), &base)?;
        let target = effective.target()?.application_name("outlast-adopt");
        let mut database = Database::reading(target).await?;
        let name = self.table.as_deref().or(self.from.map(Runner::table));
        let table = Table::find(&database, name.unwrap_or_default()).await?;
        let mapping = Mapping::of(&self.told, self.from, &table);
        let mut all = Shown::new(global.out());
        let mut look = Look {
            scan: self.scan,
            rehearses: self.rehearse,
            database: &mut database,
            table: &table,
            mapping: &mapping,
            served: self.served(code),
            waiting: 0.0,
        };
        all.show(look.of_table())?;
        let columns = look.of_columns().await?;
        let readable = columns.iter().all(|one| one.severity != Bad);
        all.show(columns)?;
        if readable && table.reads {
            all.show(look.of_rows().await?)?;
            all.show([look.time().await?])?;
        }
        if readable && !table.key.is_empty() {
            let schema = look.database.schema();
            let moves = statement::moves(&table, &mapping, schema, self.portion);
            match global.json {
                true => all.show([Found::new(Good, "move", "statement", moves, "")])?,
                false => global.out().say(&format!(
                    "\nmoves {} rows at a time; run it until it moves none:\n\n{};",
                    self.portion,
                    text::lines(&moves)
                ))?,
            }
        }
        all.end()
    }

    /// The names with a handler; none: nobody here knows.
    fn served(&self, code: Option<Code<'_>>) -> Option<BTreeSet<String>> {
        let ours = code.into_iter().flat_map(|(_, jobs)| jobs);
        let ours = ours.filter(|job| !job.is_command && entity_of(job.queue).is_none());
        let names = self
            .served
            .iter()
            .cloned()
            .chain(ours.map(|job| job.name.to_owned()));
        (code.is_some() || !self.served.is_empty()).then(|| names.collect())
    }
}
