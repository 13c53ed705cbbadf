//! The examples of every driver, run as they are.

use std::process::Command;

use outlast_testkit::{
    pg,
    provider::{
        Provider,
        order::{Entry, What},
    },
};

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

/// Runs an example before a provider of its own; what it said, and what the provider did.
async fn before_a_provider(example: &str) -> (String, Vec<Entry>) {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(std::path::Path::parent).unwrap();
    let database = pg::outlast().await;
    let name = "select outlast._name_deployment('example')";
    database.connect().await.batch_execute(name).await.unwrap();
    let ledger = tempfile::tempdir().unwrap();
    let provider = Provider::start(&ledger.path().join("ledger")).await;
    let mut program = Command::new(folder.join("examples").join(example));
    program.env("DATABASE_URL", database.url());
    program.env("PROVIDER", provider.url());
    let output = tokio::task::spawn_blocking(move || program.output());
    let output = output.await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let effects = provider.orders().into_iter();
    let effects = effects.filter(|entry| entry.what == What::Effect).collect();
    (said, effects)
}

#[tokio::test]
async fn each_payment_of_the_example_is_charged_once_and_no_more_is_refunded_than_was_paid() {
    let (said, effects) = before_a_provider("payments").await;
    let expected = "payment 1: 120.00 paid, refunded 60.00\npayment 2: 80.50 paid, refunded 0\n";
    assert_eq!(said, expected);
    let amounts: Vec<_> = effects.iter().map(|entry| &entry.body["amount"]).collect();
    assert_eq!(amounts, ["120.00", "80.50", "60.00"]);
    // The refund names the charge by the provider's own number.
    assert_eq!(effects[2].body["refunds"], effects[0].number);
}

#[tokio::test]
async fn no_notification_of_the_example_is_sent_again_because_another_one_failed() {
    let (said, effects) = before_a_provider("notifications").await;
    let expected = "ann by mail: settled\nann by push: abandoned\nann by sms: settled\n\
                    bob by mail: settled\nbob by sms: not sent\n";
    assert_eq!(said, expected);
    let mut to: Vec<_> = effects
        .iter()
        .map(|entry| entry.body["to"].to_string())
        .collect();
    to.sort();
    assert_eq!(
        to,
        [
            "\"+49 1\"",
            "\"ann@example.org\"",
            "\"bob@example.org\"",
            "\"phone-1\""
        ]
    );
}

#[tokio::test]
async fn each_approved_version_of_a_contract_is_sent_once_and_what_nobody_knew_a_person_decides() {
    let (said, effects) = before_a_provider("contracts").await;
    let expected = "contract 1 version 1: settled\ncontract 1 version 2: settled\ncontract 2 version 1: settled\n";
    assert_eq!(said, expected);
    let sent = |entry: &Entry| {
        let text = |name: &str| entry.body[name].to_string();
        (text("contract"), text("version"), text("text"))
    };
    let sent: Vec<_> = effects.iter().map(sent).collect();
    // The second version of the first went when the first was decided.
    assert_eq!(
        sent[0],
        ("1".into(), "1".into(), "\"40 h at 80.00\"".into())
    );
    let mut sent = sent;
    sent.sort();
    assert_eq!(sent.len(), 3);
    assert_eq!(
        sent[1],
        ("1".into(), "2".into(), "\"40 h at 90.00\"".into())
    );
    assert_eq!(
        sent[2],
        ("2".into(), "1".into(), "\"10 h at 80.00\"".into())
    );
}

#[tokio::test]
async fn of_a_conversation_the_provider_hears_one_thing_at_a_time_and_nothing_that_is_old() {
    let (said, effects) = before_a_provider("conversations").await;
    let expected = "conversation.close: settled\nconversation.reopen: obsolete\nconversation.close: obsolete\n\
                    conversation.archive: settled\n";
    assert_eq!(said, expected);
    let heard: Vec<_> = effects
        .iter()
        .map(|entry| entry.body["op"].as_str().expect("an op"))
        .collect();
    assert_eq!(
        heard,
        ["created", "members", "closed", "archived", "deleted"]
    );
    // Our row was gone when it was deleted there: by the number that it had been given.
    for later in &effects[1..] {
        assert_eq!(later.body["sid"], effects[0].number, "{later:?}");
    }
    assert!(effects.iter().all(|entry| entry.beside == 1), "{effects:?}");
}
