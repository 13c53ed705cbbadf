-- One intent, durable when this statement has been answered.
select id, new, conflict, expired
from outlast.emit(
  type => $1, bytes => $2, content_type => $3, key => $4, tenant => $5, dedup => $6, version => $7, source => $8,
  subject => $9, actor => $10)
