-- One job, durable when this statement has been answered.
select id, new, conflict, expired
from outlast.enqueue(
  name => $1, bytes => $2, content_type => $3, key => $4, tenant => $5, after_ms => $6, at => $7::text::timestamptz, priority => $8,
  version => $9, attempts => $10, lifetime_ms => $11, source => $12, actor => $13)
