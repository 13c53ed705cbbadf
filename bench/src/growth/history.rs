//! Finished events of the last three days, as the product would have left them: their rows in the log and in the inbox,
//! and what is older than a day folded by the product itself.

use anyhow::Result;

use crate::server::Database;

/// All of one consumer, which is registered after this and is the first of its database.
pub async fn write(database: &Database, events: i64) -> Result<()> {
    const AT_ONCE: i64 = 100_000;
    let insert = database
        .sql
        .prepare(
            "with e as (
               insert into outlast._event (slot, schema_version, id, xid, event_id, emitted_at, type, tenant, key, content_type, payload)
               select outlast._log_slot(t), 1, nextval('outlast._event_id'), pg_current_xact_id(), outlast._v7(t), t, 'load', '',
                      'key/' || g % 100000, 'application/json',
                      convert_to('{\"n\":' || g || ',\"note\":\"' || repeat('x', 180) || '\"}', 'UTF8')
               from (select g, outlast.clock() - interval '3 days' * (1 - g::float8 / $3::bigint) - interval '1 minute' as t
                     from generate_series($1::bigint, $2::bigint) g) s
               returning event_id, emitted_at)
             insert into outlast._processed_event (event_id, at, consumer, slot, outcome)
             select e.event_id, e.emitted_at, 1, outlast._inbox_slot(e.event_id), 'd' from e",
        )
        .await?;
    let mut done = 0;
    while done < events {
        let up_to = events.min(done + AT_ONCE);
        database
            .sql
            .execute(&insert, &[&(done + 1), &up_to, &events])
            .await?;
        done = up_to;
    }
    Ok(())
}

/// Folds what is old enough.
pub async fn fold(database: &Database) -> Result<()> {
    while database
        .number("select count(*) from outlast._fold(1)")
        .await?
        > 0
    {}
    Ok(())
}
