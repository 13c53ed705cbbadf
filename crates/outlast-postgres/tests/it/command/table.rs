//! The table of states is core's.

use std::time::Duration;

use outlast_core::command::{Next, Policy, State};
use uuid::Uuid;

use super::Desk;

#[tokio::test]
async fn the_check_of_the_table_allows_the_moves_that_core_allows_and_no_other() {
    let desk = Desk::new().await;
    let sql = "insert into outlast._command (id, provider_key, was, state, sent, first_sent_at) values ($1, '', $2, $3, true, now())";
    for was in State::ALL {
        for state in State::ALL {
            let moved = desk
                .client
                .execute(sql, &[&Uuid::now_v7(), &was.as_str(), &state.as_str()])
                .await;
            assert_eq!(
                moved.is_ok(),
                was.may_become(state),
                "{was} to {state}: {moved:?}"
            );
        }
    }
    for state in State::ALL {
        let begun = desk
            .client
            .execute(sql, &[&Uuid::now_v7(), &None::<&str>, &state.as_str()])
            .await;
        assert_eq!(
            begun.is_ok(),
            state == State::Waiting,
            "it begins as {state}"
        );
    }
}

/// What comes next for one that is unknown is decided in SQL, under its lock; the rule is core's.
#[tokio::test]
async fn what_comes_next_for_an_unknown_one_is_what_the_policy_of_core_says() {
    const LEASE: Duration = Duration::from_secs(15);
    let desk = Desk::new().await;
    let (hour, day) = (3600, 24 * 3600);
    let mut n = 0;
    for resend_within in [None, Some(60), Some(hour), Some(day)] {
        for looks in [false, true] {
            for (since_first, unknown_for) in [
                (1, 0),
                (5, 5),
                (25, 17),
                (hour - 20, 10),
                (hour - 90, 10),
                (day - 90, day - 120),
                (day + 60, day + 30),
            ] {
                for asked in [0, 3, 9] {
                    let policy = Policy {
                        resend_within: resend_within.map(Duration::from_secs),
                        looks,
                    };
                    let expected = policy.next(
                        Duration::from_secs(since_first),
                        Duration::from_secs(unknown_for),
                        asked,
                        LEASE,
                    );
                    n += 1;
                    let id = desk.accept(&n.to_string()).await;
                    let found = next(&desk, id, policy, (since_first, unknown_for), asked).await;
                    assert_eq!(
                        found, expected,
                        "{policy:?}, {since_first} s ago, unknown for {unknown_for} s, asked {asked} times"
                    );
                }
            }
        }
    }
}

async fn next(
    desk: &Desk,
    id: Uuid,
    policy: Policy,
    (first, unknown): (u64, u64),
    asked: u32,
) -> Next {
    let resend = policy
        .resend_within
        .map(|window| i64::try_from(window.as_millis()).expect("some days"));
    let (first, unknown) = (first as f64, unknown as f64);
    let asked = i32::try_from(asked).expect("few");
    let sql = "with gone as (delete from outlast._job_ready where id = $1), moved as (
                 update outlast._command set was = 'waiting', state = 'running', sent = true, first_sent_at = outlast.clock() - make_interval(secs => $2),
                   resend_ms = $3, looks_up = $4, looks = $5 where id = $1)
               select";
    desk.client
        .query(sql, &[&id, &first, &resend, &policy.looks, &asked])
        .await
        .expect("is sent");
    let sql = "update outlast._command set was = 'running', state = 'unknown', unknown_at = outlast.clock() - make_interval(secs => $2) where id = $1";
    desk.client
        .execute(sql, &[&id, &unknown])
        .await
        .expect("is unknown");
    desk.client
        .query(
            "select outlast._when_unknown(m) from outlast._command m where id = $1",
            &[&id],
        )
        .await
        .expect("decides");
    let sql = "select m.next::text, s.incident_at is not null, extract(epoch from s.due_at - outlast.clock())::float8
               from outlast._command m cross join lateral outlast._job_status(m.id) s where m.id = $1";
    let row = desk.client.query_one(sql, &[&id]).await.expect("looks");
    match (row.get::<_, &str>(0), row.get(1)) {
        (_, true) => Next::Ask,
        ("s", _) => Next::Resend,
        (_, _) => Next::Look(Duration::from_secs(
            row.get::<_, Option<f64>>(2).expect("when").round() as u64,
        )),
    }
}
