-- Jobs: work that may run twice. What was accepted is never changed; who has it in hand, when it is due and how it ended
-- are rows of their own, inserted and deleted, so that an old snapshot holds back as little as possible.
-- breaking: no

-- Domains, because their checks are kept between statements.
create domain outlast._job_kind as "char" check (value in ('j', 'c', 'e'));         -- job, command, entity
create domain outlast._job_end_state as "char" check (value in ('d', 's', 'x', 'a', 't', 'r', 'o'));   -- done, skipped, cancelled, abandoned; settled, rejected, obsolete

-- What was accepted; of an entity, what is known of it now. Its state follows from the rows beside it: it has ended, or it is in exactly one of ready, later and
-- claimed, or a person must look (state.incident).
create table outlast._job (
  id              uuid primary key,            -- v7, on the database's clock
  kind            outlast._job_kind not null,
  name            text not null,
  tenant          text not null,
  key             text,
  account         text not null,               -- '': none
  priority        smallint not null,           -- lower runs sooner, within its tenant
  attempts        smallint,                    -- tries before a person must look; null: the default
  schema_version  smallint not null,
  accepted_at     timestamptz not null,
  correlation_id  uuid,
  causation_id    uuid,
  source          text,
  actor           text,
  traceparent     text,
  content_type    text not null,
  codec_key       text,
  payload         bytea not null
);

-- Identities: the same key of a name is one job for as long as it lives, whatever becomes of the job's own row.
create table outlast._job_key (
  tenant          text not null,
  kind            outlast._job_kind not null,
  name            text not null,
  key             text not null,
  job             uuid not null,
  rule            smallint not null,           -- which digest: 1 = name and content, 2 = the caller's own
  digest          bytea not null,
  taken_at        timestamptz not null,
  lives_until     timestamptz,                 -- null: for ever
  primary key (tenant, kind, name, key)
);
create index _job_key_lives on outlast._job_key (lives_until) where lives_until is not null;

-- What may run now, each name, account and tenant by itself, in order. `seq` is of the log's sequence: whoever looks at that
-- sees that something has come. Taking is deleting.
create table outlast._job_ready (
  seq             bigint not null,
  priority        smallint not null,
  id              uuid not null,
  name            text not null,
  account         text not null,
  tenant          text not null,
  primary key (name, account, tenant, priority, seq)
);
create unique index _job_ready_id on outlast._job_ready (id);

-- What may run later. `alone`: its worker died while it ran; it waits here until a process takes it by itself.
create table outlast._job_later (
  id              uuid primary key,
  due_at          timestamptz not null,
  name            text not null,
  alone           boolean not null
);
create index _job_later_due on outlast._job_later (due_at) where not alone;
create index _job_later_alone on outlast._job_later (name, due_at) where alone;

-- When what waits for its time was last looked at from the beginning (the newest row counts). Under an old snapshot all that ever
-- waited lies there dead: in between nothing is looked at that was due a minute before that.
create table outlast._job_look (
  at              timestamptz primary key
);

-- What is in work, under the leases of _lease (room job). A lease may own many.
create table outlast._job_claimed (
  id              uuid primary key,
  token           uuid not null,
  account         text not null default '',
  started         boolean not null default false   -- written before it starts, for what was claimed before by one that died
);
create index _job_claimed_token on outlast._job_claimed (token);
create index _job_claimed_account on outlast._job_claimed (account) where account <> '';
create index _lease_job on outlast._lease (token) where room = 'job';

-- What the straight way does not need: failures, deaths of workers, what a person must look at. One that ran at once has none.
create table outlast._job_state (
  id              uuid primary key,
  failures        int not null default 0,      -- charged to it
  lapses          int not null default 0,      -- workers that were lost while they had it
  crashes         int not null default 0,      -- of those, the ones during which it ran
  class           text,                        -- of the last failure
  reason          text,
  signature       text,
  incident_at     timestamptz,                 -- nothing runs it until a person has decided
  cancel          text,                        -- asked to go while it ran: why
  cancel_by       text,
  changed_at      timestamptz not null
);
create index _job_state_incident on outlast._job_state (incident_at) where incident_at is not null;

-- How it ended. Kept as long as retention.job says, and its job with it.
create table outlast._job_end (
  id              uuid primary key,
  at              timestamptz not null,
  state           outlast._job_end_state not null,
  reason          text
);
create index _job_end_at on outlast._job_end (at);

-- Names that nobody takes work of, until a person says so.
create table outlast._job_pause (
  name            text primary key,
  reason          text not null,
  actor           text not null,
  since           timestamptz not null
);

-- What has something ready, and above which place; what a claim hands out (never stored).
create type outlast._job_group as (account text, tenant text, priority smallint, above bigint);
create type outlast._taken_job as (
  token uuid, id uuid, kind "char", name text, tenant text, key text, account text, priority smallint, seq bigint,
  schema_version int, attempt int, lapses int, accepted_at timestamptz, correlation_id uuid, causation_id uuid,
  source text, actor text, traceparent text, content_type text, codec_key text, payload bytea,
  next "char", state text, moves int, provider_key text, reference text,   -- of a command
  entity jsonb                                   -- of an entity: fence, refs, tombstones
);
