//! What is marked while something else happens is not lost; and that it would be, with another rule.

use outlast_testkit::wait_for;

use super::{Office, Try, changed, claim, complete};
use crate::house::{DEADLINE, forward};
use crate::sql::{self, run};

#[tokio::test]
async fn what_changes_while_it_is_converged_is_converged_again() {
    let office = Office::new().await;
    let app = office.house.connect().await;
    office.changed("a").await;
    let first = office.take().await;
    changed(&app, "a").await.expect("marks");
    assert!(
        office.claim(10).await.is_empty(),
        "one runner at a time has it"
    );
    office.complete(&first).await;
    let second = office.take().await;
    assert!(second.fence > first.fence);
    office.complete(&second).await;
    assert_eq!(office.state("a").await, "converged");
    office.must_be_sound().await;
}

/// An older transaction commits its mark, which has a lower id, between a claim and its completion.
async fn with_an_older_transaction(office: &Office) -> Option<Try> {
    let (older, newer) = (office.house.connect().await, office.house.connect().await);
    run(&older, "begin").await;
    changed(&older, "a").await.expect("marks");
    changed(&newer, "a").await.expect("marks");
    let first = office.take().await;
    run(&older, "commit").await;
    office.complete(&first).await;
    office.claim(1).await.pop()
}

#[tokio::test]
async fn a_mark_with_a_lower_id_that_commits_late_is_not_lost_and_by_a_range_of_ids_it_would_be() {
    let office = Office::new().await;
    assert!(with_an_older_transaction(&office).await.is_some());
    office.must_be_sound().await;

    // As a completion by `id <=` would have it: all up to what its claim has seen.
    let office = Office::new().await;
    let right = "    perform outlast._bury(e, e.seen);";
    let wrong = "    perform outlast._bury(e, e.seen);
        delete from outlast._entity_mark m where m.name = e.name and m.entity_id = e.entity_id and m.id <= e.fence;";
    office.house.plant("_converged", &[(right, wrong)]).await;
    assert!(
        with_an_older_transaction(&office).await.is_none(),
        "nobody would ever know of it"
    );
}

/// Marks come and are taken for a while, beside a transaction that has drawn an id and stays open.
async fn taken_beside(office: &Office) -> (bool, Vec<String>) {
    let older = office.house.connect().await;
    run(&older, "begin").await;
    changed(&older, "late").await.expect("marks");
    for _ in 0..4 {
        forward(&office.client, 10).await;
        office.changed("a").await;
        let one = office.take().await;
        office.complete(&one).await;
    }
    run(&older, "commit").await;
    let found = office.claim(10).await.iter().any(|one| one.key == "late");
    (found, sql::broken(&office.client).await)
}

#[tokio::test]
async fn nobody_stops_looking_where_an_open_transaction_may_still_put_a_mark() {
    let office = Office::new().await;
    assert_eq!(taken_beside(&office).await, (true, Vec::new()));

    let office = Office::new().await;
    let right = "case when ended then look.next else below end";
    office
        .house
        .plant("_fold_marks", &[(right, "coalesce(look.next, below)")])
        .await;
    let (found, broken) = taken_beside(&office).await;
    assert!(!found, "it lies where nobody looks");
    assert!(
        broken
            .iter()
            .any(|row| row.starts_with("no mark of an entity lies where nobody looks")),
        "{broken:?}"
    );
}

#[tokio::test]
async fn the_place_up_to_which_marks_are_taken_moves() {
    let office = Office::new().await;
    let below =
        "select coalesce((select below from outlast._entity_look order by xid desc limit 1), 0)";
    // Transactions of other tests on this server may be open for a while.
    wait_for("the place to move", DEADLINE, async || {
        forward(&office.client, 10).await;
        office.changed("a").await;
        let one = office.take().await;
        office.complete(&one).await;
        (office.count(below).await > 0).then_some(())
    })
    .await;
    assert_eq!(
        office
            .count("select count(*) from outlast._entity_look")
            .await,
        1
    );
    // Whatever is drawn from now on is above it.
    office.changed("b").await;
    assert_eq!(office.take().await.key, "b");
}

