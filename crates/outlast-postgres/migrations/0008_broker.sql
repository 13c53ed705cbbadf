-- Consumers that read a broker instead of the log: what was delivered to them and is in work, completions of ids for which
-- the ring of the inbox has no place, and messages that nobody can read.
-- breaking: no

alter table outlast._consumer
  add column broker       text check (broker ~ '^[a-z0-9._-]{1,40}$'),   -- what kind it reads, such as nats; null: the log
  add column topic        text,
  add column subscription text,
  add column ack_ms       int check (ack_ms > 0),                        -- how long a delivery is its own
  add check ((broker is null) = (topic is null) and (broker is null) = (subscription is null)),
  add check (broker is null or lanes = 1);

create index _lease_delivered on outlast._lease (consumer) where lane is null;

-- What a consumer was handed by a broker and has not settled, a row for each event: whoever gets the same event once more
-- finds it. The rows of one claim have one token; without one their owner is gone, and the broker will deliver them again.
-- Inserted and deleted, changed only when an owner was lost.
create table outlast._delivered (
  consumer        int not null references outlast._consumer (id),
  event_id        uuid not null,
  token           uuid,
  lapses          int not null default 0,      -- how many owners were lost
  suspect         boolean not null default false,   -- it had been started when one after the first was lost
  foreign_at      timestamptz,                 -- when it was emitted, if its completion has no place in the ring
  tenant          text,                        -- of an ordered consumer, with a key: whose order it is in, and where in it
  key             text,
  log_id          bigint,
  since           timestamptz not null,
  envelope        jsonb,                       -- taken over whole, with its payload: the broker does not have it any more
  payload         bytea,
  primary key (consumer, event_id),
  check (key is null or tenant is not null and log_id is not null),
  check ((envelope is null) = (payload is null)),
  check (envelope is null or token is not null)
);
create index _delivered_token on outlast._delivered (token) where token is not null;
create index _delivered_lost on outlast._delivered (since) where token is null;

-- The place in the order of its key of an event that does not say where in which log it stands: as it came.
create sequence outlast._arrival as bigint;

-- What arrived with one call, and what is to become of it (never stored).
create type outlast._arrived as (
  n int, event_id uuid, token uuid, verdict text, wait_ms int, lapses int, suspect boolean, foreign_at timestamptz,
  tenant text, key text, log_id bigint
);

-- Completions of events whose ids tell no time, or not that of their emit: other systems' messages. One row per (consumer,
-- event) as in the inbox, kept as long, by the time of their emit.
create table outlast._foreign_event (
  consumer        int not null,
  event_id        uuid not null,
  at              timestamptz not null,
  emitted_at      timestamptz not null,
  outcome         outlast._outcome not null,
  reason          text,
  primary key (consumer, event_id)
);
create index _foreign_event_emitted on outlast._foreign_event (emitted_at);

-- Up to where their proofs are gone: what is older and has no row may have been completed.
create table outlast._foreign_place (
  one             boolean primary key default true check (one),
  forgotten_until timestamptz
);
insert into outlast._foreign_place default values;

alter table outlast._parked add column foreign_id boolean not null default false;   -- its completion goes to _foreign_event

-- Completions of consumers on brokers that were moved out of their leaf of the inbox, so that it could be swept: no bit will
-- ever prove them. Looked up by the same key, and forgotten when their leaf is emptied.
create table outlast._moved_event (
  slot            smallint not null,
  consumer        int not null,
  event_id        uuid not null,
  at              timestamptz not null,
  outcome         outlast._outcome not null,
  reason          text,
  primary key (slot, consumer, event_id)
);

-- Messages without a readable envelope, as they came, until a person has looked. The same bytes are one row.
create table outlast._unreadable (
  consumer        int not null references outlast._consumer (id),
  id              uuid not null,               -- of its bytes
  seen            bigint not null default 1,
  first_at        timestamptz not null,
  last_at         timestamptz not null,
  broker_id       text not null,               -- what the broker called it, the first time
  why             text not null,
  attributes      bytea not null,              -- pairs of names and values, as JSON
  payload         bytea not null,
  primary key (consumer, id)
);
