-- Order per key: keys whose oldest unfinished event is parked, and counters that make a hole visible.
-- breaking: no

-- While a row is here, later events of this key wait behind the parked one. Whoever parks or releases updates the row
-- first, so that the other one of the two sees it: also above READ COMMITTED, where a mere lock would not raise 40001.
create table outlast._parked_key (
  consumer        int not null references outlast._consumer (id),
  tenant          text not null,
  key             text not null,
  behind          int not null default 0 check (behind >= 0),
  since           timestamptz not null,
  primary key (consumer, tenant, key)
);

-- Emits that ask for it number the events of a key without holes, waiting for each other.
create table outlast._key_seq (
  tenant          text not null,
  type            text not null,
  key             text not null,
  last            bigint not null,
  primary key (tenant, type, key)
);
