-- Does without what was told of a command that never came. $1 name, $2 key (null: all older than a week), $3 why, $4 tenant, $5 who.
select outlast.discard_settlement(name => $1, key => $2, reason => $3, tenant => $4, actor => $5) as discarded
