-- Provider accounts: how much of each may be in work at once, how much may begin in a second, and when to leave it alone.

-- Claims of one account take turns while it has a limit: counting alone let four run at a limit of three.
create or replace function outlast._account_lock(name text) returns bigint
language sql immutable parallel safe
as $$ select hashtextextended(name, outlast._lock_room(7317)) $$;

create or replace function outlast._account_paused(name text) returns boolean
language plpgsql stable
as $$
#variable_conflict use_column
begin
  return _account_paused.name <> '' and exists (
    select from outlast._account a where a.name = _account_paused.name and a.paused_until > outlast.clock());
end $$;

-- What bounds it: its own limit, else that of the longest `…/*` which is its beginning. Of such a one each account has as much for itself.
create or replace function outlast._limit_of(name text) returns setof outlast._account_limit
language sql stable rows 1
as $$
  select x.* from outlast._account_limit x
  where x.name = any (array[_limit_of.name] || array(
    select left(_limit_of.name, n) || '*' from generate_series(1, length(_limit_of.name)) n where substr(_limit_of.name, n, 1) = '/'))
  order by x.name = _limit_of.name desc, length(x.name) desc limit 1
$$;

-- So many failures one after the other, and it is left alone.
create or replace function outlast._account_circuit(name text) returns int
language sql stable
as $$ select coalesce((select x.circuit from outlast._limit_of(_account_circuit.name) x), 5) $$;

-- Whether nobody has answered there for so many tries that one at a time finds out.
create or replace function outlast._account_fails(name text) returns boolean
language sql stable
as $$ select exists (
  select from outlast._account a where a.name = _account_fails.name and a.failures >= outlast._account_circuit(_account_fails.name)) $$;

-- How many of this account may be claimed now; null: as many as there are. Called, and committed with what was taken, under
-- the lock of the account, which a statement before this one has taken.
create or replace function outlast._account_room(name text) returns int
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  lim outlast._account_limit;
  failing boolean := outlast._account_fails(_account_room.name);
  most int;
begin
  select * into lim from outlast._limit_of(_account_room.name);
  most := case when failing then 1 else lim.concurrency end;
  if most is not null then
    most := greatest(0, most - (select count(*)::int from outlast._job_claimed c where c.account = _account_room.name and c.account <> ''));
  end if;
  if lim.rate is not null then
    most := least(most, floor(least(lim.burst, lim.tokens + lim.rate * extract(epoch from outlast.clock() - lim.filled_at)))::int);
  end if;
  return most;
end $$;

-- Whether claims of this account must be counted at all.
create or replace function outlast._account_counts(name text) returns boolean
language sql stable
as $$ select _account_counts.name <> '' and (
  exists (select from outlast._limit_of(_account_counts.name) x where x.concurrency is not null or x.rate is not null)
  or outlast._account_fails(_account_counts.name)) $$;

-- Whether one more of it may be claimed now; then its lock is this transaction's. The count is a later statement than the lock.
create or replace function outlast._account_admits(name text) returns boolean
language plpgsql volatile
as $$
begin
  if outlast._account_paused(_account_admits.name) then return false; end if;
  if not outlast._account_counts(_account_admits.name) then return true; end if;
  if not pg_try_advisory_xact_lock(outlast._account_lock(_account_admits.name)) then return false; end if;
  return coalesce(outlast._account_room(_account_admits.name) > 0, true);
end $$;

-- So many of it were taken.
create or replace function outlast._account_took(name text, n int) returns void
language sql volatile
as $$
  update outlast._account_limit x
  set tokens = least(x.burst, x.tokens + coalesce(x.rate, 0) * extract(epoch from outlast.clock() - x.filled_at)) - n, filled_at = outlast.clock()
  where x.name = _account_took.name and x.rate is not null
$$;

-- A provider asks to be left alone, or a person wants it to be: nothing of this account is claimed until then.
create or replace function outlast._pause_account(name text, wait interval, reason text, actor text default null) returns void
language sql volatile
as $$
  insert into outlast._account as a (name, paused_until, reason, actor, since)
  values (_pause_account.name, outlast.clock() + _pause_account.wait, outlast._clean(_pause_account.reason), _pause_account.actor, outlast.clock())
  on conflict (name) do update set paused_until = greatest(a.paused_until, excluded.paused_until), reason = excluded.reason,
    actor = coalesce(a.actor, excluded.actor), since = case when a.paused_until < outlast.clock() then excluded.since else a.since end
$$;

-- A try failed as tries fail when nobody is there. From the fifth one after the other on, or from another one that its limit
-- names, the account is left alone, longer each time up to a minute, or what its limit says, and then one try finds out.
create or replace function outlast._account_failed(name text, reason text) returns void
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  most int := outlast._account_circuit(_account_failed.name);
  longest int := coalesce((select x.circuit_pause_s from outlast._limit_of(_account_failed.name) x), 60);
  at timestamptz := outlast.clock();
begin
  insert into outlast._account as a (name, paused_until, failures, reason, since)
  values (_account_failed.name, at + case when most > 1 then interval '0' else make_interval(secs => least(longest, 2)) end, 1,
          outlast._clean(_account_failed.reason), at)
  on conflict (name) do update set failures = a.failures + 1, reason = case when a.actor is null then excluded.reason else a.reason end,
    paused_until = case when a.failures + 1 < most then a.paused_until
      else greatest(a.paused_until, at + make_interval(secs => least(longest, 2 ^ least(a.failures + 2 - most, 12)))) end;
