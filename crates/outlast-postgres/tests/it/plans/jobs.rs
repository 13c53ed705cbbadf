//! What a statement of jobs reads does not grow: not with what has ended, not with what nobody may take, not with tenants, and not
//! with what was taken under an old snapshot.

use uuid::Uuid;

use super::{Statistics, meter::Meter};
use crate::house::House;
use crate::sql::{self, run};

/// Often enough for generic plans.
const ROUNDS: usize = 6;

/// So many jobs at once, as `enqueue` would have them.
const FILL: &str = "
    create function pg_temp.fill(queue text, n int, tenants int, account text) returns void language sql as $$
      with j as (
        insert into outlast._job (id, kind, name, tenant, account, priority, schema_version, accepted_at, content_type, payload)
        select outlast._v7(clock_timestamp()), 'j', queue, 't' || i % tenants, account, 0, 1, clock_timestamp(), 'application/json', '{}'
        from generate_series(1, n) i returning id, tenant)
      insert into outlast._job_ready (seq, priority, id, name, account, tenant)
      select nextval('outlast._event_id'), 0, id, queue, fill.account, tenant from j $$";

/// A database with the function that fills it.
async fn store() -> Meter {
    let house = House::new().await;
    let meter = Meter::new(house, "^_(job|lease)").await;
    run(&meter.client, FILL).await;
    meter
}

impl Meter {
    async fn fill_jobs(&self, queue: &str, n: i32, tenants: i32, account: &str) {
        let sql = "select pg_temp.fill($1, $2, $3, $4)";
        self.client
            .execute(sql, &[&queue, &n, &tenants, &account])
            .await
            .expect("fills");
    }

    async fn claim_jobs(
        &mut self,
        what: &'static str,
        bound: i64,
        name: &str,
        room: i32,
        floors: &str,
    ) -> (Uuid, Vec<Uuid>, i64) {
        let sql = "select token, id, seq from outlast._claim_jobs(array[$1], array[1], array[$2::int], 4194304, 60000, floors => $3::text::jsonb)";
        let rows = self.note(what, bound, sql, &[&name, &room, &floors]).await;
        let token = rows.first().map_or(Uuid::nil(), |row| row.get(0));
        let last = rows.last().map_or(0, |row| row.get(2));
        (token, rows.iter().map(|row| row.get(1)).collect(), last)
    }
}

