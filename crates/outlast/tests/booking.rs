//! An application's own test: its handlers against a real database, in the test's task, on the test's clock.

use outlast::{
    Attempt, Class, Classify, Consumer, Event, Failure, Outcome, Outlast, Sealed, Start, Worker,
    testing::TestWorker,
};
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, PgTransaction};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

#[derive(Clone)]
struct App {
    db: PgPool,
    mail: Mail,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct BookingConfirmed {
    booking: i64,
    total: String,
}
impl Event for BookingConfirmed {
    const NAME: &'static str = "booking.confirmed";
    fn key(&self) -> Option<String> {
        Some(format!("booking/{}", self.booking))
    }
}

#[derive(Serialize, Deserialize)]
struct LedgerPosted {
    booking: i64,
}
impl Event for LedgerPosted {
    const NAME: &'static str = "ledger.posted";
}

/// The business transaction: a row and an event, or neither.
async fn confirm(db: &PgPool, booking: i64, total: &str) -> Result<(), outlast::Error> {
    let mut tx = db.begin().await?;
    sqlx::query("insert into booking values ($1)")
        .bind(booking)
        .execute(&mut *tx)
        .await?;
    let event = BookingConfirmed {
        booking,
        total: total.into(),
    };
    Outlast::new().emit(&mut tx, &event).await?;
    tx.commit().await?;
    Ok(())
}

async fn post(
    _: App,
    tx: &mut PgTransaction<'_>,
    e: Attempt<BookingConfirmed>,
) -> Result<Outcome, Failure> {
    if e.total == "0.00" {
        return Ok(Outcome::skipped("free of charge"));
    }
    sqlx::query("insert into ledger values ($1, $2::numeric)")
        .bind(e.booking)
        .bind(&e.total)
        .execute(&mut **tx)
        .await?;
    e.outlast()
        .emit(tx, &LedgerPosted { booking: e.booking })
        .await?;
    Ok(Outcome::Done)
}

async fn send(app: App, e: Attempt<BookingConfirmed>) -> Result<(), Failure> {
    app.mail.send(&e.id().to_string())?;
    Ok(())
}

async fn archive(
    _: App,
    tx: &mut PgTransaction<'_>,
    events: Vec<Attempt<BookingConfirmed>>,
) -> Result<(), Failure> {
    let bookings: Vec<_> = events.iter().map(|e| e.booking).collect();
    sqlx::query("insert into archive select * from unnest($1::bigint[])")
        .bind(bookings)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

async fn locate(app: App, e: Attempt<BookingConfirmed>) -> Result<Sealed, Failure> {
    let mut tx = app.db.begin().await?;
    sqlx::query("update booking set place = 'Bern' where id = $1")
        .bind(e.booking)
        .execute(&mut *tx)
        .await?;
    e.seal(tx).await
}

fn worker(app: App) -> Worker<App> {
    let db = app.db.clone();
    Outlast::new()
        .worker(app)
        .consumer(Consumer::new("ledger").owner("payments").on_tx(&db, post))
        .consumer(Consumer::new("mailer").on(send))
        .consumer(
            Consumer::new("archive")
                .from(Start::Earliest)
                .on_batch(&db, archive),
        )
        .consumer(Consumer::new("geo").on(locate))
}

/// A mail provider that knows idempotency keys and can be told to fail.
#[derive(Clone, Default)]
struct Mail(Arc<Mutex<(Vec<String>, Option<MailError>)>>);

#[derive(Clone, Copy)]
enum MailError {
    Down,
    NoSuchAddress,
}
impl std::fmt::Display for MailError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Down => "the provider is down",
            Self::NoSuchAddress => "there is no such address",
        })
    }
}
impl Classify for MailError {
    fn class(&self) -> Class {
        match self {
            Self::Down => Class::Retry,
            Self::NoSuchAddress => Class::Permanent,
        }
    }
}
impl Mail {
    fn send(&self, key: &str) -> Result<(), MailError> {
        let mut mail = self.0.lock().unwrap();
        mail.0.push(key.to_owned());
        mail.1.take().map_or(Ok(()), Err)
    }

