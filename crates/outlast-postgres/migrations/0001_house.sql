-- The house: whose database this is, which processes write here, and whether anybody may work at all.
-- breaking: no

create table outlast._house (
  one             boolean primary key default true check (one),
  deployment      text,                       -- must equal the engine's configuration; null = a development database
  database_oid    oid not null,               -- a copy made with CREATE DATABASE .. TEMPLATE has another one
  stopped         text,                       -- not null: nobody claims until a person has looked
  held            text,                       -- not null: what leaves the database waits until a person has looked
  confirmed       bigint not null default 0,  -- how often a person let work go on after such a stop
  base            bigint not null default 0,  -- ids up to it had ended when transaction ids restarted: see outlast._rebase
  installed_at    timestamptz not null default clock_timestamp()
);
insert into outlast._house (database_oid) select oid from pg_catalog.pg_database where datname = current_database();

-- Two rows that are never updated and know the transaction that wrote them. While the heap is the original, the system
-- column xmin says the same; after a dump and restore or a logical copy it does not, and transaction ids restarted. New
-- servers begin with the same few hundred ids, so one row could be right by chance; two that were written some ids apart
-- cannot: a copy writes all rows in one transaction or each in the next.
create table outlast._marker (
  own_xid         bigint not null
);
do $$
begin
  for i in 1..8 loop
    begin
      insert into outlast._marker values (0);
      if i in (1, 8) then
        insert into outlast._marker select m.xmin::text::bigint from outlast._marker m where m.own_xid = 0;
      end if;
      delete from outlast._marker m where m.own_xid = 0;
    exception when raise_exception then null;   -- a handler makes it a transaction within this one, with an id of its own
    end;
  end loop;
end $$;

-- What a process must find again after a failover: its last acknowledged commit that let something out. Rows are
-- inserted and deleted, never updated: a hot row collects dead versions while somebody holds an old snapshot.
create table outlast._process (
  process         uuid not null,
  seq             bigint not null,
  nonce           uuid not null,
  written_at      timestamptz not null default clock_timestamp(),
  server          timestamptz not null default pg_postmaster_start_time(),   -- the run of the server that took it in
  primary key (process, seq)
);

-- Runs of the server that workers have met: a new timeline is a promotion, or the end of a restore.
create table outlast._server (
  started         timestamptz not null,
  timeline        text not null,              -- '' where the server does not tell
  replayed        timestamptz,                -- the last transaction that it took over before it became the primary
  seen_at         timestamptz not null default clock_timestamp(),
  primary key (started, timeline)
);

-- Processes whose last acknowledged commit is not here: history was rewound.
create table outlast._missing (
  process         uuid primary key,
  told            bigint not null,            -- the number of the commit that the process was told of
  known           bigint,                     -- the last of its commits that is here, if any
  found_at        timestamptz not null default clock_timestamp()
);
