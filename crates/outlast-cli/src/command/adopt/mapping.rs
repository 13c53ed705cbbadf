//! What of another system's table means what: told by flags, known of a runner, or guessed by the names of its columns.

use clap::{Args, ValueEnum};

use super::table::Table;

/// Expressions over the table's columns.
#[derive(Clone, Debug, Default, Args)]
#[command(
    next_help_heading = "What of it means what: a column, or any SQL expression of its columns"
)]
pub(super) struct Told {
    /// The job's name: 1 to 100 of a-z 0-9 . _ / -
    #[arg(long, value_name = "SQL")]
    name: Option<String>,
    /// Its payload: JSON
    #[arg(long, value_name = "SQL")]
    payload: Option<String>,
    /// What is the same job as what [default: the table's name and its primary key]
    #[arg(long, value_name = "SQL")]
    key: Option<String>,
    /// Whose it is [default: '']
    #[arg(long, value_name = "SQL")]
    tenant: Option<String>,
    /// Not before then [default: now]
    #[arg(long, value_name = "SQL")]
    at: Option<String>,
    /// The lower runs sooner: -100 to 100 [default: 0]
    #[arg(long, value_name = "SQL")]
    priority: Option<String>,
    /// Which rows still have to run [default: all]
    #[arg(long, value_name = "SQL")]
    waiting: Option<String>,
    /// Which rows the old runner has in hand: they stay with it
    #[arg(long, value_name = "SQL")]
    running: Option<String>,
}

/// Runners whose tables are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Runner {
    /// river_job
    River,
    /// oban_jobs
    Oban,
    /// graphile_worker._private_jobs
    GraphileWorker,
    /// pgboss.job
    PgBoss,
    /// good_jobs
    GoodJob,
}

impl Runner {
    pub(super) fn table(self) -> &'static str {
        match self {
            Self::River => "river_job",
            Self::Oban => "oban_jobs",
            Self::GraphileWorker => "graphile_worker._private_jobs",
            Self::PgBoss => "pgboss.job",
            Self::GoodJob => "good_jobs",
        }
    }

    /// As what its columns mean. Their times without a zone are UTC, and some of their names are not spelled as ours.
    fn told(self) -> Told {
        let [name, payload, at, priority, waiting, running] = match self {
            Self::River => [
                "kind",
                "args",
                "scheduled_at",
                "priority",
                "state in ('available', 'pending', 'retryable', 'scheduled')",
                "state = 'running'",
            ],
            Self::Oban => [
                "lower(worker)",
                "args",
                "scheduled_at at time zone 'UTC'",
                "priority",
                "state in ('available', 'scheduled', 'retryable')",
                "state = 'executing'",
            ],
            Self::GraphileWorker => [
                "(select t.identifier from graphile_worker._private_tasks t where t.id = task_id)",
                "payload",
                "run_at",
                "greatest(-100, least(100, priority))",
                "attempts < max_attempts",
                "locked_at is not null",
            ],
            Self::PgBoss => [
                "name",
                "coalesce(data, 'null')",
                "start_after",
                "greatest(-100, least(100, -priority))",
                "state in ('created', 'retry')",
                "state = 'active'",
            ],
            Self::GoodJob => [
                "lower(replace(job_class, '::', '.'))",
                "serialized_params",
                "scheduled_at at time zone 'UTC'",
                "greatest(-100, least(100, coalesce(priority, 0)))",
                "finished_at is null",
                "performed_at is not null and finished_at is null",
            ],
        }
        .map(|sql| Some(sql.to_owned()));
        Told {
            name,
            payload,
            at,
            priority,
            waiting,
            running,
            ..Told::default()
        }
    }
}

/// Where an expression comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Flag,
    Runner,
    Guessed,
    Default,
}

impl Origin {
    pub(super) fn says(self) -> &'static str {
        match self {
            Self::Flag => "as told",
            Self::Runner => "as that runner has it",
            Self::Guessed => "guessed by its name",
            Self::Default => "by default",
        }
    }
}

/// One of them.
#[derive(Clone, Debug)]
pub(super) struct Expression {
    pub(super) sql: String,
    pub(super) origin: Origin,
}

/// All of them. `None`: nothing of the table says it.
#[derive(Clone, Debug)]
pub(super) struct Mapping {
    pub(super) name: Option<Expression>,
    pub(super) payload: Option<Expression>,
    pub(super) key: Option<Expression>,
    pub(super) tenant: Option<Expression>,
    pub(super) at: Option<Expression>,
    pub(super) priority: Option<Expression>,
    pub(super) waiting: Option<Expression>,
    pub(super) running: Option<Expression>,
}

impl Mapping {
    pub(super) fn of(told: &Told, runner: Option<Runner>, table: &Table) -> Self {
        let known = runner.map(Runner::told).unwrap_or_default();
        let find = |told: &Option<String>, known: Option<String>, guesses: &[&str]| {
            let made = |sql, origin| Expression { sql, origin };
            let guess = || {
                let there = |guess: &&&str| table.columns.iter().any(|column| *column == ***guess);
                let guess = guesses.iter().find(there).filter(|_| runner.is_none());
                guess.map(|guess| made((*guess).to_owned(), Origin::Guessed))
            };
            told.clone()
                .map(|sql| made(sql, Origin::Flag))
                .or(known.map(|sql| made(sql, Origin::Runner)))
                .or_else(guess)
        };
        let locked = find(&None, None, &["locked_at", "locked_by"]).map(|one| Expression {
            sql: format!("{} is not null", one.sql),
            ..one
        });
        let ended = find(
            &None,
            None,
            &["finished_at", "completed_at", "finalized_at"],
        );
        let open = ended.map(|one| Expression {
            sql: format!("{} is null", one.sql),
            ..one
        });
        let key = table.key_text().map(|sql| Expression {
            sql,
            origin: Origin::Default,
        });
        Self {
            name: find(
                &told.name,
                known.name,
                &["job_name", "kind", "job_type", "task_type", "name", "type"],
            ),
            payload: find(
                &told.payload,
                known.payload,
                &["payload", "args", "arguments", "data", "body"],
            ),
            key: find(&told.key, None, &[]).or(key),
            tenant: find(&told.tenant, None, &["tenant", "tenant_id"]),
            at: find(
                &told.at,
                known.at,
                &["run_at", "scheduled_at", "due_at", "start_after"],
            ),
            priority: find(&told.priority, known.priority, &["priority"]),
            waiting: find(&told.waiting, known.waiting, &[]).or(open),
            running: find(&told.running, known.running, &[]).or(locked),
        }
    }
}
