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