    fn fails_once(&self, with: MailError) {
        self.0.lock().unwrap().1 = Some(with);
    }

    fn sent(&self) -> Vec<String> {
        self.0.lock().unwrap().0.clone()
    }
}

async fn given() -> (outlast_testkit::pg::Database, App, TestWorker<App>) {
    let database = outlast_testkit::pg::empty().await;
    let db = PgPool::connect(database.url()).await.unwrap();
    let app = App {
        db: db.clone(),
        mail: Mail::default(),
    };
    let worker = worker(app.clone()).database(database.url());
    let t = TestWorker::new(&db, worker).await.unwrap();
    for table in [
        "booking (id bigint primary key, place text)",
        "ledger (booking bigint, total numeric)",
        "archive (booking bigint)",
    ] {
        sqlx::query(sqlx::AssertSqlSafe(format!("create table {table}")))
            .execute(&db)
            .await
            .unwrap();
    }
    (database, app, t)
}

async fn one(db: &PgPool, sql: &'static str) -> String {
    sqlx::query_scalar(sql).fetch_one(db).await.unwrap()
}

#[tokio::test]
async fn a_confirmed_booking_reaches_every_consumer_with_one_completion_each() {
    let (_database, app, t) = given().await;
    confirm(&app.db, 7, "120.00").await.unwrap();
    confirm(&app.db, 7, "120.00").await.unwrap_err();
    assert_eq!(
        t.only::<BookingConfirmed>().await,
        BookingConfirmed {
            booking: 7,
            total: "120.00".into()
        }
    );

    let idle = t.run_until_idle().await;
    assert_eq!((idle.handled, idle.incidents.len()), (4, 0));
    assert_eq!(
        one(&app.db, "select booking || ' ' || total from ledger").await,
        "7 120.00"
    );
    assert_eq!(one(&app.db, "select place from booking").await, "Bern");
    assert_eq!(one(&app.db, "select booking::text from archive").await, "7");
    assert_eq!(app.mail.sent().len(), 1);
    assert_eq!(t.only::<LedgerPosted>().await.booking, 7);
    let story = "select (e.causation_id = c.id and e.correlation_id = c.id)::text from outlast.event e, outlast.event c \
        where e.type = 'ledger.posted' and c.type = 'booking.confirmed'";
    assert_eq!(
        one(&app.db, story).await,
        "true",
        "what a handler emits is caused by its event"
    );
    assert_eq!(t.run_until_idle().await.handled, 0);
}

#[tokio::test]
async fn a_free_booking_is_skipped_with_its_reason() {
    let (_database, app, t) = given().await;
    confirm(&app.db, 8, "0.00").await.unwrap();
    t.run_until_idle().await;
    let skipped =
        "select outcome || ': ' || reason from outlast.processed where consumer = 'ledger'";
    assert_eq!(one(&app.db, skipped).await, "skipped: free of charge");
    assert_eq!(one(&app.db, "select count(*)::text from ledger").await, "0");
}

#[tokio::test]
async fn a_mail_is_tried_again_under_the_same_id_when_its_time_has_come() {
    let (_database, app, t) = given().await;
    app.mail.fails_once(MailError::Down);
    confirm(&app.db, 9, "1.00").await.unwrap();
    assert_eq!(t.run_until_idle().await.handled, 3);
    t.advance(Duration::from_mins(10)).await;
    assert_eq!(t.run_until_idle().await.handled, 1);
    let sent = app.mail.sent();
    assert_eq!((sent.len(), &sent[0]), (2, &sent[1]));
}

#[tokio::test]
async fn a_permanent_failure_waits_for_a_person() {
    let (_database, app, t) = given().await;
    app.mail.fails_once(MailError::NoSuchAddress);
    confirm(&app.db, 10, "1.00").await.unwrap();
    let idle = t.run_until_idle().await;
    assert_eq!(idle.handled, 3);
    assert_eq!(idle.incidents.len(), 1);
    assert_eq!(idle.incidents[0].reason, "there is no such address");
    t.advance(Duration::from_hours(48)).await;
    assert_eq!(t.run_until_idle().await.handled, 0);
}
