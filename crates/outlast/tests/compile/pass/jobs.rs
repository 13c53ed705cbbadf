//! Jobs: with a key and options, enqueued on both drivers, from a handler too, sealed in the handler's own transaction.
#![allow(dead_code)]
use outlast::{Attempt, Cancel, Error, Failure, Job, Options, Outlast, Outcome, Sealed, Status, Worker, job::State};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use std::time::{Duration, SystemTime};

#[derive(Clone)]
struct App {
    db: PgPool,
}

#[derive(Serialize, Deserialize)]
struct SweepMemberships {
    as_of: SystemTime,
}
impl Job for SweepMemberships {
    const NAME: &'static str = "sweep_memberships";
}

#[derive(Serialize, Deserialize)]
struct AskForReview {
    booking: i64,
}
impl Job for AskForReview {
    const NAME: &'static str = "ask_for_review";
    const VERSION: u16 = 2;
    fn key(&self) -> Option<String> {
        Some(format!("booking/{}", self.booking))
    }
    fn options() -> Options {
        Options::new().deadline(Duration::from_secs(5)).attempts(3).concurrency(20).forever()
    }
    fn upcast(_: u16, old: serde_json::Value) -> Result<Self, outlast::Unreadable> {
        Ok(serde_json::from_value(old)?)
    }
}

async fn sweep(_: App, job: Attempt<SweepMemberships>) -> Result<(), Failure> {
    let _ = job.as_of;
    Ok(())
}

async fn ask_for_review(app: App, job: Attempt<AskForReview>) -> Result<Sealed, Failure> {
    let mut tx = app.db.begin().await?;
    sqlx::query("update booking set asked = true where id = $1").bind(job.booking).execute(&mut *tx).await?;
    job.outlast().enqueue(&mut tx, &SweepMemberships { as_of: SystemTime::now() }).await?;
    job.seal(tx).await
}

async fn enqueue(app: App, outlast: Outlast, client: &mut tokio_postgres::Client) -> Result<(), Error> {
    let mut tx = app.db.begin().await?;
    let accepted = outlast.enqueue(&mut tx, &AskForReview { booking: 7 }).after(Duration::from_secs(60)).priority(-5).await?;
    outlast.enqueue(&mut tx, &AskForReview { booking: 8 }).at(SystemTime::now()).attempts(2).await?;
    let _: Cancel = outlast.cancel(&mut tx, accepted.id, "no more").await?;
    let _: Cancel = outlast.cancel_key::<AskForReview>(&mut tx, "booking/8", "no more").await?;
    let status: Option<Status> = outlast.status(&mut tx, accepted.id).await?;
    assert!(status.is_some_and(|status| status.state == State::Cancelled));
    let mut tx = client.transaction().await?;
    outlast.tenant("acme").enqueue(&mut tx, &AskForReview { booking: 9 }).await?;
    Ok(())
}

fn worker(app: App) -> Worker<App> {
    Outlast::new()
        .worker(app)
        .job(sweep)
        .job(ask_for_review)
        .job(async |_: App, job: Attempt<Other>| Ok(if job.0 { Outcome::Done } else { Outcome::skipped("not ours") }))
}

#[derive(Serialize, Deserialize)]
struct Other(bool);
impl Job for Other {
    const NAME: &'static str = "other";
}

fn main() {}
