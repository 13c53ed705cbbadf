//! What a statement of entities reads does not grow: not with those that are converged, stopped or paused, not with the marks of a hot
//! one, and not with the marks that were taken under an old snapshot.

use uuid::Uuid;

use super::{Statistics, meter::Meter};
use crate::house::{House, forward};
use crate::sql::{self, run};

/// Often enough for generic plans.
const ROUNDS: usize = 6;

/// So many entities at once, as the fold would have them: converged, or ready.
const FILL: &str = "
    create function pg_temp.fill(called text, n int, tenants int, converged boolean) returns void language sql as $$
      with e as (
        insert into outlast._entity (id, name, tenant, entity_id, marked_at, converged_at)
        select outlast._v7(clock_timestamp()), called, 't' || i % tenants, i::text, clock_timestamp(), case when converged then clock_timestamp() end
        from generate_series(1, n) i returning *), j as (
        insert into outlast._job (id, kind, name, tenant, key, account, priority, schema_version, accepted_at, content_type, payload)
        select id, 'e', name, tenant, entity_id, '', 0, 1, clock_timestamp(), 'application/json', '{}' from e)
      insert into outlast._job_ready (seq, priority, id, name, account, tenant)
      select nextval('outlast._event_id'), 0, id, 'entity:' || name, '', tenant from e where not converged $$";

/// A database with the function that fills it.
async fn store() -> Meter {
    let house = House::new().await;
    house.movable_clock().await;
    let meter = Meter::new(house, "^_(job|lease|entity|tombstone)").await;
    run(&meter.client, FILL).await;
    meter
}

impl Meter {
    async fn fill_entities(&self, name: &str, n: i32, tenants: i32, converged: bool) {
        let sql = "select pg_temp.fill($1, $2, $3, $4)";
        self.client
            .execute(sql, &[&name, &n, &tenants, &converged])
            .await
            .expect("fills");
    }

    async fn mark(&self, name: &str, n: i32) {
        let sql = "select count(outlast.changed($1, 'hot')::text) from generate_series(1, $2::int)";
        self.client.query(sql, &[&name, &n]).await.expect("marks");
    }

    async fn claim_entities(
        &mut self,
        what: &'static str,
        bound: i64,
        name: &str,
        room: i32,
    ) -> (Uuid, Vec<Uuid>) {
        let sql = "select token, id from outlast._claim_jobs(array['entity:' || $1], array[1], array[$2::int], 4194304, 60000)";
        let rows = self.note(what, bound, sql, &[&name, &room]).await;
        let token = rows.first().map_or(Uuid::nil(), |row| row.get(0));
        (token, rows.iter().map(|row| row.get(1)).collect())
    }
}

