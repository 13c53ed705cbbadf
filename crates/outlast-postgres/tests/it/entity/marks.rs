//! Marks: rows of the caller's transaction, folded into one run per entity.

use super::{Office, claim};
use crate::house::forward;
use crate::sql::{self, one, run};

#[tokio::test]
async fn many_marks_are_one_run_and_a_mark_that_was_rolled_back_is_none() {
    let office = Office::new().await;
    run(
        &office.client,
        "begin; select outlast.changed('crm', 'never'); rollback",
    )
    .await;
    for _ in 0..5 {
        office.changed("a").await;
    }
    office.changed("b").await;
    let all = office.claim(10).await;
    let keys: Vec<_> = all.iter().map(|one| one.key.as_str()).collect();
    assert_eq!(keys, ["a", "b"], "in the order in which they were marked");
    assert_eq!((all[0].attempt, all[0].refs.clone()), (1, None));
    assert!(office.claim(10).await.is_empty());
    for one in &all {
        office.complete(one).await;
    }
    assert_eq!(office.state("a").await, "converged");
    assert_eq!(office.state("never").await, "unknown");
    assert!(office.claim(10).await.is_empty());
    office.must_be_sound().await;
}

#[tokio::test]
async fn a_reconciler_is_told_which_one_is_meant_by_the_newest_mark_that_says_it() {
    let office = Office::new().await;
    let client = &office.client;
    office.changed("7").await;
    let first = office.take().await;
    assert_eq!(first.payload, r#"{"id" : "7"}"#);
    office.complete(&first).await;
    let sql = "select outlast.changed('crm', '7', payload => '{\"n\":1}'), outlast.changed('crm', '7', payload => '{\"n\":2}', actor => 'jo'),
        outlast.changed('crm', '7')";
    run(client, sql).await;
    let second = office.take().await;
    assert_eq!(second.payload, r#"{"n":2}"#);
    office.complete(&second).await;
    office.changed("7").await;
    let third = office.take().await;
    assert_eq!(third.payload, r#"{"n":2}"#, "as was said before");
    office.complete(&third).await;
    // While two releases mark side by side the newer one's word counts.
    run(
        client,
        "select outlast.changed('crm', '7', payload => '{\"v\":2}', version => 2)",
    )
    .await;
    assert!(office.claim(10).await.is_empty(), "for a newer worker");
    run(
        client,
        "select outlast.changed('crm', '7', payload => '{\"v\":1}')",
    )
    .await;
    office.due().await;
    assert!(
        office.claim(10).await.is_empty(),
        "for a newer worker still"
    );
    office.must_be_sound().await;
}

#[tokio::test]
async fn ten_thousand_are_marked_by_one_statement_and_each_is_run_once() {
    let office = Office::new().await;
    let bulk = "select count(outlast.changed('crm', i::text, tenant => 't' || i % 3)::text) from generate_series(1, 10000) i";
    assert_eq!(office.count(bulk).await, 10_000);
    assert_eq!(
        office
            .count("select count(*) from outlast._entity_mark")
            .await,
        10_000
    );
    let mut seen = std::collections::HashSet::new();
    loop {
        let all = office.claim(1000).await;
        if all.is_empty() {
            break;
        }
        let ids: Vec<_> = all.iter().map(|one| one.id).collect();
        seen.extend(all.iter().map(|one| (one.tenant.clone(), one.key.clone())));
        let sql = "select outlast._complete_and_finish_jobs($1, $2)";
        one::<i32>(&office.client, sql, &[&all[0].token, &ids]).await;
    }
    assert_eq!(seen.len(), 10_000);
    assert_eq!(
        office
            .count("select count(*) from outlast._entity_mark")
            .await,
        0
    );
    // Again, as a nightly repair does it.
    assert_eq!(office.count(bulk).await, 10_000);
    assert_eq!(office.claim(1000).await.len(), 1000);
    assert_eq!(
        office.count("select count(*) from outlast._entity").await,
        10_000
    );
    office.must_be_sound().await;
}

#[tokio::test]
async fn a_flood_of_one_tenant_keeps_nobody_elses_mark_waiting() {
    let office = Office::new().await;
    let flood = "select count(outlast.changed('crm', i::text, tenant => 'flood')::text) from generate_series(1, 20000) i";
    office.count(flood).await;
    run(
        &office.client,
        "select outlast.changed('crm', 'x', tenant => 'late')",
    )
    .await;
    let all = office.claim(4).await;
    assert!(
        all.iter().any(|one| one.tenant == "late"),
        "{:?}",
        all.iter().map(|one| &one.tenant).collect::<Vec<_>>()
    );
    assert!(
        office
            .count("select count(*) from outlast._entity_mark")
            .await
            > 10_000,
        "not all of them were looked at for that"
    );
    office.must_be_sound().await;
}

#[tokio::test]
async fn tenants_get_alike_and_the_same_id_of_two_tenants_is_two_entities() {
    let office = Office::new().await;
    for (tenant, n) in [("a", 50), ("b", 2), ("c", 3)] {
        let sql = format!(
            "select count(outlast.changed('crm', i::text, tenant => '{tenant}')::text) from generate_series(1, {n}) i"
        );
        office.count(&sql).await;
    }
    let all = office.claim(9).await;
    let of = |tenant: &str| all.iter().filter(|one| one.tenant == tenant).count();
    assert_eq!((of("a"), of("b"), of("c")), (4, 2, 3));
    office.must_be_sound().await;
}

/// News and looks: nothing marked needs anybody to come by at the right moment.
#[tokio::test]
async fn whoever_asks_what_is_due_is_told_of_marks_and_of_what_comes_back() {
    let office = Office::new().await;
    let due = "select ready from outlast._due_jobs('{entity:crm}')";
    let client = &office.client;
    assert!(!one::<bool>(client, due, &[]).await);
    let drawn = "select coalesce(pg_sequence_last_value('outlast._event_id'), 0)";
    let before = office.count(drawn).await;
    office.changed("a").await;
    assert!(office.count(drawn).await > before, "a mark is news");
    assert!(one::<bool>(client, due, &[]).await);
    assert!(
        !one::<bool>(
            client,
            "select ready from outlast._due_jobs('{crm,command:crm}')",
            &[]
        )
        .await
    );
    let first = office.take().await;
    assert!(!one::<bool>(client, due, &[]).await);
    office.changed("a").await;
    let before = office.count(drawn).await;
    office.complete(&first).await;
    assert!(office.count(drawn).await > before, "a completion is news");
    assert!(one::<bool>(client, due, &[]).await);
    run(client, "select outlast.pause_entity('crm', 'moving')").await;
    assert!(!one::<bool>(client, due, &[]).await);
    assert!(claim(client, "crm", 5).await.expect("claims").is_empty());
    run(client, "select outlast.resume_entity('crm')").await;
    assert_eq!(office.take().await.key, "a");
    forward(client, 1).await;
    assert_eq!(sql::broken(client).await, Vec::<String>::new());
}