/// Several workers, a few entities, all the time: who converges one is alone with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workers_never_converge_one_entity_at_once() {
    let office = Office::new().await;
    run(&office.client, "create table inside (id text primary key)").await;
    for key in ["a", "b", "c"] {
        office.changed(key).await;
    }
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let client = office.house.connect().await;
        workers.spawn(async move {
            let mut done = 0;
            for _ in 0..60 {
                for one in claim(&client, "crm", 2).await.expect("claims") {
                    let enter = "insert into inside values ($1)";
                    client.execute(enter, &[&one.key]).await.expect("is alone");
                    changed(&client, &one.key).await.expect("marks");
                    let leave = "delete from inside where id = $1";
                    client.execute(leave, &[&one.key]).await.expect("leaves");
                    complete(&client, &one).await.expect("completes");
                    done += 1;
                }
            }
            done
        });
    }
    let done: i32 = workers.join_all().await.iter().sum();
    assert!(done >= 30, "{done}");
    office.must_be_sound().await;
}

#[tokio::test]
async fn a_runner_that_lost_its_lease_completes_and_fails_nothing() {
    let office = Office::new().await;
    office.changed("a").await;
    let old = office.take().await;
    office.lose().await;
    let new = office.take().await;
    assert!(new.fence > old.fence);
    assert_eq!(sql::state(complete(&office.client, &old).await), "OL001");
    let failed = sql::fail(&office.client, old.token, old.id, "retry").await;
    assert_eq!(sql::state(failed), "OL001");
    assert_eq!(office.state("a").await, "running");
    office.complete(&new).await;
    assert_eq!(sql::state(complete(&office.client, &new).await), "OL002");
    let again = "select outlast._complete_jobs($1, $2, true)";
    office
        .client
        .execute(again, &[&new.token, &vec![new.id]])
        .await
        .expect("the answer was perhaps lost");
    office.must_be_sound().await;
}

/// A completion in a transaction of the handler's own stays open.
#[tokio::test]
async fn nobody_waits_for_an_open_completion_and_what_was_marked_meanwhile_is_found_after_it() {
    let office = Office::new().await;
    let handler = office.house.connect().await;
    office.changed("a").await;
    let first = office.take().await;
    run(&handler, "begin").await;
    complete(&handler, &first).await.expect("completes");
    run(&office.client, "set lock_timeout = '300ms'").await;
    office.changed("a").await;
    office.changed("b").await;
    let all = office.claim(10).await;
    assert_eq!(
        all.iter().map(|one| one.key.as_str()).collect::<Vec<_>>(),
        ["b"]
    );
    run(&handler, "commit").await;
    assert_eq!(office.take().await.key, "a");
    office.must_be_sound().await;
}

/// Marks of an entity in work were taken, which has not committed, when it is completed.
async fn completed_behind_a_fold(office: &Office) -> String {
    let (folder, worker) = (office.house.connect().await, office.house.connect().await);
    office.changed("a").await;
    let first = office.take().await;
    office.changed("a").await;
    run(&folder, "begin").await;
    run(&folder, "select outlast._fold_marks(100)").await;
    let pid = sql::pid(&worker).await;
    let (done, ()) = tokio::join!(complete(&worker, &first), async {
        sql::until_blocked(&office.client, pid).await;
        run(&folder, "commit").await;
    });
    done.expect("completes");
    office.state("a").await
}

#[tokio::test]
async fn a_completion_waits_for_marks_that_are_being_taken_and_without_that_they_are_lost() {
    let office = Office::new().await;
    assert_eq!(completed_behind_a_fold(&office).await, "waiting");
    office.must_be_sound().await;

    let office = Office::new().await;
    // The update waits as well; what it writes was decided before.
    let lock = ("x.id for update loop", "x.id loop");
    office.house.plant("_converged", &[lock]).await;
    assert_eq!(completed_behind_a_fold(&office).await, "converged");
}