async fn costs(statistics: Statistics) {
    let mut store = store().await;
    store.fill_entities("old", 20_000, 10, true).await;
    store.fill_entities("paused", 5_000, 1, false).await;
    store.fill_entities("crm", 5_000, 1_000, true).await;
    store.fill_entities("crm2", 1_000, 5, false).await;
    // Some that wait for their time, and some for a person.
    store.fill_entities("stopped", 4_000, 1, false).await;
    run(
        &store.client,
        "delete from outlast._job_ready where name = 'entity:stopped';
         insert into outlast._job_state (id, failures, class, incident_at, changed_at)
           select id, 8, 'retry', clock_timestamp(), clock_timestamp() from outlast._entity where name = 'stopped' and entity_id::int % 2 = 0;
         insert into outlast._job_later (id, due_at, name, alone)
           select id, clock_timestamp() + interval '1 day', 'entity:stopped', false from outlast._entity where name = 'stopped' and entity_id::int % 2 = 1;
         select outlast.pause_entity('paused', 'why')",
    )
    .await;
    // Only here something was taken that nobody had looked at.
    run(&store.client, "vacuum outlast._job_ready").await;
    if statistics == Statistics::Fresh {
        run(&store.client, "analyze").await;
    }
    for _ in 0..ROUNDS {
        let mark = "select outlast.changed('crm', '7', tenant => 't7')";
        store.note("a mark", 20, mark, &[]).await;
        let mark = "select outlast.deleted('crm', '7', '{\"a\":1}', tenant => 't7')";
        store.note("a tombstone", 20, mark, &[]).await;
        let (token, ids) = store
            .claim_entities("a claim of one with two marks", 60, "crm", 50)
            .await;
        assert_eq!(ids.len(), 1);
        store
            .note(
                "a keep",
                20,
                "select outlast._keep($1, $2, '1')",
                &[&token, &ids[0]],
            )
            .await;
        store
            .note(
                "its completion and end",
                60,
                "select outlast._complete_and_finish_jobs($1, $2)",
                &[&token, &ids],
            )
            .await;
        let (token, ids) = store.claim_entities("a claim of 50", 500, "crm2", 50).await;
        assert_eq!(ids.len(), 50);
        store
            .note(
                "a completion of 40",
                300,
                "select outlast._complete_jobs($1, $2)",
                &[&token, &&ids[..40]],
            )
            .await;
        store
            .note(
                "a failure",
                60,
                "select outlast.fail($1, $2, 'retry', 'why', 86400000)",
                &[&token, &ids[40]],
            )
            .await;
        store
            .note(
                "the end of a claim with 9 left",
                250,
                "select outlast._finish_jobs($1)",
                &[&token],
            )
            .await;
        store
            .claim_entities("a claim of what is paused", 20, "paused", 50)
            .await;
        store
            .claim_entities("a claim of what is stopped", 40, "stopped", 50)
            .await;
        store
            .note(
                "a look for work",
                60,
                "select * from outlast._due_jobs('{entity:crm,entity:paused}')",
                &[],
            )
            .await;
        store
            .note(
                "a look at one",
                40,
                "select * from outlast.entity_status('crm', '7', 't7')",
                &[],
            )
            .await;
        store
            .note(
                "a removal of nothing",
                60,
                "select outlast._forget_jobs(100)",
                &[],
            )
            .await;
    }
    store.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_statistics_a_statement_of_entities_reads_what_it_needs() {
    costs(Statistics::None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_fresh_statistics_a_statement_of_entities_reads_what_it_needs() {
    costs(Statistics::Fresh).await;
}

/// A claim takes a bounded part of the marks, and that part costs the same, however many there are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_marks_of_one_hot_entity_are_taken_part_by_part() {
    let mut store = store().await;
    store.mark("crm", 100_000).await;
    let (mut claims, mut runs) = (0, 0);
    while store
        .client
        .query_one("select outlast._has_marks()", &[])
        .await
        .expect("looks")
        .get(0)
    {
        let (token, ids) = store
            .claim_entities("a claim of 2,500 marks", 5_000, "crm", 50)
            .await;
        claims += 1;
        runs += ids.len();
        if !ids.is_empty() {
            store
                .note(
                    "its end",
                    100,
                    "select outlast._complete_and_finish_jobs($1, $2)",
                    &[&token, &ids],
                )
                .await;
        }
    }
    assert_eq!((claims, runs), (40, 40));
    store.check();
    assert_eq!(sql::broken(&store.client).await, Vec::<String>::new());
}

/// Somebody holds an old snapshot, so no mark that was taken goes away: not its row, not its index entry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_a_held_snapshot_a_claim_of_a_hot_entity_does_not_walk_over_the_marks_that_were_taken()
 {
    let mut store = store().await;
    let holder = store.house.connect().await;
    run(&holder, "begin isolation level repeatable read; select 1").await;
    for _ in 0..40 {
        store.mark("crm", 200).await;
        forward(&store.client, 2).await;
        let (token, ids) = store
            .claim_entities("a claim of 200 marks", 3_000, "crm", 5)
            .await;
        assert_eq!(ids.len(), 1);
        store
            .note(
                "its end",
                600,
                "select outlast._complete_and_finish_jobs($1, $2)",
                &[&token, &ids],
            )
            .await;
    }
    store.check();
    store.most.clear();
    run(&store.client, "delete from outlast._entity_look").await;
    store.mark("crm", 1).await;
    store.claim_entities("without the place", 0, "crm", 5).await;
    assert!(
        store.most["without the place"].1 > 8_000,
        "{:?}",
        store.most
    );
    assert_eq!(sql::broken(&store.client).await, Vec::<String>::new());
}
