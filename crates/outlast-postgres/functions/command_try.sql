-- One try of a command: sent, answered, lost, asked after. Who holds the lease moves it; what anybody else learns is told.

-- Right before these leave: from here on something of them may have had an effect, and that is on record first. Answers which
-- of them may be sent; one that was settled, cancelled or lost meanwhile, whose provider may have forgotten the key by the
-- time it arrives, or which may have been sent before the database was set back, may not. `lease_ms`: how long the send may take at most.
-- from: waiting, unknown (to be sent again); to: running.
create or replace function outlast._sent(
  token uuid, ids uuid[], lease_ms int, resend_ms bigint default null, looks_up boolean default false, replays boolean default false)
returns setof uuid
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  m outlast._command;
  at timestamptz := outlast.clock();
begin
  -- A server that forgets this in a crash would let it be sent as if it never had been.
  if current_setting('synchronous_commit') in ('off', 'local') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  perform outlast._prove(_sent.token);
  for m in
    select x.* from outlast._command x join outlast._job_claimed c on c.id = x.id
    where c.token = _sent.token and x.id = any (ids) and x.next = 's' and x.state in ('waiting', 'unknown')
    order by x.id for update of x
  loop
    if m.restored then
      -- As if it had been sent as soon as it was accepted, and nobody had heard the answer.
      update outlast._command x
      set restored = false, ambiguous = true, sent = true, first_sent_at = coalesce(x.first_sent_at, (select j.accepted_at from outlast._job j where j.id = x.id)),
          was = 'waiting', state = 'running', version = x.version + 1
      where x.id = m.id;
      update outlast._command x set was = 'running', state = 'unknown', unknown_at = at where x.id = m.id returning * into m;
      perform outlast._witness(m, 'restored', null, true, null, 'the database was set back: it may have been sent before', null, null);
    end if;
    if m.state = 'unknown' then
      if m.first_sent_at + make_interval(secs => coalesce(resend_ms, 0) / 1000.0) <= at + make_interval(secs => lease_ms / 1000.0) + interval '30 seconds' then
        update outlast._command x set resend_ms = null, looks_up = _sent.looks_up, replays = _sent.replays where x.id = m.id returning * into m;
        delete from outlast._job_claimed c where c.id = m.id;
        perform outlast._when_unknown(m);
        continue;
      end if;
      update outlast._command x set was = 'unknown', state = 'waiting' where x.id = m.id;
    end if;
    update outlast._command x
    set was = 'waiting', state = 'running', version = x.version + 1, sent = true, not_applied = false,
        -- Never anew, not after a proof either: the provider may have known the key since the first time.
        first_sent_at = coalesce(x.first_sent_at, at),
        resend_ms = _sent.resend_ms, looks_up = _sent.looks_up, replays = _sent.replays
    where x.id = m.id returning * into m;
    perform outlast._witness(m, 'sent', null, true, null, null, null, null);
    return next m.id;
  end loop;
end $$;

-- The same for a runner in another language: raises where it must not be sent, so that COMMIT and sending are impossible.
create or replace function outlast.sent(token uuid, id uuid) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if not exists (select from outlast._sent(sent.token, array[sent.id], 15000)) then
    raise exception 'command % is not in the claim %, or was settled or cancelled', sent.id, sent.token using errcode = 'OL003';
  end if;
end $$;

-- What a provider has answered, or what was found out about it: settled, pending, rejected, obsolete; and when it was asked,
-- not_applied (proof) or unsure. Answers the state of the command after it, or `late`: the lease was lost; then it counts as
-- told by anybody, and nothing is lost of it.
-- from: running, unknown, pending; to: settled, pending, rejected, obsolete, unknown, waiting (not applied), cancelled.
create or replace function outlast.record(
  token uuid, id uuid, result text, answer bytea default null, reference text default null, reason text default null) returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  return outlast._record(record.token, record.id, record.result, record.answer, record.reference, record.reason, null);
end $$;

-- `polls_ms`: how often a pending one is asked.
create or replace function outlast._record(
  token uuid, id uuid, result text, answer bytea, reference text, reason text, polls_ms bigint) returns text
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  m outlast._command;
  asked boolean;
