-- Which accounts and tenants of a name have something ready, and how much of each is taken. All of it runs under the settings of
-- _claim_jobs (generic plans, by indexes alone): to set them in each function took a small claim as long as its work.

-- The groups of a name that have something ready, one an account and tenant and priority, in the order of the index: those
-- after one account and tenant and, if told, up to another. Each is above the place before its first, so that whoever takes of it
-- need not step over what is dead below that once more. `floors` says up to where this process has taken of a group a
-- while ago: nothing below is looked at, which under an old snapshot would be all that was ever taken. What is between known
-- groups is looked for by steps from one to the next.
create or replace function outlast._job_groups(
  name text, after_account text, after_tenant text, until_account text, until_tenant text, floors jsonb, most int)
returns outlast._job_group[]
language plpgsql stable
as $$
#variable_conflict use_column
declare
  groups outlast._job_group[] := '{}';
  -- Before all of a tenant, or behind all of it: no priority is that low or high.
  place outlast._job_group := row(coalesce(after_account, ''), coalesce(after_tenant, ''),
    case when after_account is null then -32768 else 32767 end, 0);
  known record;
begin
  if floors is not null and floors <> '[]' then
    for known in
      select row(k.account, k.tenant, k.priority, k.above)::outlast._job_group as g
      from jsonb_to_recordset(floors) k (account text, tenant text, priority smallint, above bigint)
      where (k.account, k.tenant, k.priority) > (place.account, place.tenant, place.priority)
        and (until_account is null or (k.account, k.tenant) <= (until_account, until_tenant))
      order by k.account, k.tenant, k.priority
    loop
      exit when cardinality(groups) >= most;
      groups := groups || outlast._groups_between(_job_groups.name, place, known.g, most - cardinality(groups));
      exit when cardinality(groups) >= most;
      place := known.g;
      place.above := outlast._first_above(_job_groups.name, place) - 1;
      if place.above is not null then
        groups := groups || place;
      end if;
    end loop;
    if cardinality(groups) >= most then return groups; end if;
  end if;
  return groups || outlast._groups_between(_job_groups.name, place,
    case when until_account is not null then row(until_account, until_tenant, 32767, 0)::outlast._job_group end, most - cardinality(groups));
end $$;

-- Where the first of this group stands above its place, if it may be taken.
create or replace function outlast._first_above(name text, g outlast._job_group) returns bigint
language plpgsql stable
as $$
#variable_conflict use_column
declare
  a text := g.account;
  t text := g.tenant;
  p smallint := g.priority;
  f bigint := g.above;
begin
  if a <> '' and outlast._account_paused(a) then return null; end if;
  return (
    select x.seq from outlast._job_ready x
    where x.name = _first_above.name and x.account = a and x.tenant = t and x.priority = p and x.seq > f
    order by x.seq limit 1);
end $$;

-- Groups behind one place and, if told, before another, from one to the next, each looked for by its index alone. All of a
-- paused account is one step.
create or replace function outlast._groups_between(name text, a outlast._job_group, b outlast._job_group, most int)
returns outlast._job_group[]
language plpgsql stable
as $$
#variable_conflict use_column
declare
  aa text := a.account;
  at text := a.tenant;
  ap smallint := a.priority;
  g outlast._job_group;
  groups outlast._job_group[] := '{}';
