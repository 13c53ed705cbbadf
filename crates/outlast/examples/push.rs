//! An HTTP endpoint as the handler of a consumer: it checks the signature, writes its own rows, and completes the event in the
//! same transaction.
//!
//! `cargo run --example push --features push`, with `DATABASE_URL` naming a migrated database (`outlast dev` gives one). Here
//! endpoint and worker are one program, on loopback; in earnest the endpoint is a service of its own, in any language, behind
//! HTTPS.

use std::{error::Error, time::Duration};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use outlast::{
    Consumer, Outlast, Settings, Start,
    http::{
        HttpEndpoint,
        egress::{Egress, Net, Rules},
        push::{OUTCOME, TOKEN},
        signature::{Key, Keys, Verifier},
    },
};
use tokio_postgres::NoTls;
use uuid::Uuid;

const BOOKINGS: i64 = 3;

#[derive(Clone)]
struct Shop {
    database: String,
    verifier: Verifier,
}

/// The endpoint: what somebody else writes, in whatever language.
async fn receive(
    State(shop): State<Shop>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, [(&'static str, &'static str); 1]), StatusCode> {
    let verified = shop
        .verifier
        .verify(&headers, &body)
        .map_err(|_| StatusCode::UNAUTHORIZED)?;
    let id: Uuid = verified.id.parse().map_err(|_| StatusCode::BAD_REQUEST)?;
    let token = headers
        .get(TOKEN)
        .and_then(|token| token.to_str().ok()?.parse().ok());
    let token: Uuid = token.ok_or(StatusCode::BAD_REQUEST)?;
    // What cannot be recorded now is tried again: 5xx.
    record(&shop.database, token, id, &body)
        .await
        .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok((StatusCode::ACCEPTED, [(OUTCOME, "accepted")]))
}

/// The mail and the completion: one commit.
async fn record(
    database: &str,
    token: Uuid,
    id: Uuid,
    body: &[u8],
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let (mut client, connection) = tokio_postgres::connect(database, NoTls).await?;
    tokio::spawn(connection);
    let tx = client.transaction().await?;
    let booking: serde_json::Value = serde_json::from_slice(body)?;
    tx.execute(
        "insert into mail (booking) values ($1)",
        &[&booking["booking"].as_i64()],
    )
    .await?;
    tx.execute("select outlast.complete($1, $2)", &[&token, &id])
        .await?;
    tx.commit().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let database = std::env::var("DATABASE_URL")?;
    let (client, connection) = tokio_postgres::connect(&database, NoTls).await?;
    tokio::spawn(connection);
    client
        .batch_execute("create table if not exists mail (booking bigint not null); truncate mail")
        .await?;
    for booking in 1..=BOOKINGS {
        let payload = format!("{{\"booking\":{booking}}}");
        client
            .execute(
                "select outlast.emit('booking.confirmed', $1::text)",
                &[&payload],
            )
            .await?;
    }

    // Both sides know the key; here it is a new one each time.
    let keys = Keys::from(Key::generate());
    let shop = Shop {
        database: database.clone(),
        verifier: Verifier::new(keys.clone()),
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/events", listener.local_addr()?);
    let app = Router::new()
        .route("/events", post(receive))
        .with_state(shop);
    tokio::spawn(async move { axum::serve(listener, app).await });

    // Loopback is allowed on purpose; without this line the URL is refused.
    let rules = Rules::new().allow("127.0.0.1".parse::<Net>()?);
    let endpoint = HttpEndpoint::new(&Egress::new(rules).client()?, &url, keys)?;
    let consumer = Consumer::new("shop")
        .from(Start::Earliest)
        .push("booking.*", endpoint);
    let done = async {
        loop {
            let sql = "select count(*) from outlast.processed where consumer = 'shop'";
            let completed: i64 = client.query_one(sql, &[]).await.map_or(0, |row| row.get(0));
            if completed >= BOOKINGS {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let worker = Outlast::new()
        .worker(())
        .database(&database)
        .settings(Settings::default());
    worker.consumer(consumer).run_until(done).await?;
    let mails: i64 = client
        .query_one("select count(*) from mail", &[])
        .await?
        .get(0);
    println!("{BOOKINGS} bookings, {mails} mails, each with its completion in one commit");
    Ok(())
}