begin
  if result is null or result not in ('settled', 'pending', 'rejected', 'obsolete', 'not_applied', 'unsure') then
    raise exception 'record %: result % is not settled, pending, rejected, obsolete, not_applied or unsure', id, quote_nullable(result) using errcode = 'OL005';
  end if;
  perform outlast._check_answer(id::text, answer);
  if not exists (select from outlast._command x where x.id = _record.id) then
    raise exception 'command % is in no claim', id using errcode = 'OL003';
  end if;
  if current_setting('synchronous_commit') in ('off', 'local') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  -- The lease before the command, as everybody does. It may be lost: what was learned is not.
  perform pg_advisory_xact_lock_shared(outlast._lease_lock(token));
  perform pg_advisory_xact_lock(outlast._job_lock(id));
  delete from outlast._job_claimed c
  where c.id = _record.id and c.token = _record.token and exists (select from outlast._lease l where l.token = _record.token);
  if not found then
    if result in ('rejected', 'obsolete') and outlast._may_be_an_echo(id) then
      select * into strict m from outlast._command x where x.id = _record.id for update;
      perform outlast._witness(m, 'late', result, false, reference, reason, answer, 'outlast');
    elsif result in ('settled', 'pending', 'rejected', 'obsolete') then
      -- Who asked in vain for what is known by now has not contradicted it.
      perform outlast._told(id, 'late', result, answer, reference, reason, 'outlast');
    end if;
    return 'late';
  end if;
  select * into strict m from outlast._command x where x.id = _record.id for update;
  perform outlast._account_answers(j.account) from outlast._job j where j.id = _record.id and j.account <> '' and result <> 'unsure';
  asked := m.next in ('l', 'p');
  if not asked and m.state <> 'running' then
    raise exception 'command % was not sent: there can be no answer to it', id using errcode = 'OL005', hint = 'call outlast.sent, and commit, before the request leaves';
  end if;
  if not asked and result in ('not_applied', 'unsure') or asked and result = 'obsolete' then
    raise exception 'record %: % is no answer to that', id, result using errcode = 'OL005';
  end if;
  if (result = 'rejected' and not m.replays or result = 'obsolete') and not asked and m.ambiguous then
    -- An earlier send may have had the effect, and "insufficient funds" or "duplicate" be its echo. That there is nothing to do
    -- is the handler's own word, of no provider, and says nothing about what was sent before.
    perform outlast._witness(m, 'answered', result, false, reference, reason, answer, null);
    update outlast._command x set was = 'running', state = 'unknown', version = x.version + 1, resend_ms = null where x.id = m.id returning * into m;
    perform outlast._when_unknown(m);
    return m.state;
  end if;
  perform outlast._witness(m, case when asked then 'asked' else 'answered' end, result, result <> 'unsure', reference, reason, answer, null);
  case result
    when 'settled' then perform outlast._conclude(id, 'settled', answer, reference, reason);
    when 'rejected' then perform outlast._conclude(id, 'rejected', null, reference, reason);
    when 'obsolete' then perform outlast._conclude(id, 'obsolete', null, reference, reason);
    when 'pending' then perform outlast._pend(m, reference, polls_ms);
    when 'not_applied' then
      if m.next = 'p' then
        perform outlast._incident(id, 'contradicted', 'the provider had taken it, and now says that it has not');
      else
        perform outlast._not_applied(m);
      end if;
    else
      if m.next = 'p' then
        perform outlast._pend(m, null, polls_ms);
      else
        update outlast._command x set looks = x.looks + 1 where x.id = m.id returning * into m;
        perform outlast._when_unknown(m);
      end if;
  end case;
  return (select x.state from outlast._command x where x.id = _record.id);
end $$;

-- Whether a refusal that comes late may only say that another send of the same was quicker: it was sent more than once. Of a provider
-- that repeats its first answer, too: after a proof it may be sent again when that has forgotten the key.
create or replace function outlast._may_be_an_echo(id uuid) returns boolean
language plpgsql stable
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
begin
  return (select count(*) > 1 from outlast._evidence e where e.command = _may_be_an_echo.id and e.what in ('sent', 'restored'));
end $$;

-- The provider has it. It is asked again, or waited for, until a person must look.
create or replace function outlast._pend(m outlast._command, reference text, polls_ms bigint) returns void
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  at timestamptz := outlast.clock();
  until timestamptz := coalesce(m.pending_until, at + interval '7 days');
  wait interval := least(make_interval(secs => greatest(coalesce(polls_ms, (m).polls_ms), 1000) / 1000.0), until - at);
