-- Outbox tables of other systems that a relay reads as they are: which they are, and what of them is in work. Nothing of ours
-- is written into theirs.
-- breaking: no

-- One outbox table each, read by a consumer of its own, outbox/NAME.
create table outlast._outbox (
  name            text primary key check (name ~ '^[a-z0-9._-]{1,90}$'),
  broker          text not null check (broker ~ '^[a-z0-9._-]{1,90}$'),   -- which of the relay's brokers
  ordered         boolean not null,            -- part of what its consumer is: never changed
  definition      jsonb not null check (jsonb_typeof(definition -> 'columns') = 'object'),   -- as it was applied: which table, which columns
  identity        text not null check (identity <> ''),   -- what event ids are derived from, beside the row's id and time
  changed_at      timestamptz not null
);

-- Rows of theirs that somebody publishes, or may have published. Inserted by a claim, deleted when the broker has confirmed, in
-- the commit that deletes theirs. Without a token nobody has it: its owner was lost, or has put it off.
create table outlast._outbox_row (
  consumer        int not null,
  row_id          text not null,               -- of theirs, as text
  row_at          bigint not null,             -- its time in microseconds since 1970; 0 where they have none
  event_id        uuid not null,
  token           uuid,
  n               int not null,                -- its place in the claim
  tenant          text,                        -- of an ordered outbox, with a key: whose order it is in
  key             text,
  lapses          int not null default 0,      -- how many owners were lost
  since           timestamptz not null,        -- first claimed
  primary key (consumer, row_id, row_at),
  check (key is null or tenant is not null)
);
create index _outbox_row_token on outlast._outbox_row (token) where token is not null;
create index _outbox_row_free on outlast._outbox_row (consumer) where token is null;
create index _outbox_row_key on outlast._outbox_row (consumer, tenant, key) where key is not null;

create index _lease_outbox on outlast._lease (consumer) where room = 'outbox';

-- How a table of theirs is asked: pieces of statements, all names quoted (never stored).
create type outlast._outbox_map as (
  name text, identity text, ordered boolean, relation text, oid oid, kind "char",
  id_type text,                                -- what a row_id is cast to
  at text,                                     -- the time of a row, as in _outbox_row.row_at
  row text,                                    -- the row of an id $1 and an `at` $2
  joined text,                                 -- the row of an _outbox_row called r
  fields text,                                 -- row_id, row_at, time, tenant, key, topic, type, headers, size
  payload text, pending text, key text, tenant text, sorted text,
  done text,                                   -- deletes, or marks, rows of ids $1 and times $2
  needs_topic boolean, content_type text
);

-- A row of theirs that a claim has found (never stored).
create type outlast._outbox_found as (
  row_id text, row_at bigint, "time" timestamptz, tenant text, key text, topic text, type text, headers jsonb, size bigint,
  lapses int, nth bigint                       -- of its key; else in which block it stands
);
