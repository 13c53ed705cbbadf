//! Payments: charged once whatever happens, settled by a webhook or when the provider is asked, refunded by a command of its own.
//!
//! Needs a database to play with (`outlast dev`, and `outlast deployment set example` for it) and a provider: `cargo run -p
//! outlast-testkit --bin fake-provider -- --ledger /tmp/ledger` says where it listens. Then `DATABASE_URL=… PROVIDER=http://127.0.0.1:…
//! cargo run --example payments --features http-provider`.

use std::{error::Error, time::Duration};

use axum::{Json, Router, extract::State, http::StatusCode, routing::post};
use deadpool_postgres::{Manager, Pool as Connections};
use outlast::{
    Attempt, ClientTx, Command, Consumer, Failure, Found, IfUnknown, Outlast, OwnedTx, Pool,
    Resolution, Resolved, Sent, Settings,
    http::provider::{Answer, Provider, Said},
};
// How the provider is to misbehave; no application has that.
use outlast_testkit::provider::order::{Fault, Habits};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_postgres::NoTls;

/// What is to be charged, as it was authorised. Money is decimal text: a float would be another amount.
#[derive(Serialize, Deserialize)]
struct Pay {
    payment: i64,
    amount: String,
    currency: String,
}

/// What the provider says: its own number.
#[derive(Serialize, Deserialize)]
struct Receipt {
    order: u64,
}

impl Command for Pay {
    const NAME: &'static str = "pay";
    type Answer = Receipt;

    /// One charge a payment, for ever. A corrected amount is another payment.
    fn key(&self) -> String {
        format!("payment/{}", self.payment)
    }

    fn account(&self) -> Option<String> {
        Some("acme".into())
    }

    /// Charge and refunds of one payment, one at a time, in the order of acceptance.
    fn exclusive(&self) -> Option<String> {
        Some(format!("payment/{}", self.payment))
    }
}

/// A refund is an instruction of its own, which names what it takes back. The payment stays what it was.
#[derive(Serialize, Deserialize)]
struct Refund {
    payment: i64,
    nth: i32,
    /// The provider's number of the charge: it is here although the row may be gone when it is needed.
    charge: u64,
    amount: String,
    currency: String,
}

impl Command for Refund {
    const NAME: &'static str = "refund";
    type Answer = Receipt;

    fn key(&self) -> String {
        format!("payment/{}/refund/{}", self.payment, self.nth)
    }

    fn account(&self) -> Option<String> {
        Some("acme".into())
    }

    fn exclusive(&self) -> Option<String> {
        Some(format!("payment/{}", self.payment))
    }
}

#[derive(Clone)]
struct App {
    acme: Provider,
    /// Where we are called back.
    told: String,
    db: Connections,
}

async fn pay(app: App, pay: Attempt<Pay>) -> Result<Sent<Receipt>, Failure> {
    let what = json!({ "amount": pay.amount, "currency": pay.currency });
    ask(&app, (pay.provider_key(), &Command::key(&*pay)), what).await
}

async fn refund(app: App, refund: Attempt<Refund>) -> Result<Sent<Receipt>, Failure> {
    let what =
        json!({ "amount": refund.amount, "currency": refund.currency, "refunds": refund.charge });
    ask(&app, (refund.provider_key(), &Command::key(&*refund)), what).await
}

/// One request. `?` on it: not sent is tried again, maybe sent is unknown.
async fn ask(
    app: &App,
    (idempotency_key, key): (&str, &str),
    mut what: Value,
) -> Result<Sent<Receipt>, Failure> {
    what["reference"] = idempotency_key.into();
    what["account"] = "acme".into();
    what["key"] = key.into();
    what["call_back"] = app.told.as_str().into();
    let request = app
        .acme
        .post("orders/keyed")
        .key(idempotency_key)
        .json(&what);
    said(&request.send().await?)
}

/// What it says about an order.
#[derive(Deserialize)]
struct Order {
    order: u64,
    state: String,
}