begin
  update outlast._command x
  set was = case when x.state = 'pending' then x.was else x.state end, state = 'pending', version = x.version + 1, next = 'p',
      pending_until = until, polls_ms = coalesce(_pend.polls_ms, x.polls_ms), reference = coalesce(left(_pend.reference, 500), x.reference),
      looks = case when x.state = 'pending' then x.looks + 1 else 0 end, unknown_at = null
  where x.id = (m).id;
  update outlast._job_state x set incident_at = null, changed_at = at where x.id = (m).id and x.incident_at is not null;
  if until <= at then
    perform outlast._incident((m).id, 'pending', 'the provider took it and has not settled it in time');
    return;
  end if;
  delete from outlast._job_ready x where x.id = (m).id;
  delete from outlast._job_later x where x.id = (m).id;
  delete from outlast._job_claimed x where x.id = (m).id;
  perform outlast._put_off((m).id, coalesce(wait, until - at));
end $$;

-- Proof that nothing of it had an effect: it may go again, or be withdrawn if somebody has asked for that.
create or replace function outlast._not_applied(m outlast._command) returns void
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  why text := (select s.cancel from outlast._job_state s where s.id = (m).id);
begin
  update outlast._command x
  set was = 'unknown', state = 'waiting', version = x.version + 1, next = 's', not_applied = true, ambiguous = false, unknown_at = null, looks = 0
  where x.id = (m).id;
  if why is not null then
    perform outlast._conclude((m).id, 'cancelled', null, null, why);
  else
    perform outlast._ready((m).id);
  end if;
end $$;

-- What comes next for one that may have had an effect: core's command::Policy. In hand of nobody.
create or replace function outlast._when_unknown(m outlast._command) returns void
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  at timestamptz := outlast.clock();
  since timestamptz := coalesce((m).unknown_at, at);
  spent boolean := coalesce((select s.failures >= coalesce(j.attempts, 8)
                             from outlast._job j join outlast._job_state s on s.id = j.id where j.id = (m).id), false);
  wait interval;
  what "char";
begin
  if not spent and (m).first_sent_at + make_interval(secs => (m).resend_ms / 1000.0) > at + interval '45 seconds' then
    what := 's';
    wait := outlast._backoff((select s.failures from outlast._job_state s where s.id = (m).id));
  elsif (m).looks_up and at < since + interval '24 hours' then
    what := 'l';
    wait := make_interval(secs => least(10 * 2 ^ least((m).looks, 6), 600));
  end if;
  update outlast._command x set next = coalesce(what, x.next), unknown_at = since, ambiguous = true where x.id = (m).id;
  if wait is null then
    perform outlast._incident((m).id, 'unknown', 'it may have had an effect, and nobody can be asked but a person');
  else
    perform outlast._put_off((m).id, wait);
  end if;
end $$;

-- A try of a command that has no answer.
-- from: running, unknown, pending; to: waiting, unknown, pending, incident.
create or replace function outlast._fail_command(l outlast._lease, id uuid, class text, txt text, after_ms bigint, charged boolean) returns text
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  m outlast._command;
  j outlast._job;
  failures int;
  wait interval := make_interval(secs => greatest(least(coalesce(after_ms, 0), 604800000), 0) / 1000.0);
