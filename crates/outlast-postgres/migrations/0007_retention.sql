-- The life of what is finished: which parts of the rings were emptied, and completions folded into bits.
-- breaking: no

-- A bit for each of 8,192 log ids from base on: set = this consumer completed it. Replaces its inbox rows.
create table outlast._folded (
  consumer        int not null,
  base            bigint not null,
  done            bytea not null check (octet_length(done) = 1024),
  completed       int not null,                -- bits set
  folded_at       timestamptz not null,
  primary key (consumer, base)
);
