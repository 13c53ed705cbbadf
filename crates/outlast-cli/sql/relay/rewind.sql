-- Publishes once more. Parameters as in preview.sql; $6 the reason.
select id, round, events
from outlast.rewind($1, coalesce($2::text::timestamptz, outlast.clock() - $3::text::interval),
                        coalesce($4::text::timestamptz, outlast.clock() - $5::text::interval), $6)