begin
  perform pg_advisory_xact_lock(outlast._job_lock(id));
  delete from outlast._job_claimed c where c.id = _fail_command.id and c.token = (l).token;
  if not found then
    raise exception 'command % is not in the claim %', id, (l).token using errcode = 'OL003';
  end if;
  select * into strict j from outlast._job x where x.id = _fail_command.id;
  select * into strict m from outlast._command x where x.id = _fail_command.id for update;
  perform outlast._witness(m, 'failed', class, true, null, txt, null, null);
  if j.account <> '' and class in ('retry', 'unknown', 'unclassified') and charged then
    perform outlast._account_failed(j.account, txt);
  end if;
  insert into outlast._job_state as x (id, failures, class, reason, signature, changed_at)
  values (_fail_command.id, case when charged and m.next = 's' then 1 else 0 end, _fail_command.class, txt, outlast._signature(j.name, _fail_command.class, txt), outlast.clock())
  on conflict (id) do update set failures = x.failures + excluded.failures, class = excluded.class, reason = excluded.reason,
    signature = excluded.signature, changed_at = excluded.changed_at
  returning x.failures into failures;
  if class = 'throttled' and j.account <> '' then
    perform outlast._pause_account(j.account, least(greatest(wait, interval '1 second'), interval '1 hour'), txt);
  end if;
  if m.next = 'p' then
    perform outlast._pend(m, null, null);
    return 'pending';
  elsif m.next = 'l' then
    update outlast._command x set looks = x.looks + 1 where x.id = m.id returning * into m;
    perform outlast._when_unknown(m);
    return 'unknown';
  elsif m.state <> 'running' then
    -- Nothing has left.
    perform outlast._put_off(id, greatest(wait, interval '1 second'));
    return 'retry';
  end if;
  if class in ('unknown', 'unclassified') then
    update outlast._command x set was = 'running', state = 'unknown', version = x.version + 1, ambiguous = true where x.id = m.id returning * into m;
    perform outlast._when_unknown(m);
    return 'unknown';
  end if;
  -- This try certainly had no effect. One before may have had.
  if m.ambiguous then
    update outlast._command x set was = 'running', state = 'unknown', version = x.version + 1 where x.id = m.id returning * into m;
    if class = 'permanent' then
      perform outlast._incident(id, class, txt);
    else
      perform outlast._when_unknown(m);
    end if;
    return 'unknown';
  end if;
  update outlast._command x set was = 'running', state = 'waiting', version = x.version + 1 where x.id = m.id;
  if exists (select from outlast._job_state s where s.id = _fail_command.id and s.cancel is not null) then
    perform outlast._conclude(id, 'cancelled', null, null, (select s.cancel from outlast._job_state s where s.id = _fail_command.id));
    return 'cancelled';
  end if;
  if class = 'permanent' or failures >= coalesce(j.attempts, 8) then
    perform outlast._incident(id, class, txt);
    return 'quarantined';
  end if;
  perform outlast._put_off(id,
    least(greatest(wait, case when charged then outlast._backoff(failures) else interval '1 second' end),
          case when charged then interval '7 days' else interval '1 hour' end));
  return 'retry';
end $$;

-- A claim has ended with this command in it: its worker was lost, or has drained. What was sent may have had an effect. A question
-- to the provider has none; but of one that no worker survives the third is a person's, and until then it is asked alone.
-- `started`: that it starts was on record; `lost`: the worker was.
-- from: running, unknown, pending, waiting; to: unknown, pending, waiting.
create or replace function outlast._lose_command(id uuid, started boolean, lost boolean) returns void
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  m outlast._command;
  deaths int;
begin
  select * into strict m from outlast._command x where x.id = _lose_command.id for update;
  if m.next in ('l', 'p') then
    if lost then
      insert into outlast._job_state as x (id, lapses, crashes, changed_at)
      values (m.id, 1, started::int, outlast.clock())
      on conflict (id) do update set lapses = x.lapses + 1, crashes = x.crashes + excluded.crashes, changed_at = excluded.changed_at
      returning x.crashes into deaths;
      if deaths >= 3 then
        perform outlast._incident(id, 'crashed', format('the worker was lost %s times while it asked what became of this command', deaths));
        return;
      end if;
      if m.next = 'l' then
        update outlast._command x set looks = x.looks + 1 where x.id = m.id returning * into m;
      end if;
    end if;
    if m.next = 'p' then
      perform outlast._pend(m, null, null);
    else
      perform outlast._when_unknown(m);
    end if;
    if deaths > 0 then
      update outlast._job_later x set alone = true where x.id = m.id;
    end if;
  elsif m.state = 'running' then
    update outlast._command x set was = 'running', state = 'unknown', version = x.version + 1, ambiguous = true where x.id = m.id returning * into m;
    perform outlast._witness(m, 'lost', null, true, null, 'its worker was lost, or has stopped, while it was on its way', null, null);
    -- Charged: one that no worker survives is not sent for ever.
    insert into outlast._job_state as x (id, failures, lapses, class, reason, changed_at)
    values (m.id, 1, 1, 'crashed', 'its worker was lost, or has stopped, while it was on its way', outlast.clock())
    on conflict (id) do update set failures = x.failures + 1, lapses = x.lapses + 1, class = excluded.class, reason = excluded.reason,
      changed_at = excluded.changed_at;
    perform outlast._when_unknown(m);
  else
    perform outlast._ready(id);
  end if;
end $$;
