-- What of an entry of types a consumer has not done. $1 the consumer's name, $2 the entry, $3 entries that stay: what they take is
-- not counted. Parked, and in the log after its places: of each at most 20,000 rows are looked at. No row: no such consumer.
select (select count(*) from outlast._parked p
        where p.consumer = c.id and outlast._matches(p.type, $2)
          and not exists (select from unnest($3::text[]) s (entry) where outlast._matches(p.type, s.entry))) as parked,
       (select coalesce(sum(w.n), 0)::bigint
        from outlast._places(c.id) p
        cross join lateral (
          select count(*) as n
          from (select * from outlast._event x where x.id > least(p.hi, (p.a).hi) limit 20000) e
          where outlast._matches(e.type, $2)
            and not exists (select from unnest($3::text[]) s (entry) where outlast._matches(e.type, s.entry))
            and outlast._in_lane(p.lane, p.parts, p.tenants, p.without, e.key, e.id, e.tenant)
            and not (outlast._sees((p.a).snap, (p.a).hi, (p.a).base, e.id, e.xid)
                     or e.id <= p.hi and outlast._sees((p.b).snap, (p.b).hi, (p.b).base, e.id, e.xid))
            and outlast._takes(c.id, e.type, e.tenant, e.source, e.id, e.xid)) w) as waiting
from outlast._consumer c
where c.name = $1 and c.state <> 'retired'
