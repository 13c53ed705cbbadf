//! Entities and commands share the keys of exclusion.

use super::{Office, Try, claim, complete};
use crate::sql::run;

const KEY: &str = "exclusive => 'conversation/1'";

async fn marked(office: &Office, name: &str) {
    run(
        &office.client,
        &format!("select outlast.changed('{name}', 'a', {KEY})"),
    )
    .await;
}

async fn of(office: &Office, name: &str) -> Vec<Try> {
    claim(&office.client, name, 5).await.expect("claims")
}

/// Ids of commands that may be sent now.
async fn commands(office: &Office) -> i64 {
    office
        .count("select count(*) from outlast._claim_jobs('{command:close}', '{1}', '{5}', 4194304, 60000)")
        .await
}

#[tokio::test]
async fn an_entity_and_a_command_of_one_key_take_turns_in_the_order_in_which_they_came() {
    let office = Office::new().await;
    marked(&office, "members").await;
    assert_eq!(
        office.count("select outlast._fold_marks(10)::bigint").await,
        1
    );
    run(
        &office.client,
        &format!("select outlast.command('close', '{{}}', 'c', {KEY})"),
    )
    .await;
    assert_eq!(commands(&office).await, 0, "the entity was first");
    let members = of(&office, "members").await.remove(0);
    assert_eq!(commands(&office).await, 0);
    // Marked again while it is converged: behind the command.
    marked(&office, "members").await;
    assert_eq!(
        office.count("select outlast._fold_marks(10)::bigint").await,
        1
    );
    complete(&office.client, &members).await.expect("completes");
    assert!(of(&office, "members").await.is_empty());
    assert_eq!(commands(&office).await, 1);
    run(
        &office.client,
        "select outlast.settle('close', 'c', answer => '1')",
    )
    .await;
    assert_eq!(of(&office, "members").await.len(), 1);
    office.must_be_sound().await;
}

#[tokio::test]
async fn an_entity_keeps_its_key_until_it_has_converged_or_was_given_up() {
    let office = Office::new().await;
    marked(&office, "crm").await;
    let first = office.take().await;
    marked(&office, "members").await;
    assert!(of(&office, "members").await.is_empty());
    office.fail(&first, "retry").await;
    assert!(
        of(&office, "members").await.is_empty(),
        "it waits for its next try"
    );
    office.due().await;
    let second = office.take().await;
    office.lose().await;
    assert!(of(&office, "members").await.is_empty());
    let third = office.take().await;
    assert_eq!(second.id, third.id);
    office.fail(&third, "permanent").await;
    assert!(
        of(&office, "members").await.is_empty(),
        "it waits for a person"
    );
    office.must_be_sound().await;
    run(
        &office.client,
        "select outlast.abandon_entity('crm', 'a', 'gone')",
    )
    .await;
    assert_eq!(of(&office, "members").await.len(), 1);
    office.must_be_sound().await;
}
