//! A user's application: emit in an axum handler, transactional, effect, batch and sealing consumers, on both drivers.
#![allow(dead_code)]
use axum::{Json, extract::State, http::StatusCode};
use outlast::*;
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, PgTransaction};

#[derive(Clone)]
struct App {
    db: PgPool,
    outlast: Outlast,
    acme: Acme,
    mail: Mail,
}

#[derive(Serialize, Deserialize)]
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

async fn confirm(State(app): State<App>, Json(new): Json<NewBooking>) -> Result<StatusCode, ApiError> {
    let mut tx = app.db.begin().await?;
    let booking = insert_booking(&mut tx, &new).await?;
    let outlast = app.outlast.tenant("acme").actor("jane");
    let accepted = outlast.emit(&mut tx, &BookingConfirmed { booking, total: new.total }).dedup("once").await?;
    outlast.emit(&mut tx, &LedgerPosted { booking }).header("a", "b").await?;
    outlast.emit_all(&mut tx, &[LedgerPosted { booking }]).await?;
    tx.commit().await?;
    Ok(if accepted.new { StatusCode::CREATED } else { StatusCode::OK })
}

async fn post(_: App, tx: &mut PgTransaction<'_>, e: Attempt<BookingConfirmed>) -> Result<(), Failure> {
    sqlx::query("insert into ledger (booking, total) values ($1, $2::numeric)")
        .bind(e.booking)
        .bind(&e.total)
        .execute(&mut **tx)
        .await?;
    e.outlast().emit(tx, &LedgerPosted { booking: e.booking }).await?;
    Ok(())
}

async fn stripe_paid(_: App, tx: &mut PgTransaction<'_>, e: Attempt<PaymentSucceeded>) -> Result<Outcome, Failure> {
    let Some(key) = e.data["object"]["metadata"]["outlast_key"].as_str() else {
        return Ok(Outcome::skipped("not ours"));
    };
    sqlx::query("update booking set paid = true where key = $1").bind(key).execute(&mut **tx).await?;
    Ok(Outcome::Done)
}

#[derive(Serialize, Deserialize)]
struct PaymentSucceeded {
    data: serde_json::Value,
}
impl Event for PaymentSucceeded {
    const NAME: &'static str = "stripe.payment_intent.succeeded";
}

async fn send_mail(app: App, e: Attempt<BookingConfirmed>) -> Result<(), Failure> {
    app.mail.send(&e.id().to_string(), e.booking).await.map_err(Failure::retry)
}

async fn look_up(app: App, e: Attempt<BookingConfirmed>) -> Result<Outcome, Failure> {
    let found: Result<(), anyhow::Error> = async { anyhow::bail!("no answer") }.await;
    found?;
    let place: serde_json::Value = serde_json::from_str(&app.acme.geocode(e.booking).await?)?;
    Ok(if place.is_null() { Outcome::skipped("no place") } else { Outcome::Done })
}

