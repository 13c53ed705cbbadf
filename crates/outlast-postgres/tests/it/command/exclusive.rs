//! One at a time of a key of exclusion, in the order of acceptance, whatever it is called.

use super::{Desk, KEYLESS, claim, sent};
use crate::sql;

#[tokio::test]
async fn whoever_has_the_key_keeps_it_while_it_is_unknown_and_the_next_is_woken_at_its_end() {
    let desk = Desk::new().await;
    let first = desk
        .accept_as("close", "a", ", exclusive => 'conversation/1'")
        .await;
    let second = desk
        .accept_as("archive", "b", ", exclusive => 'conversation/1'")
        .await;
    let third = desk
        .accept_as("pay", "c", ", exclusive => 'conversation/1'")
        .await;
    let free = desk
        .accept_as("pay", "d", ", exclusive => 'conversation/2'")
        .await;
    assert!(
        claim(&desk.client, "archive", 5)
            .await
            .expect("claims")
            .is_empty(),
        "the first accepted goes first"
    );
    assert_eq!(desk.take().await.id, free, "of another conversation");
    let close = claim(&desk.client, "close", 5)
        .await
        .expect("claims")
        .remove(0);
    assert_eq!(close.id, first);
    assert!(sent(&desk.client, &close, KEYLESS).await.expect("sends"));
    desk.fail(&close, "unknown").await;
    assert!(
        claim(&desk.client, "archive", 5)
            .await
            .expect("claims")
            .is_empty()
    );
    sql::run(
        &desk.client,
        &format!("select outlast.resolve('{first}', 'abandoned', 'x')"),
    )
    .await;
    assert!(
        desk.claim(5).await.is_empty(),
        "the third waits for the second"
    );
    let archive = claim(&desk.client, "archive", 5)
        .await
        .expect("claims")
        .remove(0);
    assert_eq!(archive.id, second);
    desk.lose().await;
    assert!(
        desk.claim(5).await.len() <= 1,
        "only the one of the other conversation"
    );
    sql::run(
        &desk.client,
        &format!("select outlast.cancel('{second}', 'x')"),
    )
    .await;
    let ids: Vec<_> = desk.claim(5).await.iter().map(|one| one.id).collect();
    assert!(
        ids.contains(&third),
        "a key that was let go unsent wakes the next, too: {ids:?}"
    );
    desk.must_be_sound().await;
}

#[tokio::test]
async fn claimers_and_enders_of_one_key_never_leave_anybody_asleep_or_two_awake() {
    let desk = Desk::new().await;
    for n in 0..60 {
        desk.accept_as(
            ["pay", "close"][n % 2],
            &n.to_string(),
            &format!(", exclusive => '{}'", n % 3),
        )
        .await;
    }
    let workers = (0..4).map(|n| {
        let name = ["pay", "close"][n % 2];
        let house = &desk.house;
        async move {
            let client = house.connect().await;
            let mut done = 0;
            loop {
                let tries = claim(&client, name, 5).await.expect("claims");
                for one in &tries {
                    assert!(sent(&client, one, KEYLESS).await.expect("sends"));
                    let held = "select count(*) from outlast._exclusive e join outlast._exclusive o using (tenant, key) \
                        where o.id = $1 and e.held";
                    assert_eq!(sql::one::<i64>(&client, held, &[&one.id]).await, 1);
                    super::record(&client, one, "settled").await.expect("records");
                    done += 1;
                }
                let left = "select count(*) from outlast.command where state = 'waiting' and name = $1";
                if tries.is_empty() && sql::one::<i64>(&client, left, &[&name]).await == 0 {
                    return done;
                }
            }
        }
    });
    let done = tokio::time::timeout(
        crate::house::DEADLINE,
        futures_util::future::join_all(workers),
    )
    .await
    .expect("nobody is asleep");
    assert_eq!(done.into_iter().sum::<i32>(), 60);
    desk.must_be_sound().await;
}
