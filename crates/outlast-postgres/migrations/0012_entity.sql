-- Entities: what must look the same somewhere else. Applications only insert marks: an upsert of a counter made business
-- transactions fail (40001 after a renewal, deadlocks for A, B against B, A) and starved claims. What is due, in work, failing
-- or stopped of an entity stands in the tables of jobs: it is a job of kind e that may become ready again.
-- breaking: no

-- What applications have said and nobody has looked at yet. Inserted and deleted, never updated; `id` is of the log's
-- sequence, drawn after the transaction id, so whoever looks there sees that something has come.
create table outlast._entity_mark (
  id              bigint not null,
  name            text not null,
  tenant          text not null,
  entity_id       text not null,
  exclusive       text,
  schema_version  smallint not null,
  marked_at       timestamptz not null,
  correlation_id  uuid,
  causation_id    uuid,
  actor           text,
  traceparent     text,
  content_type    text not null,
  codec_key       text,
  payload         bytea,                       -- null: what is known of it
  refs            bytea,                       -- not null: it is gone, and these must be cleaned up
  refs_codec_key  text,
  refs_digest     bytea,                       -- refs with another one are another duty
  primary key (id, marked_at),                 -- ids of a copied database may come again before a person has looked at it
  check ((refs is null) = (refs_digest is null))
);

-- Up to where all marks were taken. The newest row counts: nothing at or below `below` is left, and nothing comes there any
-- more. `next` is so too once every transaction before `xid` has ended. Under an old snapshot what is below it lies there dead.
create table outlast._entity_look (
  xid             xid8 primary key,
  below           bigint not null,
  next            bigint not null,
  at              timestamptz not null
);

-- What is known of each that was ever marked, and not forgotten. Its job has the same id.
create table outlast._entity (
  id              uuid primary key,
  name            text not null,
  tenant          text not null,
  entity_id       text not null,
  exclusive       text,                        -- of its newest mark
  marked_at       timestamptz not null,        -- its newest mark
  gone            boolean not null default false,   -- its newest mark says that it was deleted
  again           boolean not null default false,   -- marked since it was claimed last
  seen            bigint[] not null default '{}',   -- the tombstones that its last claim has handed out
  fence           bigint not null default 0,   -- of its last claim
  converged_at    timestamptz,                 -- nothing is due of it since then; null: it is ready, later, in work, or a person has it
  converged_by    uuid,                        -- the claim of its last completion
  refs            bytea,                       -- what was kept
  refs_codec_key  text,
  refs_digest     bytea,
  kept_now        boolean not null default false,   -- .. under its last claim
  unique (name, tenant, entity_id),
  check ((refs is null) = (refs_digest is null)),
  check (converged_at is null or not again)
) with (fillfactor = 80);
create index _entity_converged on outlast._entity (converged_at) where refs is null and converged_at is not null;

-- What was deleted and is not known to be cleaned up.
create table outlast._tombstone (
  id              bigint primary key,          -- of the log's sequence
  entity          uuid not null,
  digest          bytea not null,
  refs            bytea not null,
  codec_key       text,
  actor           text,
  deleted_at      timestamptz not null
);
create index _tombstone_entity on outlast._tombstone (entity, id);
create index _tombstone_digest on outlast._tombstone (entity, digest);

-- Refs that somebody wanted to keep whose lease was lost: what he has just made somewhere else, nobody else knows of.
create table outlast._late_refs (
  id              bigint generated always as identity primary key,
  entity          uuid not null,
  at              timestamptz not null,
  token           uuid not null,
  refs            bytea not null,
  codec_key       text
);
create index _late_refs_entity on outlast._late_refs (entity);
