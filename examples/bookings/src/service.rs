//! The service: each request is one transaction, and what shall happen afterwards is a row of it.

use axum::{
    Json, Router,
    body::Bytes,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use outlast::{Outlast, Pool};
use outlast_example_bookings::{BookingConfirmed, connect};
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, PgTransaction};

const OUTLAST: Outlast = Outlast::new();

#[derive(Deserialize)]
struct NewBooking {
    guest: String,
    total: String,
}

#[derive(Serialize)]
struct Booked {
    booking: i64,
}

/// Books: the booking, its event and its deposit are committed together, or none of them.
async fn book(
    State(db): State<PgPool>,
    headers: HeaderMap,
    Json(new): Json<NewBooking>,
) -> Result<(StatusCode, Json<Booked>), ApiError> {
    let request = header(&headers, "idempotency-key")?;
    // axum drops this future when the client goes away. Outlast's begin may be dropped at any point, sqlx's may not.
    let mut tx = Pool::begin(&db).await?;
    let Some(booking) = insert_booking(&mut tx, request, &new).await? else {
        let booking = find_booking(&mut tx, request).await?;
        return Ok((StatusCode::OK, Json(Booked { booking })));
    };
    let NewBooking { guest, total } = new;
    let confirmed = BookingConfirmed {
        booking,
        guest,
        total,
    };
    OUTLAST.emit(&mut tx, &confirmed).await?;
    // Refused for a booking that costs nothing: the event goes with it, although it is written already.
    insert_deposit(&mut tx, booking).await?;
    tx.commit().await?;
    Ok((StatusCode::CREATED, Json(Booked { booking })))
}

/// None: this request has booked before.
async fn insert_booking(
    tx: &mut PgTransaction<'_>,
    request: &str,
    new: &NewBooking,
) -> Result<Option<i64>, sqlx::Error> {
    sqlx::query_scalar(
        "insert into booking (request, guest, total) values ($1, $2, $3::numeric) \
         on conflict (request) do nothing returning id",
    )
    .bind(request)
    .bind(&new.guest)
    .bind(&new.total)
    .fetch_optional(&mut **tx)
    .await
}

async fn find_booking(tx: &mut PgTransaction<'_>, request: &str) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("select id from booking where request = $1")
        .bind(request)
        .fetch_one(&mut **tx)
        .await
}

async fn insert_deposit(tx: &mut PgTransaction<'_>, booking: i64) -> Result<(), sqlx::Error> {
    sqlx::query(
        "insert into deposit (booking, amount) select id, total / 10 from booking where id = $1",
    )
    .bind(booking)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Takes a webhook: emits the body exactly as it came. 2xx means that it is durable, and that it was new or known.
///
/// The type is not known before the request comes, so this calls the SQL function that is behind `Outlast::emit`.
async fn deliver(
    State(db): State<PgPool>,
    Path(kind): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<StatusCode, ApiError> {
    let delivery = header(&headers, "x-github-delivery")?;
    let mut tx = Pool::begin(&db).await?;
    let receipt =
        sqlx::query("insert into delivery (id, type) values ($1, $2) on conflict do nothing")
            .bind(delivery)
            .bind(&kind)
            .execute(&mut *tx)
            .await?;
    if receipt.rows_affected() == 0 {
        return Ok(StatusCode::OK);
    }
    sqlx::query(
        "select from outlast.emit(type => $1, bytes => $2, key => 'delivery/' || $3, \
         headers => jsonb_build_object('x-github-event', $4::text))",
    )
    .bind(&kind)
    .bind(&body[..])
    .bind(delivery)
    .bind(header(&headers, "x-github-event")?)
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(StatusCode::CREATED)
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a str, ApiError> {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.ok_or_else(|| ApiError::Refused(format!("header {name} is missing")))
}

/// What a client is told when it did not work.
enum ApiError {
    /// The request is wrong. Nothing was written.
    Refused(String),
    /// Our side is wrong, and if COMMIT was not answered nobody knows yet whether it took place: look, or ask again with
    /// the same key.
    Failed(String),
}

impl From<outlast::Error> for ApiError {
    fn from(error: outlast::Error) -> Self {
        use outlast::Error::{BadName, BadPayload, TooLarge};
        match error {
            BadName(_) | BadPayload(_) | TooLarge { .. } => Self::Refused(error.to_string()),
            _ => Self::Failed(error.to_string()),
        }
    }
}

impl From<sqlx::Error> for ApiError {
    fn from(error: sqlx::Error) -> Self {
        // Data exceptions, constraints, and what `outlast.emit` says of bad names, large and bad payloads.
        const WRONG: [&str; 5] = ["22", "23", "OL005", "OL006", "OL007"];
        let sent = error.as_database_error();
        let state = sent.and_then(|sent| sent.code()).unwrap_or_default();
        match sent {
            Some(sent) if WRONG.iter().any(|wrong| state.starts_with(wrong)) => {
                Self::Refused(sent.message().to_owned())
            }
            _ => Self::Failed(error.to_string()),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        match self {
            Self::Refused(why) => (StatusCode::UNPROCESSABLE_ENTITY, why).into_response(),
            Self::Failed(why) => {
                eprintln!("a request failed: {why}");
                StatusCode::SERVICE_UNAVAILABLE.into_response()
            }
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let app = Router::new()
        .route("/bookings", post(book))
        .route("/events/{type}", post(deliver))
        .with_state(connect().await?);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
