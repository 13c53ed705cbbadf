//! The examples of every driver, run as they are.

use std::process::Command;

use outlast_testkit::pg;

#[tokio::test]
async fn every_drivers_example_commits_booking_and_event_together_and_rolls_both_back() {
    // The examples lie beside the tests of this crate, built with them.
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(std::path::Path::parent).unwrap();
    for driver in [
        "tokio_postgres",
        "sqlx_0_9",
        "sqlx_0_8",
        "sea_orm",
        "diesel_async",
    ] {
        let database = pg::outlast().await;
        let program = folder.join("examples").join(format!("emit_{driver}"));
        let output = Command::new(program)
            .env("DATABASE_URL", database.url())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let expected = "committed: 1 booking, 1 event\nrolled back: 1 booking, 1 event\n";
        assert_eq!(
            said,
            expected,
            "{driver}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[tokio::test]
async fn the_endpoint_of_the_example_completes_what_is_pushed_to_it() {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(std::path::Path::parent).unwrap();
    let database = pg::outlast().await;
    let output = Command::new(folder.join("examples/push"))
        .env("DATABASE_URL", database.url())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let expected = "3 bookings, 3 mails, each with its completion in one commit\n";
    assert_eq!(
        said,
        expected,
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[tokio::test]
async fn the_members_of_the_example_are_alike_in_the_table_and_at_the_provider() {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(std::path::Path::parent).unwrap();
    let database = pg::outlast().await;
    let output = Command::new(folder.join("examples/entities"))
        .env("DATABASE_URL", database.url())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let expected = "ann guest, bob guest, cid guest\nann admin, cid guest\n";
    assert_eq!(
        said,
        expected,
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[tokio::test]
async fn the_jobs_of_the_example_are_all_done_and_what_was_rolled_back_or_withdrawn_is_not() {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(std::path::Path::parent).unwrap();
    let database = pg::outlast().await;
    let output = Command::new(folder.join("examples/jobs"))
        .env("DATABASE_URL", database.url())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let expected = "6 mails, 1 of them at the second try; 3 came from the old table\n";
    assert_eq!(
        said,
        expected,
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[tokio::test]
async fn the_bank_of_the_example_charges_nobody_twice() {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(std::path::Path::parent).unwrap();
    let database = pg::outlast().await;
    let run = || {
        let mut program = Command::new(folder.join("examples/provider"));
        program
            .env("DATABASE_URL", database.url())
            .output()
            .unwrap()
    };
    let sql = database.connect().await;
    let name = "select outlast._name_deployment('example')";
    sql.batch_execute(name).await.unwrap();
    let output = run();
    let said = String::from_utf8_lossy(&output.stdout);
    let expected = "settled, settled, rejected, settled; 3 charges in the bank's books\n";
    assert_eq!(
        said,
        expected,
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    // A second run gives the same commands: they are what they were.
    let again = run();
    assert_eq!(
        String::from_utf8_lossy(&again.stdout),
        "settled, settled, rejected, settled; 0 charges in the bank's books\n"
    );
}
