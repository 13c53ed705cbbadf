//! The SQL files, in the order in which they are applied.

/// One numbered migration.
#[derive(Debug, serde::Serialize)]
pub struct Migration {
    /// Its number; without gaps from 1.
    pub version: u32,
    /// What it is about, one word.
    pub name: &'static str,
    /// Whether a program of the release before cannot work on the schema after it.
    pub breaking: bool,
    /// Its text.
    #[serde(skip)]
    pub sql: &'static str,
}

const fn migration(version: u32, name: &'static str, sql: &'static str) -> Migration {
    Migration {
        version,
        name,
        breaking: false,
        sql,
    }
}

/// What records the rest; the only text that is applied every time.
pub(super) const BOOTSTRAP: &str = "\
do $$ begin
  -- Asked first: `if not exists` needs the right to create one even where it exists.
  if to_regnamespace('outlast') is null then create schema outlast; end if;
end $$;
create table if not exists outlast._migration (
  version int primary key, name text not null, breaking boolean not null,
  applied_by text not null, applied_at timestamptz not null default clock_timestamp());
create table if not exists outlast._functions (
  digest text primary key, applied_by text not null, applied_at timestamptz not null default clock_timestamp());
";

/// Every migration, oldest first.
pub const MIGRATIONS: &[Migration] = &[
    migration(1, "house", include_str!("../../migrations/0001_house.sql")),
    migration(2, "event", include_str!("../../migrations/0002_event.sql")),
    migration(
        3,
        "consumer",
        include_str!("../../migrations/0003_consumer.sql"),
    ),
    migration(4, "inbox", include_str!("../../migrations/0004_inbox.sql")),
    migration(
        5,
        "setting",
        include_str!("../../migrations/0005_setting.sql"),
    ),
    migration(6, "key", include_str!("../../migrations/0006_key.sql")),
    migration(
        7,
        "retention",
        include_str!("../../migrations/0007_retention.sql"),
    ),
    migration(
        8,
        "broker",
        include_str!("../../migrations/0008_broker.sql"),
    ),
    migration(9, "job", include_str!("../../migrations/0009_job.sql")),
    migration(
        10,
        "command",
        include_str!("../../migrations/0010_command.sql"),
    ),
    migration(
        11,
        "outbox",
        include_str!("../../migrations/0011_outbox.sql"),
    ),
    migration(
        12,
        "entity",
        include_str!("../../migrations/0012_entity.sql"),
    ),
];

/// The current text of every function and view.
pub const FUNCTIONS: &[(&str, &str)] = &[
    ("clock", include_str!("../../functions/clock.sql")),
    ("setting", include_str!("../../functions/setting.sql")),
    ("limits", include_str!("../../functions/limits.sql")),
    ("check", include_str!("../../functions/check.sql")),
    ("sendable", include_str!("../../functions/sendable.sql")),
    ("emit", include_str!("../../functions/emit.sql")),
    ("landed", include_str!("../../functions/landed.sql")),
    ("leaf", include_str!("../../functions/leaf.sql")),
    ("window", include_str!("../../functions/window.sql")),
    ("lane", include_str!("../../functions/lane.sql")),
    ("lease", include_str!("../../functions/lease.sql")),
    ("fold", include_str!("../../functions/fold.sql")),
    ("claim", include_str!("../../functions/claim.sql")),
    ("few", include_str!("../../functions/few.sql")),
    ("key", include_str!("../../functions/key.sql")),
    ("finish", include_str!("../../functions/finish.sql")),
    ("needs", include_str!("../../functions/needs.sql")),
    ("retention", include_str!("../../functions/retention.sql")),
    ("plan", include_str!("../../functions/plan.sql")),
    ("parked", include_str!("../../functions/parked.sql")),
    ("operator", include_str!("../../functions/operator.sql")),
    ("enqueue", include_str!("../../functions/enqueue.sql")),
    ("job", include_str!("../../functions/job.sql")),
    ("job_groups", include_str!("../../functions/job_groups.sql")),
    ("job_claim", include_str!("../../functions/job_claim.sql")),
    (
        "job_operator",
        include_str!("../../functions/job_operator.sql"),
    ),
    ("account", include_str!("../../functions/account.sql")),
    ("exclusive", include_str!("../../functions/exclusive.sql")),
    ("command", include_str!("../../functions/command.sql")),
    (
        "command_try",
        include_str!("../../functions/command_try.sql"),
    ),
    (
        "command_operator",
        include_str!("../../functions/command_operator.sql"),
    ),
    ("entity", include_str!("../../functions/entity.sql")),
    ("entity_try", include_str!("../../functions/entity_try.sql")),
    (
        "entity_operator",
        include_str!("../../functions/entity_operator.sql"),
    ),
    ("complete", include_str!("../../functions/complete.sql")),
    ("seal", include_str!("../../functions/seal.sql")),
    ("endpoint", include_str!("../../functions/endpoint.sql")),
    ("delivered", include_str!("../../functions/delivered.sql")),
    ("handover", include_str!("../../functions/handover.sql")),
    ("unreadable", include_str!("../../functions/unreadable.sql")),
    ("consumer", include_str!("../../functions/consumer.sql")),
    ("wake", include_str!("../../functions/wake.sql")),
    ("relay", include_str!("../../functions/relay.sql")),
    ("outbox", include_str!("../../functions/outbox.sql")),
    ("outbox_end", include_str!("../../functions/outbox_end.sql")),
    (
        "outbox_claim",
        include_str!("../../functions/outbox_claim.sql"),
    ),
    ("restore", include_str!("../../functions/restore.sql")),
    ("consumers", include_str!("../../functions/consumers.sql")),
    ("verify", include_str!("../../functions/verify.sql")),
    ("views", include_str!("../../functions/views.sql")),
    // The last one: it looks at what is there.
    ("roles", include_str!("../../functions/roles.sql")),
];
