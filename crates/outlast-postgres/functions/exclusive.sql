-- Exclusion: one at a time of everything that names the same key, whatever it is called, in the order of acceptance. Whoever has
-- the key keeps it to its end, also while it is unknown, pending, waiting for its next try, or waiting for a person.

create or replace function outlast._exclusive_lock(tenant text, key text) returns bigint
language sql immutable parallel safe
as $$ select hashtextextended(length(tenant) || ':' || tenant || key, outlast._lock_room(7318)) $$;

-- Of what was taken and needs a key, what may go: those whose key is free get it, the first accepted first. The others wait
-- until it is let go; where somebody else decides about the key at this moment, they go back to where they stood.
create or replace function outlast._exclude(inout ids uuid[], inout seqs bigint[])
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  e outlast._exclusive;
  gone uuid[] := '{}';
begin
  for e in select x.* from outlast._exclusive x where x.id = any (ids) order by x.tenant, x.key, x.seq loop
    if not pg_try_advisory_xact_lock(outlast._exclusive_lock(e.tenant, e.key)) then
      perform outlast._ready(e.id, (select u.seq from unnest(ids, seqs) u (id, seq) where u.id = e.id));
      gone := gone || e.id;
      continue;
    end if;
    select * into e from outlast._exclusive x where x.id = e.id;     -- in a statement after the lock
    continue when e.held;
    if exists (select from outlast._exclusive x where x.tenant = e.tenant and x.key = e.key and x.held)
      or exists (select from outlast._exclusive x where x.tenant = e.tenant and x.key = e.key and x.seq < e.seq
                   and (x.blocked or exists (select from outlast._job_ready r where r.id = x.id) or x.id = any (ids) and x.id <> all (gone))) then
      update outlast._exclusive x set blocked = true where x.id = e.id;
      gone := gone || e.id;
    else
      update outlast._exclusive x set held = true, blocked = false where x.id = e.id;
    end if;
  end loop;
  if cardinality(gone) > 0 then
    select coalesce(array_agg(u.id order by u.n), '{}'), coalesce(array_agg(u.seq order by u.n), '{}') into ids, seqs
    from unnest(ids, seqs) with ordinality u (id, seq, n) where u.id <> all (gone);
  end if;
end $$;

-- Lets the key go, or leaves the queue for it; whoever waits longest is ready then.
create or replace function outlast._let_go(id uuid) returns void
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  e outlast._exclusive;
  next uuid;
begin
  select * into e from outlast._exclusive x where x.id = _let_go.id;
  if not found then return; end if;
  perform pg_advisory_xact_lock(outlast._exclusive_lock(e.tenant, e.key));
  delete from outlast._exclusive x where x.id = _let_go.id;
  if exists (select from outlast._exclusive x where x.tenant = e.tenant and x.key = e.key and x.held) then return; end if;
  select x.id into next from outlast._exclusive x
  where x.tenant = e.tenant and x.key = e.key and x.blocked order by x.seq limit 1;
  if next is null then return; end if;
  update outlast._exclusive x set blocked = false where x.id = next;
  perform outlast._ready(next);
end $$;

-- Takes a key of exclusion for whoever is no command: an old runner that does the same work while its commands move in here. The
-- answer is a token for `fence`, `renew` and `release`; null while another has the key, or was accepted before and is about to
-- take it: come again. Commits at once, in a transaction of its own. When the lease lapses the key is free, for the others and for
-- the next who asks.
create or replace function outlast.exclude(key text, lease_ms int default 15000, tenant text default '', holder text default null) returns uuid
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  l outlast._lease;
  fresh uuid := gen_random_uuid();
begin
  perform outlast._check_fresh();
  perform outlast._check_running();
  perform outlast._check_lease_ms(lease_ms);
  if coalesce(exclude.key, '') = '' or length(exclude.key) > 500 or exclude.tenant is null then
    raise exception 'exclude: the key is empty or longer than 500 characters, or the tenant is null' using errcode = 'OL005';
  end if;
  perform pg_advisory_xact_lock(outlast._exclusive_lock(exclude.tenant, exclude.key));
  -- Of one that had it like this and is gone. Row, then advisory lock, as whoever ends a lease.
  for l in
    select x.* from outlast._lease x join outlast._exclusive e on e.id = x.token
    where e.tenant = exclude.tenant and e.key = exclude.key and e.held and outlast._lapsed(x.expires_at)
    for update of x skip locked
  loop
    continue when not pg_try_advisory_xact_lock(outlast._lease_lock(l.token));
    perform outlast._give_back(l, true);
  end loop;
  if exists (select from outlast._exclusive x
             where x.tenant = exclude.tenant and x.key = exclude.key
               and (x.held or x.blocked or exists (select from outlast._job_ready r where r.id = x.id))) then
    return null;
  end if;
  insert into outlast._lease (token, room, holder, expires_at)
  values (fresh, 'job', left(exclude.holder, 200), outlast.clock() + make_interval(secs => lease_ms / 1000.0));
  insert into outlast._exclusive (tenant, key, seq, id, held)
  values (exclude.tenant, exclude.key, nextval('outlast._event_id'), fresh, true);
  return fresh;
end $$;
