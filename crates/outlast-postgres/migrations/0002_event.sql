-- The event log: append-only, never updated, in a ring of sixteen partitions made once.
-- breaking: no

-- CACHE 1 is part of the correctness of windows: a session that keeps ids in reserve would write below a tick's `hi`.
create sequence outlast._event_id as bigint cache 1;

create table outlast._event (
  slot              smallint not null,         -- outlast._log_slot(emitted_at)
  schema_version    smallint not null,
  id                bigint not null,
  xid               xid8 not null,             -- the emitting top-level transaction, taken before id is drawn
  event_id          uuid not null,             -- v7, on the database's clock
  emitted_at        timestamptz not null,      -- taken after id is drawn
  aggregate_version bigint,
  key_seq           bigint,                    -- its number within its key, for emits that asked (a check here would be prepared by each emit)
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
  primary key (slot, id)
) partition by list (slot);

do $$
begin
  for s in 0..15 loop
    execute format('create table outlast._event_%s partition of outlast._event for values in (%s)', s, s);
  end loop;
end $$;

create index _event_xid on outlast._event (xid, id);
-- Unique, with the leaf, so that a look-up by id and leaf is one probe whatever the statistics say: with a plain index and
-- none of them it was a bitmap of the whole leaf (1 ms an event).
create unique index _event_event_id on outlast._event (event_id, slot);
create index _event_key on outlast._event (key, id) where key is not null;

-- Caller-chosen keys: the same intent twice is one event.
create table outlast._dedup (
  tenant          text not null,
  type            text not null,
  key             text not null,
  rule            smallint not null,           -- which digest rule: 1 = type, content type, payload bytes; 2 = the caller's, of what he encrypted
  digest          bytea not null,
  event_id        uuid not null,
  taken_at        timestamptz not null,
  primary key (tenant, type, key)
);
