//! Statements that are kept prepared, and a migration in between.

use outlast_postgres::store::Rooms;

use crate::{delivered::store, house::House, sql};

#[tokio::test]
async fn a_prepared_statement_that_a_migration_has_made_out_of_date_is_sent_anew() {
    let house = House::new().await;
    let client = house.connect().await;
    let store = store(&house).prepares(true);
    let mut rooms = Rooms::default();
    rooms.ask("nobody", 1, 1);
    let lease = std::time::Duration::from_secs(15);
    // As often as there are connections, so that each has it.
    for _ in 0..4 {
        assert!(
            store
                .claim_jobs(&rooms, 1000, lease)
                .await
                .expect("claims")
                .is_empty()
        );
    }
    sql::run(
        &client,
        "alter type outlast._taken_job add attribute later int",
    )
    .await;
    for _ in 0..4 {
        assert!(
            store
                .claim_jobs(&rooms, 1000, lease)
                .await
                .expect("claims by the new shape")
                .is_empty()
        );
    }
}
