-- What operators decide for all processes, and the record of what they did.
-- breaking: no

-- Only what differs from the default; the list of names and defaults is outlast._settings().
create table outlast._setting (
  name            text primary key,
  value           text not null,
  changed_at      timestamptz not null default clock_timestamp()
);

-- Every operator's action and every automatic decision, inserted in the transaction of what it records. Never changed.
create table outlast._audit (
  id              bigint generated always as identity primary key,
  at              timestamptz not null default clock_timestamp(),
  actor           text not null,               -- who: the operator's name, or the database's session user
  action          text not null,               -- such as setting.set, consumer.retired, restore.confirmed
  about           text not null,
  detail          jsonb
);

-- Where events go outside: what a relay publishes to a broker. Each route is read by a consumer of its own, relay/NAME.
create table outlast._route (
  name            text primary key check (name ~ '^[a-z0-9._-]{1,90}$'),
  broker          text not null check (broker ~ '^[a-z0-9._-]{1,90}$'),   -- which of the relay's brokers
  topic           text not null check (length(topic) between 1 and 500),  -- {type} stands for the event's type
  types           text[] not null check (cardinality(types) between 1 and 1000),
  ordered         boolean not null,            -- part of what its consumer is: never changed
  start           text not null check (start in ('now', 'earliest')),     -- when its consumer is registered for the first time
  attributes      jsonb not null check (jsonb_typeof(attributes) = 'object'),
  limits          jsonb check (jsonb_typeof(limits) = 'object'),          -- what its broker takes, as a relay has found; null: not known
  changed_at      timestamptz not null
);

-- Endpoints that `outlast run` pushes events to. Each is read by a consumer of its own, push/NAME. Keys and secret headers are only named
-- here; their values are in the settings of the processes that push.
create table outlast._endpoint (
  name            text primary key check (name ~ '^[a-z0-9._-]{1,90}$'),
  url             text not null check (url ~ '^https?://' and length(url) <= 2048),
  types           text[] not null check (cardinality(types) between 1 and 100),
  key             text not null check (key <> ''),
  headers         jsonb not null check (jsonb_typeof(headers) = 'object'),
  concurrency     int not null check (concurrency between 1 and 10000),
  rate            int check (rate > 0),         -- requests a second of one process; none: as fast as it answers
  timeout         text not null,
  deadline        text not null,
  ordered         boolean not null,
  tenants         text[] not null,              -- empty: of all
  owner           text,
  changed_at      timestamptz not null default clock_timestamp()
);
