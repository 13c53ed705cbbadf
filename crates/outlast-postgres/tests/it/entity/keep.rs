//! What a provider calls an entity is kept as soon as it is known, and what a late runner knows is not dropped.

use super::{Office, claim, complete, keep};
use crate::sql::{self, one, run};

#[tokio::test]
async fn what_was_kept_is_there_for_the_next_try_whatever_became_of_this_one() {
    let office = Office::new().await;
    office.changed("a").await;
    let first = office.take().await;
    assert_eq!(
        keep(&office.client, &first, Some(r#"{"group":"g1"}"#))
            .await
            .expect("keeps"),
        "kept"
    );
    // Seen by everybody at once.
    let other = office.house.connect().await;
    let sql = "select has_refs from outlast.entity where entity_id = 'a'";
    assert!(one::<bool>(&other, sql, &[]).await);
    office.lose().await;
    let second = office.take().await;
    assert_eq!(second.refs.as_deref(), Some(r#"{"group":"g1"}"#));
    assert_eq!(
        keep(&office.client, &second, None).await.expect("forgets"),
        "kept"
    );
    office.complete(&second).await;
    office.changed("a").await;
    assert_eq!(office.take().await.refs, None);
    office.must_be_sound().await;
}

#[tokio::test]
async fn under_a_lost_lease_nothing_is_kept_and_a_person_is_told_what_may_be_nobodys() {
    let office = Office::new().await;
    office.changed("a").await;
    let old = office.take().await;
    office.lose().await;
    let new = office.take().await;
    assert_eq!(
        keep(&office.client, &new, Some("2")).await.expect("keeps"),
        "kept"
    );
    assert_eq!(
        keep(&office.client, &old, Some("1"))
            .await
            .expect("is told"),
        "late"
    );
    assert_eq!(
        keep(&office.client, &old, Some(" 2"))
            .await
            .expect("is told"),
        "late"
    );
    assert_eq!(
        keep(&office.client, &old, None).await.expect("is told"),
        "late"
    );
    let incident = "select kind || ' ' || about || ' ' || count from outlast.incident";
    assert_eq!(
        one::<String>(&office.client, incident, &[]).await,
        format!("late refs {} 1", old.id),
        "what is kept anyway is nothing to tell"
    );
    let late = "select convert_from(refs, 'UTF8') from outlast._late_refs";
    assert_eq!(one::<String>(&office.client, late, &[]).await, "1");
    complete(&office.client, &new).await.expect("completes");
    assert_eq!(
        keep(&office.client, &new, Some("3"))
            .await
            .expect("is told"),
        "late",
        "it has ended"
    );
    assert_eq!(
        office
            .count("select outlast.note_refs('crm', 'a', 'removed both')")
            .await,
        2
    );
    assert_eq!(
        office.count("select count(*) from outlast.incident").await,
        0
    );
    let audit = "select detail ->> 'reason' from outlast._audit where action = 'entity.noted'";
    assert_eq!(
        one::<String>(&office.client, audit, &[]).await,
        "removed both"
    );
    office.changed("a").await;
    assert_eq!(office.take().await.refs.as_deref(), Some("2"));
    office.must_be_sound().await;
}

#[tokio::test]
async fn to_keep_waits_for_no_reclaim_and_a_reclaim_leaves_who_is_keeping() {
    let office = Office::new().await;
    let keeper = office.house.connect().await;
    office.changed("a").await;
    let first = office.take().await;
    run(&keeper, "begin").await;
    assert_eq!(
        keep(&keeper, &first, Some("1")).await.expect("keeps"),
        "kept"
    );
    office.lose().await;
    assert!(office.claim(10).await.is_empty(), "it is still his");
    run(&keeper, "commit").await;
    office.lose().await;
    assert_eq!(office.take().await.refs.as_deref(), Some("1"));
    office.must_be_sound().await;
}

#[tokio::test]
async fn refs_that_nobody_could_read_are_refused() {
    let office = Office::new().await;
    office.changed("a").await;
    let first = office.take().await;
    let large = format!("\"{}\"", "x".repeat(16_384));
    for (refs, code) in [
        ("{", "OL007"),
        (large.as_str(), "OL006"),
        (r#""\u0000""#, "OL007"),
    ] {
        assert_eq!(
            sql::state(keep(&office.client, &first, Some(refs)).await),
            code,
            "{refs:.20}"
        );
    }
    let mut nobody = first.clone();
    nobody.id = uuid::Uuid::now_v7();
    assert_eq!(
        sql::state(keep(&office.client, &nobody, Some("1")).await),
        "OL003"
    );
    office.must_be_sound().await;
}

#[tokio::test]
async fn what_a_person_says_is_not_true_any_more_is_forgotten_and_nothing_else() {
    let office = Office::new().await;
    office.deleted("a", "\"g7\"").await;
    let first = office.take().await;
    keep(&office.client, &first, Some("\"g1\""))
        .await
        .expect("keeps");
    let forget = "select outlast.forget_refs('crm', 'a', 'removed by hand', actor => 'jo')";
    // Whoever runs it goes on with what was kept.
    assert_eq!(one::<String>(&office.client, forget, &[]).await, "running");
    office.fail(&first, "permanent").await;
    assert_eq!(
        one::<String>(&office.client, forget, &[]).await,
        "forgotten"
    );
    assert_eq!(one::<String>(&office.client, forget, &[]).await, "nothing");
    assert_eq!(
        office.state("a").await,
        "waiting!",
        "nothing runs because of it"
    );
    run(&office.client, "select outlast.retry_entity('crm', 'a')").await;
    let second = office.take().await;
    assert_eq!(
        (second.refs.as_deref(), second.deleted()),
        (None, vec!["\"g7\""])
    );
    office.complete(&second).await;
    let audited = "select actor || ' ' || (detail ->> 'reason') from outlast._audit where action = 'entity.forgotten'";
    assert_eq!(
        one::<String>(&office.client, audited, &[]).await,
        "jo removed by hand"
    );
    let silent = "select outlast.forget_refs('crm', 'a', '')";
    assert_eq!(
        sql::state(office.client.execute(silent, &[]).await),
        "OL005"
    );
    let nobody = "select outlast.forget_refs('crm', 'b', 'x')";
    assert_eq!(
        sql::state(office.client.execute(nobody, &[]).await),
        "OL012"
    );
    office.must_be_sound().await;
}

/// A claim has handed out what was kept, and has not committed, when a person says that it is not true any more.
async fn forgotten_behind_a_claim(office: &Office) -> String {
    let (worker, person) = (office.house.connect().await, office.house.connect().await);
    office.changed("a").await;
    let first = office.take().await;
    keep(&office.client, &first, Some("1"))
        .await
        .expect("keeps");
    office.complete(&first).await;
    office.changed("a").await;
    run(&worker, "begin").await;
    let taken = claim(&worker, "crm", 1).await.expect("claims");
    assert_eq!(taken[0].refs.as_deref(), Some("1"));
    let pid = sql::pid(&person).await;
    let forget = "select outlast.forget_refs('crm', 'a', 'removed by hand')";
    let (said, ()) = tokio::join!(one::<String>(&person, forget, &[]), async {
        sql::until_blocked(&office.client, pid).await;
        run(&worker, "commit").await;
    });
    said
}

#[tokio::test]
async fn what_a_claim_is_handing_out_is_not_forgotten_behind_its_back_and_without_the_lock_it_is() {
    let office = Office::new().await;
    assert_eq!(forgotten_behind_a_claim(&office).await, "running");
    office.must_be_sound().await;

    let office = Office::new().await;
    // The update waits as well; what it writes was decided before.
    let lock = ("x.id = known for update;", "x.id = known;");
    office.house.plant("forget_refs", &[lock]).await;
    assert_eq!(forgotten_behind_a_claim(&office).await, "forgotten");
}
