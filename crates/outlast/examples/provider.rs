//! Commands to a provider over HTTP: a bank that takes a charge and then says nothing, one card that is declined, one request too many.
//! Nobody is charged twice.
//!
//! `outlast dev` in one terminal; in another `outlast deployment set example` for its database, and then
//! `DATABASE_URL=… cargo run --example provider --features http-provider`. Here worker and bank are one program, on loopback.

use std::{
    collections::BTreeMap,
    error::Error,
    future::pending,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
    routing::post,
};
use outlast::{
    Attempt, Command, Failure, IfUnknown, Outlast, Sent, Settings,
    http::provider::{Provider, Said},
};
use serde::{Deserialize, Serialize};
use tokio_postgres::{Client, NoTls};

/// An instruction: data, written in the transaction of the booking.
#[derive(Serialize, Deserialize)]
struct ChargeCard {
    booking: i64,
    card: String,
    amount: String,
}

#[derive(Serialize, Deserialize)]
struct Charge {
    id: String,
}

impl Command for ChargeCard {
    const NAME: &'static str = "charge_card";
    type Answer = Charge;

    fn key(&self) -> String {
        format!("booking/{}/deposit", self.booking)
    }

    fn account(&self) -> Option<String> {
        Some("bank".into())
    }
}

#[derive(Clone)]
struct App {
    bank: Provider,
}

/// What is done with it. `?` on the request: not sent is tried again, maybe sent is unknown. `?` on what it said: the status decides.
async fn charge(app: App, c: Attempt<ChargeCard>) -> Result<Sent<Charge>, Failure> {
    let request = app.bank.post("charges").key(c.provider_key()).json(&*c);
    let answer = request.send().await?;
    Ok(match answer.said()? {
        Said::Done => Sent::Settled(answer.json()?),
        Said::Refused(why) => Sent::Rejected(why),
    })
}

/// The other side.
#[derive(Clone, Default)]
struct Bank(Arc<Mutex<Books>>);

#[derive(Default)]
struct Books {
    /// By idempotency key.
    charges: BTreeMap<String, String>,
    /// How often it was asked, by the same.
    asked: BTreeMap<String, usize>,
}

async fn take(State(bank): State<Bank>, headers: HeaderMap, Json(c): Json<ChargeCard>) -> Response {
    let key = headers["idempotency-key"].to_str().unwrap_or_default();
    let id = format!("ch_{}", c.booking);
    let is_first = {
        let mut books = bank.0.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = books.asked.entry(key.to_owned()).or_default();
        *asked += 1;
        let is_first = *asked == 1;
        match c.card.as_str() {
            "declined" => return StatusCode::PAYMENT_REQUIRED.into_response(),
            "busy" if is_first => {
                return (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, "1")]).into_response();
            }
            _ => _ = books.charges.insert(key.to_owned(), id.clone()),
        }
        is_first
    };
    if c.card == "silent" && is_first {
        // It is in the books, and the answer never comes.
        pending::<()>().await;
    }
    Json(Charge { id }).into_response()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL")?;
    outlast::migrate(&url).await?;
    let (mut sql, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);

    let bank = Bank::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let api = format!("http://{}/v1", listener.local_addr()?);
    let routes = Router::new().route("/v1/charges", post(take));
    let serving = axum::serve(listener, routes.with_state(bank.clone()));
    tokio::spawn(async move { serving.await });

    let outlast = Outlast::new();
    for (booking, card) in [(1, "good"), (2, "silent"), (3, "declined"), (4, "busy")] {
        let (card, amount) = (card.to_owned(), "120.00".to_owned());
        let command = ChargeCard {
            booking,
            card,
            amount,
        };
        let mut tx = sql.transaction().await?;
        outlast.command(&mut tx, &command).await?;
        tx.commit().await?;
    }

    let bank_api = Provider::new(&api)?
        .header("authorization", "Bearer s3cret")?
        .timeout(Duration::from_millis(500));
    // A worker with commands must be told which database is its own: a copy of it would charge everybody once more.
    let settings = Settings {
        deployment: Some("example".into()),
        ..Settings::default()
    };
    let day = Duration::from_secs(24 * 3600);
    let worker = outlast
        .worker(App { bank: bank_api })
        .database(&url)
        .settings(settings)
        .command(charge, IfUnknown::resend_within(day).replays_answers());
    worker.run_until(all_ended(&sql)).await?;

    let states = "select string_agg(state, ', ' order by id) from outlast.command";
    let states: String = sql.query_one(states, &[]).await?.get(0);
    let books = bank.0.lock().unwrap_or_else(PoisonError::into_inner);
    println!(
        "{states}; {} charges in the bank's books",
        books.charges.len()
    );
    Ok(())
}

/// Resolves when every command has ended.
async fn all_ended(sql: &Client) {
    let open = "select count(*) from outlast.command where ended_at is null";
    while !matches!(sql.query_one(open, &[]).await, Ok(row) if row.get::<_, i64>(0) == 0) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
