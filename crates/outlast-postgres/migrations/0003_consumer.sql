-- Consumers, their place in the log, and the one lease table.
-- breaking: no

-- A tick is a consistent cut through the log. Order of its making is its meaning: snapshot, then hi, then h.
create type outlast._tick as (
  snap            pg_snapshot,                 -- what had committed
  hi              bigint,                      -- the last id drawn before h
  h               xid8,                        -- an own transaction id, drawn after hi was read
  at              timestamptz,                 -- read after snap, before hi: between what snap sees and any id above hi
  open            xid8[],                      -- transactions of the snapshot still running that may own ids <= hi
  open_at         timestamptz[],               -- for each: its events are not older than this
  young           xid8,                        -- ids <= hi may also belong to [young, h]; null when nothing was drawn since
  young_at        timestamptz,
  base            bigint                       -- ids <= base had committed or never will, whatever their xid: see _rebase
);

-- As much of a tick as it takes to say what was before it.
create type outlast._cut as (snap pg_snapshot, hi bigint, base bigint);

create table outlast._consumer (
  id              int generated always as identity primary key,
  name            text not null unique,
  ordered         boolean not null,
  lanes           int not null check (lanes between 1 and 1024 and (ordered or lanes = 1)),
  tenants         text[] check (cardinality(tenants) > 0),      -- only events of these; null: of all
  sources         text[] check (cardinality(sources) > 0),      -- only events from these; null: from all
  start           text not null check (start in ('now', 'earliest')),
  began           outlast._cut not null,       -- what this sees was before the consumer's time
  local           boolean not null default false,   -- its effects are rows of this database, never anything outside
  owner           text,
  state           text not null default 'active' check (state in ('active', 'paused', 'retired')),
  reason          text,
  attempts        int not null default 8 check (attempts > 0),
  behind_most     int not null default 10000 check (behind_most > 0),   -- behind one key, then its lane pauses
  created_at      timestamptz not null default clock_timestamp(),
  -- While the number of lanes is being changed: every lane goes as far as this tick, then there are so many.
  lanes_wanted    int check (lanes_wanted between 1 and 1024),
  lanes_until     outlast._tick,
  check ((lanes_wanted is null) = (lanes_until is null))
);

-- Names that consumers had before. Code that still registers one is told so: it must not begin a second consumer.
create table outlast._former_name (
  name            text primary key,
  consumer        int not null references outlast._consumer (id),
  renamed_at      timestamptz not null default clock_timestamp()
);

create table outlast._consumer_type (
  consumer        int not null references outlast._consumer (id),
  type            text not null,               -- or a pattern: what begins with all but its last character, a *
  since           outlast._cut,                -- null: from the consumer's start; else only what this does not see
  primary key (consumer, type)
);

-- A claim and, in the newest row of a lane, its progress. Inserted and deleted, never updated. A batch is in flight
-- while a lease names it; without one it is only the place where the lane stands. A row says for itself what belongs
-- to it: the keys of its part (lane % 1024 of `parts`; an unordered consumer has one part) and, where tenants were
-- taken apart so that none waits behind another one's backlog, the tenants. A part has a main lane, numbered as the
-- part, and side lanes, numbered part + 1024 n: what they hold, the main lane leaves out.
-- What a row can never be is asked by `verify`, not by checks: those are read and prepared anew by each
-- insert, which was a fourteenth of what a claim of one event costs.
create table outlast._batch (
  consumer        int not null,
  lane            int not null,
  seq             bigint not null,
  a               outlast._tick not null,      -- the window is (a, b]
  b               outlast._tick not null,
  lo              bigint not null,             -- this batch holds lo < id <= hi of the window
  hi              bigint not null,
  events          int not null,
  claimed_at      timestamptz not null,
  parts           int not null,
  tenants         text[],                      -- of a side lane: these only
  without         text[],                      -- of a main lane: all but these, which side lanes hold
  sides           int[],                       -- of a main lane: its side lanes
  primary key (consumer, lane, seq)
);

-- Who owns what is in flight, for every room. Renewal updates expires_at only (no index on it: the update stays HOT);
-- a reclaim is a delete and an insert with a new token, so that a stale token never matches again.
create domain outlast._room as text check (value in ('batch', 'parked', 'delivered', 'poller', 'maintenance', 'rewind', 'job', 'outbox'));
create table outlast._lease (
  token           uuid primary key,
  room            outlast._room not null,      -- a domain, because its check is kept between statements
  consumer        int,
  lane            int,                         -- of a batch, and of nothing else; seq too
  seq             bigint,
  event_id        uuid,                        -- of what is parked; the nil id of a rewind: a consumer has one at a time
  reclaims        int not null default 0,
  process         uuid,
  holder          text,
  events          int,                         -- of a batch as it was claimed: how many, and their ids, hashed and joined by xor
  ids_xor         bigint,
  expires_at      timestamptz not null
) with (fillfactor = 50);
-- Each insert prepares the conditions of all indexes; to compare a text costs it five times what a null does.
create unique index _lease_batch on outlast._lease (consumer, lane, seq) where lane is not null;
create unique index _lease_parked on outlast._lease (consumer, event_id) where event_id is not null;
create unique index _lease_elected on outlast._lease (room) where consumer is null and room in ('poller', 'maintenance');   -- one of each

-- From where on a lane may have leases: below it none is left, and none comes. The newest row of a lane counts. What is
-- dead of leases stays in their index while somebody holds an old snapshot.
create table outlast._lease_floor (
  consumer        int not null,
  lane            int not null,
  seq             bigint not null,
  primary key (consumer, lane, seq)
);

-- Which events of a batch that was already reclaimed once are about to start: one row per flush.
create table outlast._started (
  token           uuid not null,
  seq             bigint not null,
  ids             uuid[] not null,
  primary key (token, seq)
);

-- What one seal of a batch has written: how many events, and their ids as in _lease.ids_xor. Committed with its rows.
create table outlast._flush (
  token           uuid not null,
  events          int not null,
  ids_xor         bigint not null
);
create index _flush_token on outlast._flush (token);

-- What a scan of the log finds, and what a claim hands out (never stored).
create type outlast._found as (slot smallint, id bigint, event_id uuid, lane int, size int, more boolean);
create type outlast._claimed as (
  token uuid, event_id uuid, log_id bigint, type text, schema_version int, tenant text, key text, actor text,
  correlation_id uuid, causation_id uuid, traceparent text, headers jsonb, source text, subject text,
  aggregate_version bigint, content_type text, codec_key text, payload bytea, emitted_at timestamptz,
  attempt int,                                 -- 1 + reclaims of its batch + failures charged to it
  reclaims int,                                -- of its batch: from 1 on, starts are marked
  lane int,                                    -- of its batch: from 1024 on a side lane; null for a parked event
  key_seq bigint
);
