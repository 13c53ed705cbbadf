-- The one clock. Leases and due times are decided by it, never by now(), which is the start of the caller's transaction.
create or replace function outlast.clock() returns timestamptz
language sql volatile parallel safe
as $$ select clock_timestamp() $$;

-- Seconds since 1970. Through an interval, because that is immutable: only then is it inlined into its callers (as a
-- stable expression inside of an immutable function it was parsed on every call).
create or replace function outlast._epoch(at timestamptz) returns numeric
language sql immutable parallel safe
as $$ select extract(epoch from at - timestamptz '1970-01-01 00:00:00+00') $$;

-- Which leaf of the log holds an event of this time (12 hours a slot). In float8: the bounds of slots are whole seconds,
-- which it holds exactly, and numeric took three times as long.
create or replace function outlast._log_slot(at timestamptz) returns smallint
language sql immutable parallel safe
as $$ select (floor(date_part('epoch', at - timestamptz '1970-01-01 00:00:00+00') / 43200)::int & 15)::smallint $$;

-- Which leaf of the inbox holds an event of this id: by the milliseconds inside the v7 id (3 days a slot).
create or replace function outlast._inbox_slot(id uuid) returns smallint
language sql immutable parallel safe
as $$ select ((('x' || substr(replace(id::text, '-', ''), 1, 12))::bit(48)::bigint / 259200000) % 16)::smallint $$;

-- The leaves of the inbox for these ids; nearly always one, which is told by comparing them with its bounds.
create or replace function outlast._inbox_slots(ids uuid[]) returns smallint[]
language plpgsql immutable parallel safe
as $$
declare
  n bigint;
  lo uuid;
  up uuid;
begin
  if cardinality(ids) = 1 then return array[outlast._inbox_slot(ids[1])]; end if;
  n := ('x' || substr(replace(ids[1]::text, '-', ''), 1, 12))::bit(48)::bigint / 259200000;
  lo := rpad(lpad(to_hex(n * 259200000), 12, '0'), 32, '0')::uuid;
  up := rpad(lpad(to_hex((n + 1) * 259200000), 12, '0'), 32, '0')::uuid;
  if not exists (select from unnest(ids) u where u < lo or u >= up) then return array[n % 16]; end if;
  return array(select distinct outlast._inbox_slot(u) from unnest(ids) u);
end $$;

-- Ids as one number of 64 bits. Two sets of as many ids that have the same are taken for one: that another set has it by
-- chance is as likely as that a hash of 64 bits collides, and no caller chooses what is in a batch.
-- Not sql: with an aggregate that is planned anew in each statement that calls it, three times as dear as one id's hash is now.
create or replace function outlast._ids_xor(ids uuid[]) returns bigint
language plpgsql immutable parallel safe
as $$
begin
  if cardinality(ids) = 1 then return outlast._id_hash(ids[1]); end if;
  return (select coalesce(bit_xor(outlast._id_hash(u)), 0) from unnest(ids) u);
end $$;

create or replace function outlast._id_hash(id uuid) returns bigint
language sql immutable parallel safe
as $$ select uuid_hash_extended(id, 7314) $$;

-- The time inside a v7 id, to the millisecond.
create or replace function outlast._v7_time(id uuid) returns timestamptz
language sql immutable parallel safe
as $$ select to_timestamp(('x' || substr(replace(id::text, '-', ''), 1, 12))::bit(48)::bigint / 1000.0) $$;

-- The leaves of the log that hold events emitted between two times, oldest first. An hour on both sides covers a
-- clock that was set; from 15 slots on it is all of them, and so it is between times of another server's clock.
create or replace function outlast._log_slots(since timestamptz, until timestamptz) returns smallint[]
language plpgsql immutable parallel safe
as $$
declare
  last bigint;
  first bigint;
begin
  if since > '-infinity' and until > '-infinity' then
    last := floor((date_part('epoch', until - timestamptz '1970-01-01 00:00:00+00') + 3600) / 43200);
    first := floor((date_part('epoch', since - timestamptz '1970-01-01 00:00:00+00') - 3600) / 43200);
    -- Nearly always one, sometimes two.
    if first = last then return array[(last & 15)::smallint]; end if;
  else
    last := case when until = '-infinity' then 15 else floor(outlast._epoch(until + interval '1 hour') / 43200) end;
    first := case when since = '-infinity' then last - 15
             else floor(outlast._epoch(since - interval '1 hour') / 43200) end;
  end if;
  return array(select (s % 16)::smallint from generate_series(greatest(first, last - 15), last) s);
end $$;

-- A v7 id minted from a time of our clock: its milliseconds, what is left of them in steps of 1/4096 (so ids of one session
-- follow each other as their times do), and the end of a random one.
create or replace function outlast._v7(at timestamptz) returns uuid
language sql volatile parallel safe
as $$
  select (overlay(
      lpad(to_hex(floor(date_part('epoch', at - timestamptz '1970-01-01 00:00:00+00') * 4096000)::bigint), 15, '0')
      placing '7' from 13 for 0)
    || substr(gen_random_uuid()::text, 19))::uuid
$$;

-- Advisory locks belong to the database, so their numbers know the schema: two installations do not wait for each other.
-- A constant when a statement is planned.
create or replace function outlast._lock_room(n int) returns bigint
language sql immutable parallel safe
as $$ select hashtextextended('outlast' collate "C", n) $$;

-- The advisory lock of a lease, and of a consumer's lane.
create or replace function outlast._lease_lock(token uuid) returns bigint
language sql immutable parallel safe
as $$ select uuid_hash_extended(token, outlast._lock_room(7305)) $$;

create or replace function outlast._lane_lock(consumer int, lane int) returns bigint
language sql immutable parallel safe
as $$ select hashint8extended(consumer::bigint << 32 | lane, outlast._lock_room(7306)) $$;