end $$;

-- It answers.
create or replace function outlast._account_answers(name text) returns void
language sql volatile
as $$
  update outlast._account a
  set failures = 0,
      paused_until = case when a.actor is null and a.failures >= outlast._account_circuit(a.name) then outlast.clock() else a.paused_until end
  where a.name = _account_answers.name and a.failures > 0
$$;

-- Leaves a provider's account alone: nothing of it is claimed until it is resumed. What runs goes on.
create or replace function outlast.pause_account(account text, reason text, actor text default null) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if coalesce(pause_account.account, '') = '' or coalesce(pause_account.reason, '') = '' then
    raise exception 'pause account %: name it, and say why', quote_nullable(pause_account.account) using errcode = 'OL005';
  end if;
  insert into outlast._account as a (name, paused_until, reason, actor, since)
  values (pause_account.account, 'infinity', outlast._clean(pause_account.reason), coalesce(pause_account.actor, session_user), outlast.clock())
  on conflict (name) do update set paused_until = 'infinity', reason = excluded.reason, actor = excluded.actor, since = excluded.since;
  perform outlast._audited('account.paused', pause_account.account, jsonb_build_object('reason', outlast._clean(pause_account.reason)), pause_account.actor);
end $$;

create or replace function outlast.resume_account(account text, actor text default null) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  delete from outlast._account a where a.name = resume_account.account;
  if not found then return false; end if;
  perform outlast._audited('account.resumed', resume_account.account, null, resume_account.actor);
  perform nextval('outlast._event_id');          -- whoever sleeps looks
  perform outlast._woken();
  return true;
end $$;

-- Sets what an account is allowed; null: without bound. `circuit`: from so many failures one after the other on it is left alone,
-- at most `circuit_pause_s` at a time. With nothing but the defaults: no limit any more. `acme/*` bounds each account that begins with
-- acme/ by itself, unless it has a limit of its own; no rate, whose tokens would be everybody's. `outlast apply` calls it, too.
create or replace function outlast.limit_account(
  account text, concurrency int default null, rate float8 default null, burst int default 1, circuit int default 5,
  circuit_pause_s int default 60, actor text default null)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  was jsonb := (select jsonb_strip_nulls(to_jsonb(x) - array['name', 'tokens', 'filled_at', 'changed_at'])
                from outlast._account_limit x where x.name = limit_account.account);
begin
  if concurrency not between 1 and 10000 or rate <= 0 or rate > 100000 or rate = 'NaN' or burst is null or burst not between 1 and 100000
    or circuit is null or circuit not between 1 and 1000 or circuit_pause_s is null or circuit_pause_s not between 1 and 3600
    or coalesce(account, '') = '' or length(account) > 200 or account ~ '[[:cntrl:]]' then
    raise exception 'limit of account %: concurrency is 1 to 10000, rate more than 0 a second, burst 1 to 100000, circuit 1 to 1000, circuit_pause_s 1 to 3600',
      quote_nullable(left(limit_account.account, 200)) using errcode = 'OL005';
  end if;
  if rate is not null and account like '%/*' then
    raise exception 'limit of account %: a rate is of one account', quote_nullable(limit_account.account) using errcode = 'OL005';
  end if;
  if concurrency is null and rate is null and circuit = 5 and circuit_pause_s = 60 then
    delete from outlast._account_limit x where x.name = limit_account.account;
  else
    insert into outlast._account_limit as x (name, concurrency, rate, burst, circuit, circuit_pause_s, tokens, filled_at, changed_at)
    values (limit_account.account, limit_account.concurrency, limit_account.rate, limit_account.burst, limit_account.circuit,
            limit_account.circuit_pause_s, limit_account.burst, outlast.clock(), outlast.clock())
    on conflict (name) do update set concurrency = excluded.concurrency, rate = excluded.rate, burst = excluded.burst,
      circuit = excluded.circuit, circuit_pause_s = excluded.circuit_pause_s, tokens = excluded.tokens, filled_at = excluded.filled_at,
      changed_at = excluded.changed_at;
  end if;
  perform outlast._audited('account.limited', limit_account.account,
    jsonb_build_object('concurrency', limit_account.concurrency, 'rate', limit_account.rate, 'burst', limit_account.burst,
      'circuit', limit_account.circuit, 'circuit_pause_s', limit_account.circuit_pause_s, 'was', was), limit_account.actor);
  perform nextval('outlast._event_id');          -- what may go now is looked for
  perform outlast._woken();
end $$;

create or replace view outlast.account as
select coalesce(a.name, l.name) as name, case when a.paused_until > outlast.clock() then a.paused_until end as paused_until,
       coalesce(a.failures, 0) as failures, a.reason, a.actor, a.since, l.concurrency, l.rate, l.burst,
       coalesce(l.circuit, 5) as circuit, coalesce(l.circuit_pause_s, 60) as circuit_pause_s
from outlast._account a full join outlast._account_limit l on l.name = a.name;
