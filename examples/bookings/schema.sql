-- The application's own tables. Outlast's are in a schema of their own (`outlast migrate`).

create table booking (
  id bigint generated always as identity primary key,
  request text not null unique,              -- the client's own name for it: a repeated request is no second booking
  guest text not null,
  total numeric(12, 2) not null
);

create table deposit (
  booking bigint primary key references booking,
  amount numeric(12, 2) not null constraint a_deposit_is_paid check (amount > 0)
);

create table delivery (
  id text primary key,                       -- the sender's name for it: a repeated delivery is no second event
  type text not null,
  received_at timestamptz not null default now()
);

-- What the consumers write. No unique constraints, on purpose: anything handled twice would be here twice.

create table ledger (
  booking bigint not null,
  event uuid not null,
  total numeric(12, 2) not null
);

create table archive (
  event uuid not null,
  type text not null,
  key text,
  sha256 bytea not null
);
