//! Planted faults: the product's SQL functions in a version that lacks one idea. Each must be seen by the checker.
//!
//! Applied to the database of one run. What each of them removes is what the comment of the original function gives as
//! its reason. Some are no SQL: a handler, or a broker (`planted`), does something wrong.

use std::str::FromStr;

use super::source::Kind;

/// Exchanges a piece of a function's text. One that is not there is an error: a fault that is not planted proves nothing.
const TOOL: &str = "
    create procedure pg_temp.plant(name text, old text, new text) language plpgsql as $$
    declare src text; begin
      select pg_get_functiondef(p.oid) into strict src from pg_proc p
      where p.pronamespace = 'outlast'::regnamespace and p.proname = name and strpos(p.prosrc, old) > 0;
      execute replace(src, old, new);
    end $$;";

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// `complete` asks who owns the event and not whether its caller does.
    NoFence,
    /// A reclaim moves the end of the lease instead of replacing its token.
    ReclaimByUpdate,
    /// The end of a batch believes that everything was sealed.
    FinishBelieves,
    /// Readers go on behind the last id that they have seen.
    IdCursor,
    /// A claim commits as asynchronously as its session does.
    ClaimAsync,
    /// A dedup key is looked for, and not waited for.
    DedupLooks,
    /// A seal reads the token of its lease, and locks nothing.
    TokenRead,
    /// The end of a batch ends all batches before it.
    EndsBelow,
    /// Not of the product: a handler that writes children in transactions of their own.
    ChildApart,
    /// After a dump, events are judged by the transaction ids of the server that wrote them.
    NoBase,
    /// What leaves the database does not wait after a rewind.
    NoHold,
    /// A relay takes what it has sent for confirmed.
    AsSent,
    /// A relay gives what was not answered a new id when it is published again.
    NewId,
    /// One message that cannot be sent fails all that were to go with it.
    WholeBatch,
    /// A consumer acks what has come before anything of it is committed.
    AckFirst,
    /// What failed is acked when a copy without its payload is there.
    NoPayload,
    /// A claim of what was delivered looks whether it is done before it has its lease.
    LooksFirst,
    /// Whoever has claimed a command once may say that it leaves.
    NoSentFence,
    /// Each try of a command tells its provider another key.
    NewKey,
    /// A command without an answer is tried again, whatever is known of its provider.
    ResendUnknown,
    /// A command counts as sent as soon as it is claimed.
    RunningAtClaim,
    /// A refusal is believed, whatever may have been done before.
    RefusalBelieved,
    /// What of an account is under way is counted, and nobody waits for whoever counts at the same time.
    LimitUnlocked,
    /// The completion of an entity clears what was marked since its claim.
    OlderCompletes,
    /// The completion of an entity buries all its deletions, not those that its claim has handed out.
    BuriesAll,
}

impl Plant {
    /// All of them.
    pub const ALL: [Self; 25] = [
        Self::NoFence,
        Self::ReclaimByUpdate,
        Self::FinishBelieves,
        Self::IdCursor,
        Self::ClaimAsync,
        Self::DedupLooks,
        Self::TokenRead,
        Self::EndsBelow,
        Self::ChildApart,
        Self::NoBase,
        Self::NoHold,
        Self::AsSent,
        Self::NewId,
        Self::WholeBatch,
        Self::AckFirst,
        Self::NoPayload,
        Self::LooksFirst,
        Self::NoSentFence,
        Self::NewKey,
        Self::ResendUnknown,
        Self::RunningAtClaim,
        Self::RefusalBelieved,
        Self::LimitUnlocked,
        Self::OlderCompletes,
        Self::BuriesAll,
    ];

