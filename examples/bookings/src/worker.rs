//! The worker: three consumers, each of which handles every event it takes, by itself and in its own time.

use anyhow::Context;
use outlast::{
    Attempt, Consumable, Consumer, Failure, Outlast, Settings, Start, Worker, broker::Broker,
};
use outlast_example_bookings::{BookingConfirmed, GithubDelivery, broker, connect, http};
use reqwest::{StatusCode, header::RETRY_AFTER};
use sha2::{Digest, Sha256};
use sqlx::{PgPool, PgTransaction};
use std::{env, process::ExitCode, sync::Arc, time::Duration};

#[derive(Clone)]
struct App {
    db: PgPool,
    http: reqwest::Client,
    /// Where mails are sent.
    mail: String,
    /// Where events come from, if not from the tables.
    broker: Option<Arc<dyn Broker>>,
}

impl App {
    async fn from_env() -> anyhow::Result<Self> {
        Ok(Self {
            db: connect().await?,
            http: http(),
            mail: env::var("MAIL_URL").context("MAIL_URL: where mails are sent")?,
            broker: broker::from_env().await?,
        })
    }

    /// A consumer of everything there is, by way of the broker if there is one. Its handlers are the same.
    fn consumer(&self, name: &str) -> Consumer<Self> {
        let consumer = Consumer::new(name).from(Start::Earliest);
        match &self.broker {
            Some(broker) => consumer.from_broker(broker.clone(), broker::subscription(name)),
            None => consumer,
        }
    }
}

/// The ledger line and the completion of the event: one commit.
async fn post(
    _: App,
    tx: &mut PgTransaction<'_>,
    e: Attempt<BookingConfirmed>,
) -> Result<(), Failure> {
    sqlx::query("insert into ledger (booking, event, total) values ($1, $2::uuid, $3::numeric)")
        .bind(e.booking)
        .bind(e.id().to_string())
        .bind(&e.total)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// May run twice, if we die between the mail and its record. The provider knows the event's id by then.
async fn send_mail(app: App, e: Attempt<BookingConfirmed>) -> Result<(), Failure> {
    let mail = serde_json::json!({
        "booking": e.booking,
        "to": e.guest,
        "text": format!("Your booking {} is confirmed. Total: € {}", e.booking, e.total),
    });
    let request = app
        .http
        .post(&app.mail)
        .header("idempotency-key", e.id().to_string())
        .json(&mail);
    let answer = request.send().await.map_err(Failure::retry)?;
    let status = answer.status();
    if status.is_success() {
        Ok(())
    } else if status == StatusCode::TOO_MANY_REQUESTS {
        let seconds = answer
            .headers()
            .get(RETRY_AFTER)
            .and_then(|after| after.to_str().ok()?.parse().ok());
        Err(Failure::throttled(Duration::from_secs(
            seconds.unwrap_or(10),
        )))
    } else if status.is_client_error() {
        Err(Failure::permanent(format!(
            "the provider refuses this mail: {status}"
        )))
    } else {
        Err(Failure::retry(status))
    }
}

/// What everything looked like, to the byte: as many events as there are in one statement.
async fn archive<E: Consumable>(
    _: App,
    tx: &mut PgTransaction<'_>,
    events: Vec<Attempt<E>>,
) -> Result<(), Failure> {
    let ids: Vec<_> = events.iter().map(|e| e.id().to_string()).collect();
    let keys: Vec<_> = events.iter().map(Attempt::key).collect();
    let digests: Vec<_> = events
        .iter()
        .map(|e| Sha256::digest(e.payload_bytes()).to_vec())
        .collect();
    sqlx::query(
        "insert into archive (event, type, key, sha256) \
         select event::uuid, $1, key, sha256 from unnest($2::text[], $3::text[], $4::bytea[]) a (event, key, sha256)",
    )
    .bind(E::name().as_ref())
    .bind(ids)
    .bind(keys)
    .bind(digests)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

fn worker(app: App) -> Worker<App> {
    let db = app.db.clone();
    let ledger = app.consumer("ledger").on_tx(&db, post);
    let mailer = app.consumer("mailer").on(send_mail).concurrency(20);
    let archive = app
        .consumer("archive")
        .on_batch(&db, archive::<BookingConfirmed>)
        .on_batch(&db, archive::<GithubDelivery>);
    Outlast::new()
        .worker(app)
        .consumer(ledger)
        .consumer(mailer)
        .consumer(archive)
        // The work of a worker that was killed waits so long for the next one.
        .settings(Settings {
            lease: Duration::from_secs(3),
            ..Settings::default()
        })
}

/// `bookings-worker run` works until SIGTERM; `check` says whether it could; `--help` tells the rest.
#[tokio::main]
async fn main() -> ExitCode {
    outlast::cli(App::from_env, worker).await
}
