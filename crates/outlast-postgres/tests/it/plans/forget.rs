//! The removal of what is old reads what is old, not all that is kept.

use super::Attic;
use crate::house::House;
use crate::sql;

const KEPT: i32 = 20_000;

#[tokio::test]
async fn a_removal_of_nothing_does_not_read_all_that_is_kept() {
    let attic = Attic::empty(House::new().await).await;
    let keys = format!(
        "insert into outlast._dedup (tenant, type, key, rule, digest, event_id, taken_at)
         select '', 'a', n::text, 1, '', gen_random_uuid(), outlast.clock() from generate_series(1, {KEPT}) n"
    );
    let lost = format!(
        "insert into outlast._delivered (consumer, event_id, since)
         select (select min(id) from outlast._consumer), gen_random_uuid(), outlast.clock() from generate_series(1, {KEPT})"
    );
    let foreign = format!(
        "insert into outlast._foreign_event (consumer, event_id, at, emitted_at, outcome)
         select 1, gen_random_uuid(), outlast.clock(), outlast.clock(), 'd' from generate_series(1, {KEPT})"
    );
    let moved = format!(
        "insert into outlast._moved_event (slot, consumer, event_id, at, outcome)
         select 1, (select min(id) from outlast._consumer), outlast._v7(outlast.clock()), outlast.clock(), 'd' from generate_series(1, {KEPT})"
    );
    let emptied = "update outlast._ring_slot set emptied_until = outlast.clock() - interval '30 days' where ring = 'inbox' and slot = 1";
    for fill in [keys, lost, foreign, moved, emptied.to_owned()] {
        sql::run(&attic.client, &fill).await;
    }
    for removal in [
        "select outlast._forget_keys(100)",
        "select outlast._forget_delivered(100)",
        "select outlast._forget(100)",
    ] {
        let mut most = 0;
        for _ in 0..8 {
            let (rows, read) = attic.measure(removal, &[]).await;
            assert_eq!(rows[0].get::<_, i32>(0), 0, "{removal}");
            most = most.max(read);
        }
        assert!(most < 500, "{removal} reads {most} rows for nothing");
    }
}
