-- Order per key: keys whose oldest unfinished event is parked, and counters that make a hole visible.
-- breaking: no

-- While a row is here, later events of this key wait behind the one that leads it. Whoever parks or releases holds the
-- row first and changes it: so the other one of the two waits, and above READ COMMITTED gets 40001.
create table outlast._parked_key (
  consumer        int not null references outlast._consumer (id),
  tenant          text not null,
  key             text not null,
  leader          uuid not null,               -- parked and not behind; or complete, under a lease that has not ended yet
  behind          int not null default 0 check (behind >= 0),
  at_limit        boolean not null default false,   -- so many are behind that the lane pauses
  since           timestamptz not null,
  primary key (consumer, tenant, key)
);
create unique index _parked_key_leader on outlast._parked_key (consumer, leader);
create index _parked_key_at_limit on outlast._parked_key (consumer) where at_limit;

-- An event and the key that it belongs to (never stored).
create type outlast._keyed as (slot smallint, id bigint, event_id uuid, tenant text, key text);

-- Emits that ask for it number the events of a key without holes, waiting for each other.
create table outlast._key_seq (
  tenant          text not null,
  type            text not null,
  key             text not null,
  last            bigint not null,
  primary key (tenant, type, key)
);