/// `?` on what it said: the status decides.
fn said(answer: &Answer) -> Result<Sent<Receipt>, Failure> {
    if let Said::Refused(why) = answer.said()? {
        return Ok(Sent::Rejected(why));
    }
    let Order { order, state } = answer.json()?;
    Ok(match state.as_str() {
        "settled" => Sent::Settled(Receipt { order }),
        _ => Sent::Pending {
            reference: order.to_string(),
        },
    })
}

/// What became of a charge that is pending: for the day on which a webhook does not come.
async fn find<C: Command<Answer = Receipt>>(
    app: App,
    command: Attempt<C>,
) -> Result<Found<Receipt>, Failure> {
    let path = format!("orders/keyed/by/{}", command.provider_key());
    let answer = app.acme.get(&path).send().await?;
    // That it is not found is no proof here: a request may still be on its way.
    if answer.status() == 404 {
        return Ok(Found::Unsure);
    }
    Ok(match said(&answer)? {
        Sent::Settled(receipt) => Found::Settled(receipt),
        Sent::Pending { reference } => Found::Pending { reference },
        Sent::Rejected(why) | Sent::Obsolete(why) => Found::Rejected(why),
    })
}

/// The provider's webhook. (Check its signature first.) 2xx only when it is committed; it may come twice, early or late.
async fn told(State(app): State<App>, Json(end): Json<Value>) -> StatusCode {
    match settle(&app, &end).await {
        Ok(()) => StatusCode::NO_CONTENT,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

async fn settle(app: &App, end: &Value) -> Result<(), outlast::Error> {
    let key = end["body"]["key"].as_str().unwrap_or_default();
    let how = match (end["state"].as_str(), end["order"].as_u64()) {
        (Some("settled"), Some(order)) => Resolution::Settled(Receipt { order }),
        _ => Resolution::Rejected("refused".into()),
    };
    let mut tx = app.db.begin().await?;
    if end["body"]["refunds"].is_null() {
        Outlast::new().settle::<Pay>(&mut tx, key, how).await?;
    } else {
        Outlast::new().settle::<Refund>(&mut tx, key, how).await?;
    }
    tx.commit().await
}

/// The end of a charge, in one commit with the payment's own state.
async fn paid(_: App, tx: &mut ClientTx, end: Attempt<Resolved<Pay>>) -> Result<(), Failure> {
    let (state, order) = match &end.how {
        Resolution::Settled(receipt) => ("paid", i64::try_from(receipt.order).ok()),
        _ => ("refused", None),
    };
    let sql = "update payment set state = $2, charge = $3 where id = $1";
    tx.execute(sql, &[&end.command.payment, &state, &order])
        .await?;
    Ok(())
}

async fn refunded(
    _: App,
    tx: &mut ClientTx,
    end: Attempt<Resolved<Refund>>,
) -> Result<(), Failure> {
    let sql = "update refund set state = $3 where payment = $1 and nth = $2";
    tx.execute(
        sql,
        &[&end.command.payment, &end.command.nth, &end.how.as_str()],
    )
    .await?;
    Ok(())
}

/// The payment and the instruction: one commit.
async fn charge(app: &App, payment: i64, amount: &str) -> Result<(), Box<dyn Error>> {
    let mut tx = app.db.begin().await?;
    let row = "insert into payment (id, amount, currency, state) values ($1, $2::text::numeric, 'EUR', 'charging')";
    tx.execute(row, &[&payment, &amount]).await?;
    let pay = Pay {
        payment,
        amount: amount.into(),
        currency: "EUR".into(),
    };
    Outlast::new().command(&mut tx, &pay).await?;
    tx.commit().await?;
    Ok(())
}

/// No more than was paid, however many ask at the same time: the payment's row is locked first.
async fn give_back(
    app: &App,
    payment: i64,
    nth: i32,
    amount: &str,
) -> Result<bool, Box<dyn Error>> {
    let mut tx = app.db.begin().await?;
    let row = "select charge from payment where id = $1 and state = 'paid' for update";
    let charge: i64 = tx.query_one(row, &[&payment]).await?.get(0);
    let row = "insert into refund (payment, nth, amount, state) select p.id, $2, $3::text::numeric, 'asked' from payment p
               where p.id = $1 and $3::text::numeric + coalesce((select sum(r.amount) from refund r
                 where r.payment = p.id and r.state <> 'rejected'), 0) <= p.amount";
    if tx.execute(row, &[&payment, &nth, &amount]).await? == 0 {
        return Ok(false);
    }
    let refund = Refund {
        payment,
        nth,
        charge: u64::try_from(charge)?,
        amount: amount.into(),
        currency: "EUR".into(),
    };
    Outlast::new().command(&mut tx, &refund).await?;
    tx.commit().await?;
    Ok(true)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL")?;
    outlast::migrate(&url).await?;
    let db = Connections::builder(Manager::new(url.parse()?, NoTls)).build()?;
    db.get().await?.batch_execute(
        "create table payment (id bigint primary key, amount numeric(12, 2) not null, currency text not null, state text not null, charge bigint);
         create table refund (payment bigint, nth int, amount numeric(12, 2) not null, state text not null, primary key (payment, nth));",
    ).await?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let app = App {
        acme: Provider::new(&std::env::var("PROVIDER")?)?,
        told: format!("http://{}/told", listener.local_addr()?),
        db: db.clone(),
    };
    let webhook = Router::new()
        .route("/told", post(told))
        .with_state(app.clone());
    tokio::spawn(async move { axum::serve(listener, webhook).await });

    let day = Duration::from_secs(24 * 3600);
    let consumer = Consumer::new("payments")
        .on_tx(&db, paid)
        .on_tx(&db, refunded);
    let worker = Outlast::new()
        .worker(app.clone())
        .database(&url)
        // Of a copy of this database it must not charge anybody.
        .settings(Settings {
            deployment: Some("example".into()),
            ..Settings::default()
        })
        .command(
            pay,
            IfUnknown::resend_within(day)
                .replays_answers()
                .then_look_up(find::<Pay>),
        )
        .poll(Duration::from_secs(60), find::<Pay>)
        .command(
            refund,
            IfUnknown::resend_within(day)
                .replays_answers()
                .then_look_up(find::<Refund>),
        )
        .poll(Duration::from_secs(60), find::<Refund>)
        .consumer(consumer);
    worker
        .run_until(async { work(&app).await.expect("the day goes as planned") })
        .await?;

    let sum = "select string_agg(format('payment %s: %s %s, refunded %s', p.id, p.amount, p.state,
                 coalesce((select sum(r.amount) from refund r where r.payment = p.id and r.state = 'settled'), 0)), E'\\n' order by p.id)
               from payment p";
    println!(
        "{}",
        db.get()
            .await?
            .query_one(sum, &[])
            .await?
            .get::<_, String>(0)
    );
    Ok(())
}