    /// Its word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoFence => "no-fence",
            Self::ReclaimByUpdate => "reclaim-by-update",
            Self::FinishBelieves => "finish-believes",
            Self::IdCursor => "id-cursor",
            Self::ClaimAsync => "claim-async",
            Self::DedupLooks => "dedup-looks",
            Self::TokenRead => "token-read",
            Self::EndsBelow => "ends-below",
            Self::ChildApart => "child-apart",
            Self::NoBase => "no-base",
            Self::NoHold => "no-hold",
            Self::AsSent => "as-sent",
            Self::NewId => "new-id",
            Self::WholeBatch => "whole-batch",
            Self::AckFirst => "ack-first",
            Self::NoPayload => "no-payload",
            Self::LooksFirst => "looks-first",
            Self::NoSentFence => "no-sent-fence",
            Self::NewKey => "new-key",
            Self::ResendUnknown => "resend-unknown",
            Self::RunningAtClaim => "running-at-claim",
            Self::RefusalBelieved => "refusal-believed",
            Self::LimitUnlocked => "limit-unlocked",
            Self::OlderCompletes => "older-completes",
            Self::BuriesAll => "buries-all",
        }
    }

    /// The broker with which the runs go that see it; none if they go without.
    pub const fn broker(self) -> Option<Kind> {
        match self {
            Self::AsSent
            | Self::NewId
            | Self::WholeBatch
            | Self::AckFirst
            | Self::NoPayload
            | Self::LooksFirst => Some(Kind::Nats),
            _ => None,
        }
    }

    /// What the runs of this row that see it have in their names.
    pub const fn seen_by(self) -> (&'static str, &'static str) {
        match self {
            Self::NoFence | Self::ReclaimByUpdate => ("E5", "on_tx-read-committed-in-handler"),
            Self::FinishBelieves => ("E5", "savepoint"),
            Self::IdCursor => ("E1", "rollbacks-deadpool"),
            Self::ClaimAsync => ("E1", "crash-asynchronous"),
            Self::DedupLooks => ("E11", "client-held"),
            Self::TokenRead => ("E5", "clock-jumps-read-committed"),
            Self::EndsBelow => ("E5", "later-batch-ends-first"),
            Self::ChildApart => ("E7", "between-two-children"),
            Self::NoBase => ("E13", "dump"),
            Self::NoHold => ("E13", "promoted-lagging"),
            Self::AsSent => ("E2", "broker-killed"),
            Self::NewId => ("E3", "confirm-lost"),
            Self::WholeBatch => ("E8", "poison-among-good"),
            Self::AckFirst => ("E3", "consumer-dies-in-handler"),
            Self::NoPayload => ("E8", "first-tries-fail"),
            Self::LooksFirst => ("E5", "copy-while-it-runs"),
            Self::NoSentFence => ("E5", "command-clock-jumps"),
            Self::NewKey | Self::ResendUnknown | Self::RefusalBelieved => ("E4", "answers-lost"),
            Self::RunningAtClaim => ("E4", "dies-claimed"),
            Self::LimitUnlocked => ("E8", "limited"),
            Self::OlderCompletes => ("E6", "entity-changed-inside"),
            Self::BuriesAll => ("E10", "entity-deleted-inside"),
        }
    }

    /// The statements that plant it.
    pub fn sql(self) -> String {
        format!("{TOOL}\n{}", self.statements())
    }

    const fn statements(self) -> &'static str {
        match self {
            Self::NoFence => {
                "create or replace function outlast._prove(token uuid) returns outlast._lease language sql as $$
                   select l from outlast._lease l where l.room = 'batch' order by l.token = _prove.token desc limit 1 $$;
                 create or replace function outlast.complete(
                   token uuid, id uuid, outcome text default 'done', reason text default null) returns void
                 language plpgsql as $$ begin
                   insert into outlast._processed_event (event_id, at, consumer, slot, outcome)
                   select complete.id, outlast.clock(), (outlast._prove(complete.token)).consumer,
                          outlast._inbox_slot(complete.id), 'd'
                   on conflict do nothing; end $$;"
            }
            Self::ReclaimByUpdate => {
                "call pg_temp.plant('_reclaim', 'fresh := gen_random_uuid();', 'fresh := l.token;')"
            }
            Self::FinishBelieves => {
                "call pg_temp.plant('_end', 'from outlast._left(b) f)', 'from outlast._left(b) f where false)')"
            }
            Self::IdCursor => {
                "create or replace function outlast._stragglers(a outlast._tick, b outlast._tick)
                 returns table (xid xid8, since timestamptz) language sql as $$
                   select null::xid8, null::timestamptz where false $$;"
            }
            Self::ClaimAsync => {
                "call pg_temp.plant('_claim', $$set_config('synchronous_commit', 'on', true)$$, 'true');
                 call pg_temp.plant('_remember', $$set_config('synchronous_commit', 'on', true)$$, 'true');"
            }
            Self::DedupLooks => {
                "alter table outlast._dedup drop constraint _dedup_pkey;
                 call pg_temp.plant('emit', 'values (emit.tenant, emit.type, emit.dedup, case when emit.digest is null then 1 else 2 end, _digest, emit.id, _at)',
                   'select emit.tenant, emit.type, emit.dedup, case when emit.digest is null then 1 else 2 end, _digest, emit.id, _at where not exists (
                      select from outlast._dedup x where (x.tenant, x.type, x.key) = (emit.tenant, emit.type, emit.dedup))');
                 call pg_temp.plant('emit', 'on conflict do nothing;', ';');"
            }
            Self::TokenRead => {
                "call pg_temp.plant('_prove',
                   'perform pg_advisory_xact_lock_shared(outlast._lease_lock(_prove.token));', '');
                 call pg_temp.plant('_seal_last',
                   'locked := pg_advisory_xact_lock_shared(outlast._lease_lock(token))::text;', '')"
            }
            Self::EndsBelow => {
                "call pg_temp.plant('_end', 'delete from outlast._lease x where x.token = (l).token;',
                   'delete from outlast._lease x where x.token = (l).token
                      or (x.room, x.consumer, x.lane) = ((l).room, (l).consumer, (l).lane) and x.seq < (l).seq;')"
            }
            Self::ChildApart
            | Self::AsSent
            | Self::NewId
            | Self::WholeBatch
            | Self::AckFirst => "",
            Self::NoPayload => {
                "call pg_temp.plant('_hand_over', 'e.codec_key, e.headers, e.payload, d.foreign_at is not null',
                   'e.codec_key, e.headers, ''''::bytea, d.foreign_at is not null')"
            }
            // Between the two time passes, as it may.
            Self::LooksFirst => {
                "call pg_temp.plant('_claim_delivered',
                   'done := array(select * from outlast._sealed(c.id, array(select x.event_id from unnest(a) x where x.verdict is null)));', '');
                 call pg_temp.plant('_claim_delivered', '-- The leases first.',
                   E'\n  done := array(select * from outlast._sealed(c.id, array(select x.event_id from unnest(a) x where x.verdict is null)));
                     perform pg_sleep(1.8);\n  -- The leases first.')"
            }
            Self::NoSentFence => {
                "call pg_temp.plant('_sent', 'perform outlast._prove(_sent.token);', '');
                 call pg_temp.plant('_sent', 'join outlast._job_claimed c on c.id = x.id', '');
                 call pg_temp.plant('_sent', 'c.token = _sent.token and ', '');
                 call pg_temp.plant('_sent', ' and x.next = ''s'' and x.state in (''waiting'', ''unknown'')', '');
                 call pg_temp.plant('_sent', 'if m.state = ''unknown'' then', 'if false then');"
            }
            Self::NewKey => {
                "call pg_temp.plant('_taken', 'm.provider_key, m.reference,',
                   'm.provider_key || coalesce(''-'' || s.failures, ''''), m.reference,')"
            }
            Self::ResendUnknown => {
                "call pg_temp.plant('_fail_command', 'if class in (''unknown'', ''unclassified'') then', 'if false then')"
            }
            Self::RunningAtClaim => {
                "call pg_temp.plant('_claim_name', 'j.id, _claim_name.token, j.account from outlast._job j where j.id = any (ids);',
                   'j.id, _claim_name.token, j.account from outlast._job j where j.id = any (ids);
                    update outlast._command m set was = m.state, state = ''running'', sent = true,
                      first_sent_at = coalesce(m.first_sent_at, outlast.clock()) where m.id = any (ids) and m.state = ''waiting'';');
                 call pg_temp.plant('_sent', 'x.state in (''waiting'', ''unknown'')', 'x.state in (''waiting'', ''unknown'', ''running'')')"
            }
            Self::RefusalBelieved => {
                "call pg_temp.plant('_record', 'and not asked and m.ambiguous then', 'and false then')"
            }
            Self::LimitUnlocked => {
                "call pg_temp.plant('_take_counted', 'if pg_try_advisory_xact_lock(outlast._account_lock(g.account)) then', 'if true then');
                 call pg_temp.plant('_take_counted', 'select * into got from outlast._take_of(_take_counted.name, g, allowed);',
                   'perform pg_sleep(0.05); select * into got from outlast._take_of(_take_counted.name, g, allowed);')"
            }
            Self::OlderCompletes => {
                "call pg_temp.plant('_converged', 'more := e.again or', 'more := false or')"
            }
            Self::BuriesAll => {
                "call pg_temp.plant('_converged', 'perform outlast._bury(e, e.seen);',
                   'delete from outlast._tombstone t where t.entity = e.id;')"
            }
            Self::NoBase => {
                "call pg_temp.plant('_scan', '(e.id <= base or pg_visible_in_snapshot(e.xid, visible))',
                   'pg_visible_in_snapshot(e.xid, visible)')"
            }
            Self::NoHold => {
                "call pg_temp.plant('_check_running', 'if h.held is not null', 'if false')"
            }
        }
    }
}

impl FromStr for Plant {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|plant| plant.as_str() == word);
        known.ok_or_else(|| {
            let words = Self::ALL.map(Self::as_str).join(", ");
            format!("`{word}` is not one of {words}")
        })
    }
}
