//! Jobs from end to end: enqueued in a transaction, delayed, tried again, withdrawn, and a backlog that moves in.
//!
//! Needs a database to play with: `outlast dev` in one terminal, `DATABASE_URL=… cargo run --example jobs` in another.

use std::{
    collections::BTreeMap,
    error::Error,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use outlast::{Attempt, Cancel, Failure, Job, Options, Outlast};
use serde::{Deserialize, Serialize};
use tokio_postgres::{Client, NoTls};

/// What is to be done. The name is its identity; the Rust path is never stored.
#[derive(Serialize, Deserialize)]
struct SendWelcome {
    account: i64,
}

impl Job for SendWelcome {
    const NAME: &'static str = "send_welcome";

    /// One welcome an account, however often it is enqueued.
    fn key(&self) -> Option<String> {
        Some(format!("account/{}", self.account))
    }

    fn options() -> Options {
        Options::new()
            .deadline(Duration::from_secs(20))
            .attempts(5)
            .backoff(Duration::from_millis(50), Duration::from_secs(60))
    }
}

/// Mails by account, and how many tries each needed.
type Sent = Arc<Mutex<BTreeMap<i64, u32>>>;

/// May run twice for one job: a real one would pass `job.id()` to the provider, which then sends one mail.
async fn send_welcome(sent: Sent, job: Attempt<SendWelcome>) -> Result<(), Failure> {
    if job.account == 2 && job.number() == 1 {
        return Err(Failure::retry("the provider answered 503"));
    }
    let mut sent = sent.lock().unwrap_or_else(PoisonError::into_inner);
    sent.insert(job.account, job.number());
    Ok(())
}

/// The account and its welcome: one commit.
async fn sign_up(sql: &mut Client, outlast: &Outlast, account: i64) -> Result<(), Box<dyn Error>> {
    let mut tx = sql.transaction().await?;
    tx.execute("insert into account (id) values ($1)", &[&account])
        .await?;
    let later = Duration::from_millis(200);
    outlast
        .enqueue(&mut tx, &SendWelcome { account })
        .after(later)
        .await?;
    tx.commit().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL")?;
    outlast::migrate(&url).await?;
    let (mut sql, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);
    sql.batch_execute(
        "create table account (id bigint primary key);
         create table old_mail (account bigint, run_at timestamptz);
         insert into old_mail select n, now() from generate_series(101, 103) n;",
    )
    .await?;
    let outlast = Outlast::new();
    for account in 1..=3 {
        sign_up(&mut sql, &outlast, account).await?;
    }

    // A transaction that does not commit enqueues nothing.
    let mut tx = sql.transaction().await?;
    let fourth = SendWelcome { account: 4 };
    outlast.enqueue(&mut tx, &fourth).await?;
    tx.rollback().await?;

    // What has not begun can be withdrawn, in a transaction too.
    let mut tx = sql.transaction().await?;
    let accepted = outlast
        .enqueue(&mut tx, &SendWelcome { account: 5 })
        .after(Duration::from_secs(3600))
        .await?;
    let withdrawn = outlast.cancel(&mut tx, accepted.id, "closed again").await?;
    assert_eq!(withdrawn, Cancel::Withdrawn);
    tx.commit().await?;

    // The backlog of an existing table moves in by one statement, in one commit.
    let tx = sql.transaction().await?;
    let moved = tx
        .query_one(
            "with due as (select * from old_mail for update skip locked),
                  job as (select due.account, j.new from due cross join lateral outlast.enqueue(
                            'send_welcome', json_build_object('account', account)::text, key => 'account/' || account, at => run_at) j),
                  gone as (delete from old_mail o using job where job.new and o.account = job.account)
             select count(*) filter (where new) from job",
            &[],
        )
        .await?
        .get::<_, i64>(0);
    tx.commit().await?;

    let sent = Sent::default();
    let worker = outlast
        .worker(sent.clone())
        .database(&url)
        .job(send_welcome);
    worker.run_until(all_done(&sql)).await?;

    let sent = sent.lock().unwrap_or_else(PoisonError::into_inner);
    let twice = sent.values().filter(|tries| **tries == 2).count();
    println!(
        "{} mails, {twice} of them at the second try; {moved} came from the old table",
        sent.len()
    );
    Ok(())
}

/// Resolves when no job waits or runs any more.
async fn all_done(sql: &Client) {
    let open = "select count(*) from outlast.job where state in ('waiting', 'running')";
    while !matches!(sql.query_one(open, &[]).await, Ok(row) if row.get::<_, i64>(0) == 0) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
