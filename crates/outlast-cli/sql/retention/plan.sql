-- What each room holds, at what rate it grows, and what it will hold at rest.
select room, consumer, stored, bytes, per_second, kept_s, stored_at_rest, bytes_at_rest, bytes_each
from outlast._retention_plan()
