//! What was deleted stays a duty until it is known to be cleaned up, whatever is marked after it.

use super::{Office, Try, claim, complete};
use crate::sql::{self, run};

async fn cleaned(office: &Office, one: &Try, ids: &[i64]) -> Result<u64, tokio_postgres::Error> {
    let sql = "select outlast._cleaned($1, $2, $3)";
    office
        .client
        .execute(sql, &[&one.token, &one.id, &ids])
        .await
}

#[tokio::test]
async fn a_tombstone_outlives_a_later_change_and_failures_until_a_completion() {
    let office = Office::new().await;
    office.deleted("a", r#"{"crm": 1}"#).await;
    office.changed("a").await;
    let first = office.take().await;
    assert_eq!(first.deleted(), [r#"{"crm": 1}"#]);
    assert_eq!(office.fail(&first, "retry").await, "retry");
    office.due().await;
    let second = office.take().await;
    assert_eq!((second.deleted(), second.attempt), (first.deleted(), 2));
    office.lose().await;
    let third = office.take().await;
    assert_eq!(third.deleted(), first.deleted());
    office.complete(&third).await;
    assert_eq!(office.state("a").await, "converged");
    office.changed("a").await;
    assert!(office.take().await.tombstones.is_empty());
    office.must_be_sound().await;
}

#[tokio::test]
async fn each_refs_that_differ_are_a_duty_and_the_same_ones_in_another_spelling_are_not() {
    let office = Office::new().await;
    for refs in [r#"{"crm":1,"b":null}"#, r#"{ "crm": 1.0 }"#, r#"{"crm":2}"#] {
        office.deleted("a", refs).await;
    }
    assert_eq!(
        office.take().await.deleted(),
        [r#"{"crm":1,"b":null}"#, r#"{"crm":2}"#]
    );
    office.must_be_sound().await;
}

#[tokio::test]
async fn what_was_deleted_again_while_it_was_cleaned_up_is_handed_out_again() {
    let office = Office::new().await;
    office.deleted("a", "1").await;
    let first = office.take().await;
    office.deleted("a", "1").await;
    office.deleted("a", "2").await;
    // Another one takes the new marks.
    claim(&office.client, "crm", 5).await.expect("claims");
    office.complete(&first).await;
    let second = office.take().await;
    assert_eq!(second.deleted(), ["1", "2"]);
    office.complete(&second).await;
    assert_eq!(office.state("a").await, "converged");
    office.must_be_sound().await;
}

#[tokio::test]
async fn one_that_is_cleaned_up_is_done_even_if_the_rest_of_the_try_fails() {
    let office = Office::new().await;
    office.deleted("a", "1").await;
    office.deleted("a", "2").await;
    let first = office.take().await;
    cleaned(&office, &first, &[first.tombstones[0].0])
        .await
        .expect("is done");
    office.fail(&first, "retry").await;
    assert_eq!(
        sql::state(cleaned(&office, &first, &[first.tombstones[1].0]).await),
        "OL003"
    );
    office.due().await;
    let second = office.take().await;
    assert_eq!(second.deleted(), ["2"]);
    office.lose().await;
    assert_eq!(
        sql::state(cleaned(&office, &second, &[second.tombstones[0].0]).await),
        "OL001"
    );
    let third = office.take().await;
    // Another entity's, or one that was not handed out: nothing.
    cleaned(&office, &third, &[1, i64::MAX])
        .await
        .expect("is nobody's");
    assert_eq!(
        office
            .count("select count(*) from outlast._tombstone")
            .await,
        1
    );
    office.must_be_sound().await;
}

#[tokio::test]
async fn what_is_beyond_one_try_comes_with_the_next_at_once() {
    let office = Office::new().await;
    let many =
        "select count(outlast.deleted('crm', 'a', i::text)::text) from generate_series(1, 40) i";
    office.count(many).await;
    let mut all = Vec::new();
    for _ in 0..3 {
        let one = office.take().await;
        assert!(one.tombstones.len() <= 16);
        all.extend(one.deleted().into_iter().map(str::to_owned));
        complete(&office.client, &one).await.expect("completes");
    }
    assert_eq!(all, (1..=40).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(office.state("a").await, "converged");
    office.must_be_sound().await;
}

#[tokio::test]
async fn what_was_kept_goes_with_its_deletion_unless_it_is_kept_again() {
    for (back, again) in [(false, false), (true, false), (true, true)] {
        let office = Office::new().await;
        office.changed("a").await;
        let first = office.take().await;
        assert_eq!(
            super::keep(&office.client, &first, Some("7"))
                .await
                .expect("keeps"),
            "kept"
        );
        office.complete(&first).await;
        office.deleted("a", "7").await;
        if back {
            office.changed("a").await;
        }
        let second = office.take().await;
        assert_eq!(
            (second.deleted(), second.refs.as_deref()),
            (vec!["7"], Some("7"))
        );
        if again {
            let kept = super::keep(&office.client, &second, Some("7")).await;
            assert_eq!(kept.expect("keeps"), "kept");
        }
        office.complete(&second).await;
        run(&office.client, "select outlast.changed('crm', 'a')").await;
        assert_eq!(office.take().await.refs.as_deref(), again.then_some("7"));
        office.must_be_sound().await;
    }
}
