-- The life of what is finished: which parts of the rings were emptied, and completions folded into bits.
-- breaking: no

-- A bit for each of 8,192 log ids from base on: set = this consumer completed it. Written once its rows are a day old;
-- a range that was folded in parts is replaced as a whole.
create table outlast._folded (
  consumer        int not null,
  base            bigint not null check (base % 8192 = 0),
  done            bytea not null check (octet_length(done) = 1024),
  completed       int not null check (completed between 1 and 8192),   -- bits set
  oldest_at       timestamptz not null,        -- times inside of the event ids: which slots of the inbox they belong to
  newest_at       timestamptz not null,
  folded_at       timestamptz not null,
  primary key (consumer, base)
);

-- How far a consumer is folded: every event with a smaller log id is proved by its bit, or stands in _unfolded, or was
-- not completed. The newest row counts.
create table outlast._fold_place (
  consumer        int not null,
  next            bigint not null,
  primary key (consumer, next)
);

-- Events below that place that have, or may still get, a row of their own in the inbox: skipped ones with their reason,
-- parked ones, a handful in a range that is not worth its bits.
create table outlast._unfolded (
  slot            smallint not null,           -- outlast._inbox_slot(event_id)
  consumer        int not null,
  event_id        uuid not null,
  primary key (slot, consumer, event_id)
);

-- What maintenance knows of each leaf of the two rings. One process writes it, about once a minute.
create table outlast._ring_slot (
  ring            text not null check (ring in ('log', 'inbox')),
  slot            smallint not null check (slot between 0 and 15),
  passed_at       timestamptz,                 -- since when nobody needs a row of it
  removable_at    timestamptz,                 -- since when it was also kept for long enough
  tried_at        timestamptz,                 -- last try to take its lock
  swept_until     timestamptz,                 -- inbox: completions of ids from before this are folded, their rows are gone
  emptied_until   timestamptz,                 -- inbox: nothing is known any more of completions of ids from before this
  primary key (ring, slot)
);
insert into outlast._ring_slot (ring, slot) select r, s from unnest(array['log', 'inbox']) r, generate_series(0, 15) s;

-- Old deduplication keys are found by it.
create index _dedup_taken on outlast._dedup (taken_at);

-- What a route publishes once more, because an operator asked for it: a range of time of what the log still holds.
create table outlast._rewind (
  id              bigint generated always as identity primary key,
  consumer        int not null references outlast._consumer (id),
  round           int not null check (round > 0),                -- which rewind of its consumer: a broker that drops doubles is told
  since           timestamptz not null,
  until           timestamptz not null check (until > since),
  hi              bigint not null,             -- what came later is not part of it
  period          bigint not null,             -- where it stands: how many slot lengths since 1970, and an id of that slot
  at_id           bigint not null,
  events          bigint not null,             -- how many there were when it was asked for
  sent            bigint not null default 0,
  refused         bigint not null default 0,   -- messages that the broker can never take
  state           text not null default 'running' check (state in ('running', 'done', 'cancelled')),
  reason          text,
  actor           text not null,
  asked_at        timestamptz not null,
  ended_at        timestamptz,
  check ((state = 'running') = (ended_at is null)),
  unique (consumer, round)
);
