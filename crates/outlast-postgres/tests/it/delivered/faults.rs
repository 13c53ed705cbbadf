//! What the order of the steps is for: in another one an event is done twice, and this test sees it.

use super::{Dock, claim_on, event};
use crate::house::text_of;
use crate::sql;

/// A claim of an event stands still before it takes its lease, while the first owner seals it and ends. What it gets then.
async fn second_claim(dock: &Dock) -> String {
    let e = event(None, 1);
    let token = dock.run(&dock.one, &e).await;
    let (gate, second) = (dock.house.connect().await, dock.house.connect().await);
    sql::run(&gate, "select pg_advisory_lock(4242)").await;
    let pid = sql::pid(&second).await;
    let (verdict, ()) = tokio::join!(claim_on(&second, dock.consumer, &e), async {
        sql::until_blocked(&dock.client, pid).await;
        dock.seal(token, &[&e]).await;
        dock.finish(token).await;
        sql::run(&gate, "select pg_advisory_unlock(4242)").await;
    });
    verdict
}

#[tokio::test]
async fn a_look_up_before_the_lease_hands_out_what_was_completed_meanwhile() {
    const LEASES: &str = "  -- The leases first.";
    const WAIT: &str = "  perform pg_advisory_xact_lock(4242);\n";
    // The looks, as they stand in the function.
    let text = text_of("_claim_delivered");
    let (_, rest) = text
        .split_once("before we had the leases.\n")
        .expect("there");
    let (looks, _) = rest.split_once("  a := array(").expect("there");
    assert!(
        looks.contains("_sealed") && looks.contains("_parked"),
        "{looks}"
    );

    let dock = Dock::new().await;
    let waits = format!("{WAIT}{LEASES}");
    dock.house
        .plant("_claim_delivered", &[(LEASES, &waits)])
        .await;
    assert_eq!(second_claim(&dock).await, "done");

    let dock = Dock::new().await;
    let before = format!("{looks}{WAIT}{LEASES}");
    let planted = [(looks, ""), (LEASES, &before)];
    dock.house.plant("_claim_delivered", &planted).await;
    assert_eq!(second_claim(&dock).await, "run", "and it is done twice");
}
