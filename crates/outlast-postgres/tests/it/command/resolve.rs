//! What a person decides.

use super::{Desk, KEYLESS};
use crate::sql::{self, state};

#[tokio::test]
async fn a_person_resolves_what_nobody_knows_with_a_reason_and_a_line_of_the_audit() {
    for (word, becomes, told) in [
        ("settled", "settled", 1),
        ("rejected", "rejected", 1),
        ("not_applied", "waiting", 0),
        ("abandoned", "abandoned", 1),
    ] {
        let desk = Desk::new().await;
        let id = desk.accept("k").await;
        let one = desk.take().await;
        assert!(desk.sent(&one, KEYLESS).await);
        desk.fail(&one, "unknown").await;
        let sql = "select outlast.resolve($1, $2, 'looked at their page', reference => 'ch_9', actor => 'ann')";
        assert_eq!(
            sql::one::<String>(&desk.client, sql, &[&id, &word]).await,
            becomes
        );
        assert_eq!(desk.told().await.len(), told, "{word}");
        assert!(desk.incidents().await.is_empty());
        let audit = "select count(*) from outlast._audit where action = 'command.resolved' and actor = 'ann' and detail ->> 'as' = $1";
        assert_eq!(sql::one::<i64>(&desk.client, audit, &[&word]).await, 1);
        assert_eq!(
            sql::one::<String>(&desk.client, sql, &[&id, &"abandoned"]).await,
            becomes,
            "it waits for nobody now"
        );
        assert_eq!(
            desk.claim(10).await.len(),
            usize::from(word == "not_applied")
        );
        desk.must_be_sound().await;
    }
}

#[tokio::test]
async fn a_resolution_without_reason_or_reference_is_none() {
    let desk = Desk::new().await;
    let id = desk.accept("k").await;
    let one = desk.take().await;
    assert!(desk.sent(&one, KEYLESS).await);
    desk.fail(&one, "unknown").await;
    for (args, code) in [
        ("'settled', 'sure'", "OL005"),
        ("'settled', '', 'ref'", "OL005"),
        ("'done', 'sure', 'ref'", "OL005"),
        ("null, 'sure', 'ref'", "OL005"),
    ] {
        let refused = desk
            .client
            .query(&format!("select outlast.resolve('{id}', {args})"), &[])
            .await;
        assert_eq!(state(refused), code, "{args}");
    }
    let nobody = desk
        .client
        .query(
            "select outlast.resolve(gen_random_uuid(), 'abandoned', 'x')",
            &[],
        )
        .await;
    assert_eq!(state(nobody), "OL012");
    assert_eq!(desk.state(id).await, "unknown");
    desk.must_be_sound().await;
}
