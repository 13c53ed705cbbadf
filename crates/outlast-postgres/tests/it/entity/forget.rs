//! What is kept of entities, and for how long; and that a number which a provider has seen never comes again.

use super::{Office, keep};
use crate::house::forward;
use crate::job::finish;
use crate::sql::one;

const DAY: i32 = 86_400;

#[tokio::test]
async fn an_entity_of_which_nothing_was_kept_is_forgotten_and_its_fence_number_only_grows() {
    let office = Office::new().await;
    for key in ["plain", "kept", "late", "waiting"] {
        office.changed(key).await;
    }
    let all = office.claim(10).await;
    let by = |key: &str| all.iter().find(|one| one.key == key).expect("claimed");
    assert_eq!(
        keep(&office.client, by("kept"), Some("1"))
            .await
            .expect("keeps"),
        "kept"
    );
    for key in ["plain", "kept", "late"] {
        office.complete(by(key)).await;
    }
    assert_eq!(
        keep(&office.client, by("late"), Some("1"))
            .await
            .expect("is told"),
        "late"
    );
    office.fail(by("waiting"), "permanent").await;
    finish(&office.client, all[0].token).await.expect("ends");
    let forget = "select outlast._forget_jobs(100)";
    forward(&office.client, 29 * DAY).await;
    assert_eq!(one::<i32>(&office.client, forget, &[]).await, 0);
    forward(&office.client, 2 * DAY).await;
    assert_eq!(one::<i32>(&office.client, forget, &[]).await, 1);
    for (key, state) in [
        ("plain", "unknown"),
        ("kept", "converged"),
        ("late", "converged"),
        ("waiting", "waiting!"),
    ] {
        assert_eq!(office.state(key).await, state, "{key}");
    }
    office.must_be_sound().await;
    office.changed("plain").await;
    let again = office.take().await;
    assert_ne!(again.id, by("plain").id);
    assert!(again.fence > by("plain").fence);
}