async fn costs(statistics: Statistics) {
    let mut store = store().await;
    // What has ended, what is paused, what belongs to a paused account, many tenants, and what waits for another day.
    store.fill_jobs("old", 20_000, 10, "").await;
    run(&store.client, "delete from outlast._job_ready; insert into outlast._job_end select id, clock_timestamp(), 'd' from outlast._job").await;
    store.fill_jobs("paused", 10_000, 1, "").await;
    store.fill_jobs("mail", 10_000, 5, "away").await;
    store.fill_jobs("many", 10_000, 5_000, "").await;
    store.fill_jobs("mail", 1_000, 1, "").await;
    let later = "insert into outlast._job_later select id, clock_timestamp() + interval '1 day', name, false from outlast._job_ready where name = 'paused';
        delete from outlast._job_ready where name = 'paused' and seq % 2 = 0; delete from outlast._job_later l using outlast._job_ready r where r.id = l.id";
    run(&store.client, later).await;
    run(
        &store.client,
        "select outlast.pause_job('paused', 'why'), outlast.pause_account('away', 'why')",
    )
    .await;
    if statistics == Statistics::Fresh {
        run(&store.client, "analyze").await;
    }
    for _ in 0..ROUNDS {
        store
            .note(
                "an enqueue",
                20,
                "select * from outlast.enqueue('mail', '{}', key => gen_random_uuid()::text)",
                &[],
            )
            .await;
        store
            .claim_jobs("a claim of an unknown name", 20, "unknown", 50, "{}")
            .await;
        store
            .claim_jobs("a claim of a paused name", 20, "paused", 50, "{}")
            .await;
        let (token, ids, _) = store
            .claim_jobs("a claim of 50", 400, "mail", 50, "{}")
            .await;
        assert_eq!(ids.len(), 50);
        store
            .note(
                "a start of 3",
                120,
                "select outlast._start_jobs($1, $2)",
                &[&token, &&ids[..3]],
            )
            .await;
        store
            .note(
                "one completion",
                30,
                "select outlast.complete($1, $2)",
                &[&token, &ids[0]],
            )
            .await;
        store
            .note(
                "a completion of 40",
                150,
                "select outlast._complete_jobs($1, $2)",
                &[&token, &&ids[1..41]],
            )
            .await;
        store
            .note(
                "a failure",
                60,
                "select outlast.fail($1, $2, 'retry', 'why', 86400000)",
                &[&token, &ids[41]],
            )
            .await;
        store
            .note(
                "a look at one",
                20,
                "select * from outlast.status($1, 't0')",
                &[&ids[42]],
            )
            .await;
        store
            .note(
                "a cancellation",
                30,
                "select outlast.cancel($1, 'why', 't0')",
                &[&ids[42]],
            )
            .await;
        store
            .note(
                "the end of a claim with 8 left",
                250,
                "select outlast._complete_and_finish_jobs($1, $2)",
                &[&token, &&ids[43..45]],
            )
            .await;
        let (_, ids, _) = store
            .claim_jobs("a claim of 50 of 5,000 tenants", 700, "many", 50, "{}")
            .await;
        assert_eq!(ids.len(), 50);
        store
            .note(
                "a reclaim of nothing",
                40,
                "select outlast._reclaim_jobs(10)",
                &[],
            )
            .await;
        store
            .note(
                "a look for work",
                100,
                "select * from outlast._due_jobs('{mail,paused,unknown}')",
                &[],
            )
            .await;
        store
            .note(
                "a promotion of nothing",
                20,
                "select * from outlast._promote(100)",
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
async fn without_statistics_a_statement_of_jobs_reads_what_it_needs() {
    costs(Statistics::None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_fresh_statistics_a_statement_of_jobs_reads_what_it_needs() {
    costs(Statistics::Fresh).await;
}

/// Plans are kept for as long as their session lives, and nobody takes statistics as quickly as a table grows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_that_was_made_while_the_tables_were_small_reads_no_more_when_they_are_large() {
    let mut store = store().await;
    for history in [0, 30_000] {
        if history > 0 {
            store.fill_jobs("old", history, 10, "").await;
            run(
                &store.client,
                "delete from outlast._job_ready where name = 'old';
                 insert into outlast._job_end select id, clock_timestamp(), 'd' from outlast._job where name = 'old';
                 insert into outlast._job_state (id, failures, changed_at) select id, 1, clock_timestamp() from outlast._job where name = 'old'",
            )
            .await;
        }
        for _ in 0..ROUNDS {
            store.fill_jobs("mail", 20, 2, "").await;
            let (token, ids, _) = store
                .claim_jobs("a claim of 20", 200, "mail", 20, "{}")
                .await;
            assert_eq!(ids.len(), 20);
            let fail = "select outlast.fail($1, $2, 'retry', 'why')";
            store.note("a failure", 60, fail, &[&token, &ids[0]]).await;
            let end = "select outlast._complete_and_finish_jobs($1, $2)";
            store
                .note("the end of 19", 150, end, &[&token, &&ids[1..]])
                .await;
            run(
                &store.client,
                "update outlast._job_later set due_at = clock_timestamp()",
            )
            .await;
            let promote = "select * from outlast._promote(100)";
            store.note("a promotion", 60, promote, &[]).await;
            let (token, ids, _) = store
                .claim_jobs("a claim of one", 60, "mail", 1, "{}")
                .await;
            store.note("the end of one", 40, end, &[&token, &ids]).await;
        }
    }
    store.check();
}

/// Somebody holds an old snapshot, so nothing that is taken goes away: not the rows, not their index entries.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_a_held_snapshot_a_claim_with_floors_does_not_get_dearer() {
    let mut store = store().await;
    let holder = store.house.connect().await;
    run(&holder, "begin isolation level repeatable read; select 1").await;
    // A neighbour before and one behind it in the index.
    for tenant in ["a", "z"] {
        let sql =
            format!("select outlast.enqueue('mail', '{{}}', tenant => '{tenant}', priority => 3)");
        run(&store.client, &sql).await;
    }
    store.fill_jobs("mail", 5_500, 1, "").await;
    let (mut floors, mut taken) = ("{}".to_owned(), 0);
    while taken < 5_000 {
        let (token, ids, above) = store
            .claim_jobs("a claim of 250", 3_000, "mail", 250, &floors)
            .await;
        taken += ids.len();
        store
            .note(
                "the end of 250",
                1_200,
                "select outlast._complete_and_finish_jobs($1, $2)",
                &[&token, &ids],
            )
            .await;
        floors = format!(
            r#"{{"mail": [{{"account": "", "tenant": "t0", "priority": 0, "above": {above}}}]}}"#
        );
    }
    for tenant in ["a", "t0", "z"] {
        let sql = format!("select outlast.enqueue('mail', '{{}}', tenant => '{tenant}')");
        run(&store.client, &sql).await;
    }
    let (_, ids, _) = store
        .claim_jobs("a claim of 50 above 5,000 dead", 700, "mail", 50, &floors)
        .await;
    assert_eq!(ids.len(), 50);
    assert_eq!(
        store
            .claim_jobs("a claim of all others", 3_000, "mail", 1_000, &floors)
            .await
            .1
            .len(),
        455
    );
    store
        .claim_jobs(
            "a claim of nothing above 5,500 dead",
            1_200,
            "mail",
            50,
            &floors,
        )
        .await;

    // What waits for its time, and its time comes: again and again.
    store.fill_jobs("later", 4_000, 1, "").await;
    run(&store.client, "insert into outlast._job_later select id, clock_timestamp() - interval '10 minutes', name, false from outlast._job_ready where name = 'later'; delete from outlast._job_ready where name = 'later'").await;
    run(&store.client, "select outlast._promote(5000)").await;
    let due = "select id from outlast.enqueue('other', '{}', after_ms => 86400000)";
    run(&store.client, due).await;
    run(&store.client, "select outlast._promote(10)").await;
    for _ in 0..3 {
        run(&store.client, &format!("{due}; update outlast._job_later set due_at = clock_timestamp() where id = (select id from outlast._job_later order by due_at limit 1)")).await;
        let rows = store
            .note(
                "a promotion above 4,000 dead",
                60,
                "select * from outlast._promote(100)",
                &[],
            )
            .await;
        assert_eq!(rows[0].get::<_, i32>(0), 1);
    }
    store.check();
    // Without the floors it walks over all of them: they are what makes the difference.
    store.most.clear();
    store.claim_jobs("without", 0, "mail", 50, "{}").await;
    assert!(store.most["without"].1 > 5_000, "{:?}", store.most);
    assert_eq!(sql::broken(&store.client).await, Vec::<String>::new());
}