/// A bad day at the provider.
async fn work(app: &App) -> Result<(), Box<dyn Error>> {
    // It takes the first charge, and its answer is lost. The same key again finds the same charge, if its webhook is not quicker.
    behave(app, &Habits::only(Fault::Dropped)).await?;
    charge(app, 1, "120.00").await?;
    until(app, "paid", 1).await?;
    // It takes the second, and settles it later: its webhook says so.
    behave(
        app,
        &Habits {
            settle_ms: 300,
            ..Habits::only(Fault::Pending)
        },
    )
    .await?;
    charge(app, 2, "80.50").await?;
    until(app, "paid", 2).await?;
    behave(app, &Habits::default()).await?;
    // Half of the first goes back, and then more than is left of it would.
    assert!(give_back(app, 1, 1, "60.00").await?);
    assert!(!give_back(app, 1, 2, "60.01").await?);
    until_sql(
        app,
        "select count(*) from refund where state = 'settled'",
        1,
    )
    .await
}

async fn behave(app: &App, habits: &Habits) -> Result<(), Box<dyn Error>> {
    let answer = app.acme.put("orders").json(habits).send().await?;
    assert_eq!(answer.status(), 204);
    Ok(())
}

async fn until(app: &App, state: &str, n: i64) -> Result<(), Box<dyn Error>> {
    until_sql(
        app,
        &format!("select count(*) from payment where state = '{state}'"),
        n,
    )
    .await
}

async fn until_sql(app: &App, sql: &str, n: i64) -> Result<(), Box<dyn Error>> {
    let db = app.db.get().await?;
    while db.query_one(sql, &[]).await?.get::<_, i64>(0) < n {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
