//! The table of states is core's.

use outlast_core::command::State;
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
