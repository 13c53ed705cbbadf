-- What each consumer completed, and what it could not complete yet.
-- breaking: no

-- How an event was completed: done, skipped. A domain, because its check is kept between statements: one of the table is
-- read anew by each of them, which is a tenth of what a single seal costs.
create domain outlast._outcome as "char" check (value in ('d', 's'));

-- One row per (consumer, event): the proof that it was completed once. The slot is a pure function of the event id,
-- so the primary key is unique across the ring.
create table outlast._processed_event (
  event_id        uuid not null,
  at              timestamptz not null,
  consumer        int not null,
  slot            smallint not null,           -- outlast._inbox_slot(event_id)
  outcome         outlast._outcome not null,
  reason          text,
  primary key (slot, consumer, event_id)
) partition by list (slot);

do $$
begin
  for s in 0..15 loop
    execute format('create table outlast._processed_event_%s partition of outlast._processed_event for values in (%s)', s, s);
  end loop;
end $$;

-- Only failures touch mutable rows. A parked event is a whole copy, so it never pins the log.
create table outlast._parked (
  consumer          int not null references outlast._consumer (id),
  event_id          uuid not null,
  log_id            bigint not null,
  state             text not null check (state in ('retry', 'behind', 'quarantined', 'waiting-version')),
  class             text not null check (class in ('retry', 'throttled', 'unknown', 'permanent', 'unclassified', 'unsealed', 'crashed', 'waiting-version', 'behind', 'too-old', 'dead-letter')),
  failures          int not null default 0,    -- charged to the event
  crashes           int not null default 0,    -- the worker died while this event ran alone, or was a suspect
  reason            text,
  signature         text,                      -- groups alike failures
  next_at           timestamptz,
  token             uuid,                      -- the lease of the try that is running, if any
  parked_at         timestamptz not null,
  changed_at        timestamptz not null,
  schema_version    smallint not null,
  emitted_at        timestamptz not null,
  aggregate_version bigint,
  key_seq           bigint,
  correlation_id    uuid,
  causation_id      uuid,
  type              text not null,
  tenant            text not null,
  key               text,
  source            text,
  subject           text,
  actor             text,
  traceparent       text,
  content_type      text not null,
  codec_key         text,
  headers           jsonb,
  payload           bytea not null,
  primary key (consumer, event_id),
  check ((state = 'retry') = (next_at is not null)),
  check (state = 'retry' or token is null),
  check (state <> 'behind' or key is not null)
);
create index _parked_due on outlast._parked (consumer, next_at) where state = 'retry';
create index _parked_waiting on outlast._parked (consumer, type, schema_version) where state = 'waiting-version';
create index _parked_since on outlast._parked (parked_at, consumer);   -- not consumer first: a probe of the primary key would take it
create index _parked_quarantined on outlast._parked (consumer, changed_at) where state = 'quarantined';
create index _parked_behind on outlast._parked (consumer, tenant, key, log_id) where state = 'behind';

-- A process that has stopped starting events of a consumer, because one after the other failed: a row while that lasts.
create table outlast._outage (
  consumer        int not null references outlast._consumer (id),
  process         uuid not null,
  since           timestamptz not null,
  seen_at         timestamptz not null,        -- its last probe, or its beginning: one that died is seen no more
  probes          int not null default 0,
  reason          text,                        -- the last failure
  primary key (consumer, process)
);
