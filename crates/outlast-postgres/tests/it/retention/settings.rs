//! How the settings limit each other: all problems are said at once.

use crate::house::House;
use crate::sql;

async fn problems(client: &tokio_postgres::Client, settings: &str) -> Vec<String> {
    let sql = "select outlast._check_settings($1::text::jsonb)";
    let rows = client.query(sql, &[&settings]).await.expect("checks");
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn settings_that_contradict_each_other_are_all_named_at_once() {
    let house = House::new().await;
    let client = house.connect().await;
    assert_eq!(problems(&client, "{}").await, Vec::<String>::new());
    for (settings, expected) in [
        (r#"{"retention.log":"7d"}"#, vec![]),
        (
            r#"{"retention.log":"8d","retention.inbox":"42d"}"#,
            vec!["retention.log = 8d is longer"],
        ),
        (
            r#"{"retention.inbox":"43d"}"#,
            vec!["retention.inbox = 43d is longer"],
        ),
        (r#"{"retention.inbox":"24d"}"#, vec![]),
        (
            r#"{"retention.inbox":"23d"}"#,
            vec!["retention.inbox = 23d is shorter than 24d"],
        ),
        (r#"{"retention.replay":"20d"}"#, vec![]),
        (
            r#"{"retention.replay":"21d"}"#,
            vec!["retention.inbox = 30d is shorter than 31d"],
        ),
        (
            r#"{"retention.dedup":"7d"}"#,
            vec!["retention.dedup = 7d is shorter"],
        ),
        (
            r#"{"retention.fold_after":"12h"}"#,
            vec!["retention.fold_after = 12h is shorter"],
        ),
        (
            r#"{"retention.fold_after":"8d"}"#,
            vec!["retention.fold_after = 8d is longer"],
        ),
        (
            r#"{"retention.lgo":"1d"}"#,
            vec!["retention.lgo is no setting"],
        ),
        (
            r#"{"retention.log":"three days"}"#,
            vec!["retention.log = three days is not a duration"],
        ),
        (
            r#"{"wake":"sometimes"}"#,
            vec!["wake = sometimes is not one of poll, notify"],
        ),
        (
            r#"{"retention.log":"8d","retention.dedup":"1d","wake":"no","x":"1"}"#,
            vec![
                "x is no setting",
                "retention.dedup",
                "wake = no",
                "retention.log = 8d",
            ],
        ),
    ] {
        let mut found = problems(&client, settings).await;
        found.sort();
        let mut expected: Vec<&str> = expected;
        expected.sort_unstable();
        assert_eq!(found.len(), expected.len(), "{settings}: {found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{settings}: {found}");
        }
    }
}

#[tokio::test]
async fn what_is_not_given_counts_as_it_is_in_force_and_null_as_its_standard() {
    let house = House::new().await;
    let client = house.connect().await;
    sql::run(
        &client,
        "insert into outlast._setting (name, value) values ('retention.replay', '21d')",
    )
    .await;
    assert_eq!(problems(&client, "{}").await.len(), 1);
    assert_eq!(
        problems(&client, r#"{"retention.inbox":"31d"}"#).await,
        Vec::<String>::new()
    );
    assert_eq!(
        problems(&client, r#"{"retention.replay":null}"#).await,
        Vec::<String>::new()
    );
}
