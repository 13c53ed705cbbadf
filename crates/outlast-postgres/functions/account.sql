-- Provider accounts: how much of each may be in work at once, how much may begin in a second, and when to leave it alone.

-- Claims of one account take turns while it has a limit: counting alone let four run at a limit of three.
create or replace function outlast._account_lock(name text) returns bigint
language sql immutable parallel safe
as $$ select hashtextextended(name, outlast._lock_room(7317)) $$;

create or replace function outlast._account_paused(name text) returns boolean
language sql stable
as $$ select _account_paused.name <> '' and exists (
  select from outlast._account a where a.name = _account_paused.name and a.paused_until > outlast.clock()) $$;

-- How many of this account may be claimed now; null: as many as there are. Called, and committed with what was taken, under
-- the lock of the account, which a statement before this one has taken.
create or replace function outlast._account_room(name text) returns int
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  lim outlast._account_limit;
  failing boolean := exists (select from outlast._account a where a.name = _account_room.name and a.failures >= 5);
  most int;
begin
  select * into lim from outlast._account_limit x where x.name = _account_room.name;
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
  exists (select from outlast._account_limit x where x.name = _account_counts.name)
  or exists (select from outlast._account a where a.name = _account_counts.name and a.failures >= 5)) $$;

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

-- A try failed as tries fail when nobody is there. From the fifth one after the other on the account is left alone, longer each
-- time up to a minute, and then one try finds out.
create or replace function outlast._account_failed(name text, reason text) returns void
language sql volatile
as $$
  insert into outlast._account as a (name, paused_until, failures, reason, since)
  values (_account_failed.name, outlast.clock(), 1, outlast._clean(_account_failed.reason), outlast.clock())
  on conflict (name) do update set failures = a.failures + 1, reason = case when a.actor is null then excluded.reason else a.reason end,
    paused_until = case when a.failures + 1 < 5 then a.paused_until
      else greatest(a.paused_until, outlast.clock() + make_interval(secs => least(60, 2 ^ least(a.failures - 3, 6)))) end
$$;

-- It answers.
create or replace function outlast._account_answers(name text) returns void
language sql volatile
as $$
  update outlast._account a set failures = 0, paused_until = case when a.actor is null and a.failures >= 5 then outlast.clock() else a.paused_until end
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

-- Sets what an account is allowed; null: without bound. Both null: no limit any more.
create or replace function outlast.limit_account(account text, concurrency int default null, rate float8 default null, burst int default 1, actor text default null)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if concurrency not between 1 and 10000 or rate <= 0 or rate > 100000 or rate = 'NaN' or burst is null or burst not between 1 and 100000 or coalesce(account, '') = '' then
    raise exception 'limit of account %: concurrency is 1 to 10000, rate more than 0 a second, burst 1 to 100000', quote_nullable(account) using errcode = 'OL005';
  end if;
  if concurrency is null and rate is null then
    delete from outlast._account_limit x where x.name = limit_account.account;
  else
    insert into outlast._account_limit as x (name, concurrency, rate, burst, tokens, filled_at, changed_at)
    values (limit_account.account, limit_account.concurrency, limit_account.rate, limit_account.burst, limit_account.burst, outlast.clock(), outlast.clock())
    on conflict (name) do update set concurrency = excluded.concurrency, rate = excluded.rate, burst = excluded.burst, tokens = excluded.tokens,
      filled_at = excluded.filled_at, changed_at = excluded.changed_at;
  end if;
  perform outlast._audited('account.limited', limit_account.account,
    jsonb_build_object('concurrency', limit_account.concurrency, 'rate', limit_account.rate, 'burst', limit_account.burst), limit_account.actor);
end $$;

create or replace view outlast.account as
select coalesce(a.name, l.name) as name, case when a.paused_until > outlast.clock() then a.paused_until end as paused_until,
       coalesce(a.failures, 0) as failures, a.reason, a.actor, a.since, l.concurrency, l.rate, l.burst
from outlast._account a full join outlast._account_limit l on l.name = a.name;
