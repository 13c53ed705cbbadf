-- Commands: jobs that must not be repeated blindly. What is claimed, when it is due and how it ended stands in the tables of
-- jobs; here stands what a provider may know of it.
-- breaking: no

create table outlast._command (
  id              uuid primary key,
  provider_key    text not null,               -- what the provider is told: a function of the identity
  was             text,                        -- before its last move; null: it has not moved
  state           text not null,
  version         int not null default 0,      -- grows with every move and every send: what was decided on an older one does not count
  next            "char" not null default 's' check (next in ('s', 'l', 'p')),   -- when it is due: send, look up, poll
  sent            boolean not null default false,   -- never unset: something of it may have left
  first_sent_at   timestamptz,
  ambiguous       boolean not null default false,   -- a send may have had an effect that nobody has told of
  restored        boolean not null default false,   -- the database was set back: it may have been sent in what is gone
  not_applied     boolean not null default false,   -- proof that what was sent had none: one more send, whatever the window
  resend_ms       bigint,                      -- what whoever sent it said about the provider: it honours the key so long
  looks_up        boolean not null default false,   -- .. it can be asked
  replays         boolean not null default false,   -- .. it answers a repeated key as it did the first time
  polls_ms        bigint,                      -- while pending it is asked this often
  unknown_at      timestamptz,                 -- since when it is unknown
  pending_until   timestamptz,                 -- then a person must look
  looks           int not null default 0,      -- since it is unknown, or pending
  reference       text,                        -- what the provider calls it
  answer          bytea,
  supersedes      uuid,
  -- The table of core's command::State.
  check (was || ' ' || state in (
    'waiting running', 'waiting settled', 'waiting rejected', 'waiting obsolete', 'waiting cancelled', 'waiting abandoned',
    'running waiting', 'running pending', 'running unknown', 'running settled', 'running rejected', 'running obsolete',
    'pending settled', 'pending rejected', 'pending abandoned',
    'unknown waiting', 'unknown pending', 'unknown settled', 'unknown rejected', 'unknown abandoned')),
  check (was is not null or state = 'waiting'),
  check (sent = (first_sent_at is not null)),
  check (state not in ('running', 'pending', 'unknown') or sent)
);

-- What was sent, answered, asked and told, in the order of its coming. Never changed; kept with the command. No payloads, no
-- secrets: answers are here as their digests.
create table outlast._evidence (
  id              bigint generated always as identity primary key,
  command         uuid not null,
  at              timestamptz not null,
  what            text not null,               -- sent, answered, asked, failed, lost, told, late, decided, restored
  result          text,                        -- settled, pending, rejected, .., or a class of failure
  state           text not null,               -- the command's, when it came
  moved           boolean not null,            -- whether it was believed
  reference       text,
  reason          text,
  digest          bytea,
  actor           text
);
create index _evidence_command on outlast._evidence (command, id);

-- Settlements of commands that are not there yet: a webhook may be quicker than our own commit.
create table outlast._settlement (
  id              bigint generated always as identity primary key,
  tenant          text not null,
  name            text not null,
  key             text not null,
  nth             int not null,                -- of this key, from 1
  state           text not null check (state in ('settled', 'rejected', 'obsolete')),
  answer          bytea,
  reference       text,
  reason          text,
  actor           text not null,
  at              timestamptz not null
);
create unique index _settlement_key on outlast._settlement (tenant, name, key, nth);
create index _settlement_at on outlast._settlement (at);

-- Provider accounts that say so, or fail, are left alone for a while; with a row only while that is so, or was lately.
create table outlast._account (
  name            text primary key,
  paused_until    timestamptz not null,        -- infinity: until a person says so
  failures        int not null default 0,      -- one after the other; from its limit on (five) one try at a time finds out
  reason          text,
  actor           text,                        -- null: the provider, or its failures
  since           timestamptz not null
);

-- What operators allow an account, a cluster setting. Its tokens are its rate.
create table outlast._account_limit (
  name            text primary key check (name <> '' and length(name) <= 200),
  concurrency     int check (concurrency between 1 and 10000),
  rate            float8 check (rate > 0 and rate <= 100000),   -- a second
  burst           int not null default 1 check (burst between 1 and 100000),
  circuit         int not null default 5 check (circuit between 1 and 1000),   -- failures one after the other, and it is left alone
  circuit_pause_s int not null default 60 check (circuit_pause_s between 1 and 3600),   -- not longer at a time
  tokens          float8 not null default 1,
  filled_at       timestamptz not null default clock_timestamp(),
  changed_at      timestamptz not null default clock_timestamp()
);

-- Who has a key of exclusion, and who waits for it, in the order of acceptance. A row from acceptance to the end.
create table outlast._exclusive (
  tenant          text not null,
  key             text not null,
  seq             bigint not null,
  id              uuid not null unique,
  held            boolean not null default false,   -- it has the key, until its end
  blocked         boolean not null default false,   -- it is due nowhere: whoever lets the key go wakes it
  primary key (tenant, key, seq),
  check (not (held and blocked))
);

-- Commands that had ended when somebody told another end of them: a person must look, and nothing moves.
create table outlast._contradiction (
  command         uuid primary key,
  at              timestamptz not null,
  state           text not null,               -- what was told
  reason          text
);
