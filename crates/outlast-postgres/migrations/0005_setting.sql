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