async fn archive(_: App, tx: &mut PgTransaction<'_>, events: Vec<Attempt<BookingConfirmed>>) -> Result<(), Failure> {
    let (ids, totals): (Vec<_>, Vec<_>) = events.iter().map(|e| (e.booking, e.total.clone())).unzip();
    sqlx::query("insert into archive select * from unnest($1::bigint[], $2::text[])")
        .bind(ids)
        .bind(totals)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

async fn geocode(app: App, e: Attempt<BookingConfirmed>) -> Result<Sealed, Failure> {
    let place = app.acme.geocode(e.booking).await?;
    let mut tx = app.db.begin().await?;
    sqlx::query("update booking set place = $2 where id = $1").bind(e.booking).bind(place).execute(&mut *tx).await?;
    e.seal(tx).await
}

async fn count(_: App, tx: &mut ClientTx, e: Attempt<LedgerPosted>) -> Result<(), Failure> {
    tx.execute("update counter set n = n + $1", &[&e.booking]).await?;
    e.outlast().emit(tx, &LedgerPosted { booking: 1 }).caused_by(&e).await?;
    Ok(())
}

async fn emit_from_tokio_postgres(o: &Outlast, client: &mut tokio_postgres::Client) -> anyhow::Result<()> {
    let mut tx = client.transaction().await?;
    o.emit(&mut tx, &LedgerPosted { booking: 1 }).await?;
    tx.commit().await?;
    Ok(())
}

async fn emit_from_deadpool(o: &Outlast, pool: &deadpool_postgres::Pool) -> anyhow::Result<()> {
    let mut client = pool.get().await?;
    let mut tx = client.transaction().await?;
    o.emit(&mut tx, &LedgerPosted { booking: 1 }).await?;
    tx.commit().await?;
    Ok(())
}

async fn emit_behind_dyn(o: &Outlast, tx: &mut dyn Tx) -> Result<Accepted, Error> {
    o.emit(&mut *tx, &LedgerPosted { booking: 1 }).await?;
    o.emit(tx, &LedgerPosted { booking: 2 }).await
}

async fn emit_on_a_bare_connection(o: &Outlast, connection: &mut sqlx::PgConnection) -> Result<Accepted, Error> {
    o.emit(connection, &LedgerPosted { booking: 1 }).await
}

impl Classify for AcmeError {
    fn class(&self) -> Class {
        match self {
            AcmeError::Connect => Class::Retry,
            AcmeError::Slow => Class::Unknown,
        }
    }
}

fn worker(app: App, pool: &deadpool_postgres::Pool) -> Worker<App> {
    let (db, outlast) = (app.db.clone(), app.outlast.clone());
    outlast
        .worker(app)
        .consumer(Consumer::new("ledger").owner("payments").on_tx(&db, post).on_tx(&db, stripe_paid))
        .consumer(Consumer::new("mailer").on(send_mail).concurrency(20))
        .consumer(Consumer::new("archive").from(Start::Earliest).on_batch(&db, archive))
        .consumer(Consumer::new("geo").on(geocode))
        .consumer(Consumer::new("look").on(look_up))
        .consumer(Consumer::new("counter").on_tx(pool, count))
        .settings(Settings { attempts: 3, ..Settings::default() })
        .database("postgres://localhost/shop")
        .around(|about, run| {
            Box::pin(async move {
                let result = run.await;
                if let Err(failure) = &result {
                    eprintln!("{} {}: {}", about.kind, about.name, failure.reason);
                }
                result
            })
        })
}

async fn spawned(app: App, pool: deadpool_postgres::Pool, stop: tokio::sync::oneshot::Receiver<()>) {
    tokio::spawn(worker(app.clone(), &pool).run());
    tokio::spawn(worker(app, &pool).run_until(async { drop(stop.await) }));
}

fn api(app: App) -> axum::Router {
    axum::Router::new().route("/bookings", axum::routing::post(confirm)).with_state(app)
}

#[derive(Serialize, Deserialize)]
struct NewBooking {
    total: String,
}
struct ApiError(anyhow::Error);
impl<E: Into<anyhow::Error>> From<E> for ApiError {
    fn from(e: E) -> Self {
        Self(e.into())
    }
}
impl axum::response::IntoResponse for ApiError {
    fn into_response(self) -> axum::response::Response {
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}
async fn insert_booking(tx: &mut PgTransaction<'_>, n: &NewBooking) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("insert").bind(&n.total).fetch_one(&mut **tx).await
}
#[derive(Debug)]
enum AcmeError {
    Connect,
    Slow,
}
impl std::fmt::Display for AcmeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("acme")
    }
}
#[derive(Clone)]
struct Acme;
impl Acme {
    async fn geocode(&self, _: i64) -> Result<String, AcmeError> {
        Err(AcmeError::Slow)
    }
}
#[derive(Clone)]
struct Mail;
impl Mail {
    async fn send(&self, _: &str, _: i64) -> std::io::Result<()> {
        Ok(())
    }
}

fn main() {}