begin
  if b is null then
    with recursive step as (
      (select x.account, x.tenant, x.priority, x.seq, 1 as n, x.account <> '' and outlast._account_paused(x.account) as paused
       from outlast._job_ready x
       where x.name = _groups_between.name and (x.account, x.tenant, x.priority) > (aa, at, ap)
       order by x.account, x.tenant, x.priority, x.seq limit 1)
      union all
      select y.account, y.tenant, y.priority, y.seq, case when s.paused then s.n else s.n + 1 end,
             y.account <> '' and outlast._account_paused(y.account)
      from step s cross join lateral (
        (select x.account, x.tenant, x.priority, x.seq from outlast._job_ready x
         where not s.paused and x.name = _groups_between.name and (x.account, x.tenant, x.priority) > (s.account, s.tenant, s.priority)
         order by x.account, x.tenant, x.priority, x.seq limit 1)
        union all
        (select x.account, x.tenant, x.priority, x.seq from outlast._job_ready x
         where s.paused and x.name = _groups_between.name and x.account > s.account
         order by x.account, x.tenant, x.priority, x.seq limit 1)) y
      where s.n < most or s.paused
    )
    select coalesce(array_agg(row(s.account, s.tenant, s.priority, s.seq - 1)::outlast._job_group order by s.n), '{}') into groups
    from step s where not s.paused and s.n <= most;
    return groups;
  end if;
  g := a;
  while cardinality(groups) < most loop
    g := outlast._group_between(_groups_between.name, g, b);
    exit when g.account is null;
    if g.account <> '' and outlast._account_paused(g.account) then
      g.priority := null;
    else
      groups := groups || g;
    end if;
  end loop;
  return groups;
end $$;

-- The first group behind one and before another; without a priority it is behind all of the account. By ranges of one column
-- each: a bound of the whole row ends no scan of the index, which then reads all that is dead of the group it should end before.
create or replace function outlast._group_between(name text, a outlast._job_group, b outlast._job_group) returns outlast._job_group
language plpgsql stable
as $$
#variable_conflict use_column
declare
  aa text := a.account;
  at text := a.tenant;
  ap smallint := a.priority;
  ba text := b.account;
  bt text := b.tenant;
  bp smallint := b.priority;
  g outlast._job_group;
begin
  select x.account, x.tenant, x.priority, x.seq - 1 into g
  from (
    -- The rest of this tenant, of this account, accounts between, and what of the last account and tenant is before the end.
    (select x.account, x.tenant, x.priority, x.seq from outlast._job_ready x
     where ap is not null and x.name = _group_between.name and x.account = aa and x.tenant = at and x.priority > ap
       and x.priority < case when (aa, at) = (ba, bt) then bp else 32767 end
     order by x.account, x.tenant, x.priority, x.seq limit 1)
    union all
    (select x.account, x.tenant, x.priority, x.seq from outlast._job_ready x
     where ap is not null and aa < ba and x.name = _group_between.name and x.account = aa and x.tenant > at
     order by x.account, x.tenant, x.priority, x.seq limit 1)
    union all
    (select x.account, x.tenant, x.priority, x.seq from outlast._job_ready x
     where ap is not null and aa = ba and x.name = _group_between.name and x.account = aa and x.tenant > at and x.tenant < bt
     order by x.account, x.tenant, x.priority, x.seq limit 1)
    union all
    (select x.account, x.tenant, x.priority, x.seq from outlast._job_ready x
     where x.name = _group_between.name and x.account > aa and x.account < ba
     order by x.account, x.tenant, x.priority, x.seq limit 1)
    union all
    (select x.account, x.tenant, x.priority, x.seq from outlast._job_ready x
     where aa < ba and x.name = _group_between.name and x.account = ba and x.tenant < bt
     order by x.account, x.tenant, x.priority, x.seq limit 1)
    union all
    (select x.account, x.tenant, x.priority, x.seq from outlast._job_ready x
     where (aa, at) < (ba, bt) and (aa < ba or ap is not null) and x.name = _group_between.name and x.account = ba and x.tenant = bt
       and x.priority < bp
     order by x.account, x.tenant, x.priority, x.seq limit 1)) x
  order by x.account, x.tenant, x.priority, x.seq limit 1;
  return g;
end $$;

-- Takes some of one group, in order.
create or replace function outlast._take_of(name text, g outlast._job_group, n int, out ids uuid[], out seqs bigint[])
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  a text := g.account;
  t text := g.tenant;
  p smallint := g.priority;
  f bigint := g.above;
begin
  with front as materialized (
    select x.ctid from outlast._job_ready x
    where x.name = _take_of.name and x.account = a and x.tenant = t and x.priority = p and x.seq > f
    order by x.seq limit n for update skip locked
  ), gone as (
    delete from outlast._job_ready x where x.ctid = any (array(select f.ctid from front f)) returning x.id, x.seq
  )
  select array_agg(g.id order by g.seq), array_agg(g.seq order by g.seq) into ids, seqs from gone g;
