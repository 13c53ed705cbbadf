-- The house: whose database this is, which processes write here, and whether anybody may work at all.
-- breaking: no

create table outlast._house (
  one             boolean primary key default true check (one),
  deployment      text,                       -- must equal the engine's configuration; null = a development database
  database_oid    oid not null,               -- a copy made with CREATE DATABASE .. TEMPLATE has another one
  stopped         text,                       -- not null: nobody claims until a person has looked
  installed_at    timestamptz not null default clock_timestamp()
);
insert into outlast._house (database_oid) select oid from pg_catalog.pg_database where datname = current_database();

-- A row that is never updated and knows the transaction that wrote it. While the heap is the original, the system
-- column xmin says the same; after a dump and restore or a logical copy it does not, and transaction ids restarted.
create table outlast._marker (
  own_xid         bigint not null
);
insert into outlast._marker select (pg_current_xact_id()::text::bigint) % 4294967296;

-- What a process must find again after a failover: its last acknowledged commit that let something out. Rows are
-- inserted and deleted, never updated: a hot row collects dead versions while somebody holds an old snapshot.
create table outlast._process (
  process         uuid not null,
  seq             bigint not null,
  nonce           uuid not null,
  written_at      timestamptz not null default clock_timestamp(),
  primary key (process, seq)
);