end $$;

-- Takes of many groups as much of each account and tenant as of any other; what one leaves goes to the rest.
create or replace function outlast._take_fairly(name text, groups outlast._job_group[], room int, out ids uuid[], out seqs bigint[])
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  share int;
  got record;
begin
  ids := '{}';
  seqs := '{}';
  -- Each round either takes all that is left of a group, or ends with no room.
  while cardinality(ids) < room and cardinality(groups) > 0 loop
    share := greatest(1, (room - cardinality(ids)) / (
      select count(distinct (x.account, x.tenant)) from unnest(groups) x)::int);
    with front as materialized (
      select f.ctid, f.id, f.seq, g.n,
             row_number() over (partition by g.account, g.tenant order by g.priority, f.seq) as r,
             count(*) over (partition by g.n) as c
      from unnest(groups) with ordinality g (account, tenant, priority, above, n)
      cross join lateral (
        select x.ctid, x.id, x.seq from outlast._job_ready x
        where x.name = _take_fairly.name and x.account = g.account and x.tenant = g.tenant and x.priority = g.priority
          and x.seq > g.above
        order by x.seq limit share for update skip locked) f
    ), chosen as materialized (
      select f.ctid, f.id, f.seq, f.n from front f where f.r <= share order by f.n, f.seq limit room - cardinality(ids)
    ), gone as (
      delete from outlast._job_ready x where x.ctid = any (array(select c.ctid from chosen c)) returning x.id
    )
    -- `gone` is joined: what was not deleted was not taken.
    select (select array_agg(c.id order by c.n, c.seq) from chosen c join gone using (id)) as ids,
           (select array_agg(c.seq order by c.n, c.seq) from chosen c join gone using (id)) as seqs,
           (select array_agg(row(x.account, x.tenant, x.priority, x.above)::outlast._job_group order by x.n)
            from unnest(groups) with ordinality x (account, tenant, priority, above, n)
            where exists (select from front f where f.n = x.n and (f.c >= share or f.r > share))) as more
    into got;
    ids := ids || got.ids;
    seqs := seqs || got.seqs;
    groups := got.more;
  end loop;
end $$;

-- The same where accounts are counted: of each as many as it has room for, under its lock, which is kept until that has
-- committed. Somebody else's lock: his turn.
create or replace function outlast._take_counted(
  name text, groups outlast._job_group[], room int, counted text[], out ids uuid[], out seqs bigint[])
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  g outlast._job_group;
  got record;
  share int := greatest(1, room / (select count(distinct (x.account, x.tenant)) from unnest(groups) x)::int);
  his int;                                       -- of this account and tenant in the first turn
  last outlast._job_group;
  allowed int;
  rooms jsonb := '{}';                           -- what is left of each account
begin
  ids := '{}';
  seqs := '{}';
  for turn in 1..2 loop
    last := null;
    foreach g in array groups loop
      exit when cardinality(ids) >= room;
      if last is null or (last.account, last.tenant) <> (g.account, g.tenant) then his := 0; end if;
      last := g;
      allowed := room - cardinality(ids);
      if turn = 1 then allowed := least(allowed, share - his); end if;
      if g.account = any (counted) then
        if not rooms ? g.account then
          if pg_try_advisory_xact_lock(outlast._account_lock(g.account)) then
            rooms := rooms || jsonb_build_object(g.account, outlast._account_room(g.account));
          else
            rooms := rooms || jsonb_build_object(g.account, 0);
          end if;
        end if;
        allowed := least(allowed, (rooms ->> g.account)::int);
      end if;
      continue when allowed < 1;
      select * into got from outlast._take_of(_take_counted.name, g, allowed);
      continue when got.ids is null;
      ids := ids || got.ids;
      seqs := seqs || got.seqs;
      his := his + cardinality(got.ids);
      if (rooms ->> g.account) is not null then
        rooms := rooms || jsonb_build_object(g.account, (rooms ->> g.account)::int - cardinality(got.ids));
      end if;
    end loop;
  end loop;
end $$;
