//! The requests for orders.

use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{ConnectInfo, Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use serde_json::{Value, json};

use super::books::{Books, Request, Wish};
use super::{Entry, Fault, Habits, Kind, What, call_back};
use crate::provider::ledger::now_ms;
use crate::provider::server::{Cut, lock};

/// Enough for the head of an answer, and not for its body.
const HALF: usize = 200;

struct Desk {
    path: PathBuf,
    books: Mutex<Books>,
    habits: Mutex<Habits>,
}

/// What is served under `/orders`.
pub(in crate::provider) fn routes(path: &FilePath) -> io::Result<Router> {
    let desk = Desk {
        path: path.to_owned(),
        books: Mutex::new(Books::open(path)?),
        habits: Mutex::default(),
    };
    Ok(Router::new()
        .route("/orders", put(behave).get(all))
        .route("/orders/{kind}", post(order))
        .route("/orders/{kind}/{number}", get(by_number))
        .route("/orders/{kind}/by/{reference}", get(by_reference))
        .with_state(Arc::new(desk)))
}

async fn behave(State(desk): State<Arc<Desk>>, Json(habits): Json<Habits>) -> StatusCode {
    *lock(&desk.habits) = habits;
    StatusCode::NO_CONTENT
}

async fn all(State(desk): State<Arc<Desk>>) -> Result<String, StatusCode> {
    std::fs::read_to_string(&desk.path).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

async fn order(
    State(desk): State<Arc<Desk>>,
    ConnectInfo(cut): ConnectInfo<Cut>,
    Path(kind): Path<Kind>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> Response {
    let Ok(wish) = serde_json::from_value::<Wish>(body.clone()) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let (visit, beside) = lock(&desk.books).begins(kind, &wish);
    let habits = lock(&desk.habits).clone();
    let request = Request {
        kind,
        key: text("idempotency-key").map(str::to_owned),
        valid_until_ms: text("valid-until-ms").and_then(|until| until.parse().ok()),
        fault: habits.fault(kind, &wish.account, &wish.reference, visit),
        wish,
        body,
        visit,
        beside,
    };
    // Whoever hangs up has sent it all the same: what is on its way arrives.
    let account = request.wish.account.clone();
    let done = tokio::spawn(treat(desk.clone(), habits, request, cut)).await;
    lock(&desk.books).ends(&account);
    match done {
        Ok(Ok(response)) => response,
        _ => StatusCode::INSUFFICIENT_STORAGE.into_response(),
    }
}

/// One request, as badly as it is meant to be treated.
async fn treat(
    desk: Arc<Desk>,
    habits: Habits,
    request: Request,
    cut: Cut,
) -> io::Result<Response> {
    let wait = habits.slow_ms(request.kind, &request.wish.reference, request.visit);
    let wait = Duration::from_millis(wait);
    let fault = request.fault;
    match fault {
        Some(Fault::Throttled) => {
            write(&desk, request, Act::Enter(What::Throttled)).await?;
            let after = [(header::RETRY_AFTER, habits.retry_after.to_string())];
            return Ok((StatusCode::TOO_MANY_REQUESTS, after).into_response());
        }
        Some(Fault::Away) => {
            write(&desk, request, Act::Enter(What::Away)).await?;
            return Ok(StatusCode::SERVICE_UNAVAILABLE.into_response());
        }
        Some(Fault::Lost) => {
            cut.after(0);
            write(&desk, request, Act::Enter(What::Lost)).await?;
            return Ok(StatusCode::OK.into_response());
        }
        Some(Fault::Late) => tokio::time::sleep(wait).await,
        _ => {}
    }
    let to = request.wish.call_back.clone();
    let entry = write(&desk, request, Act::Apply(habits.clone())).await?;
    let done = matches!(entry.what, What::Effect | What::Refused);
    match (to, fault) {
        (Some(to), Some(Fault::CalledBack)) if done => {
            // It is told first. Whoever does not answer in time is told again, behind the answer.
            let telling = tokio::spawn(call_back::tell(entry.clone(), to));
            let _ = tokio::time::timeout(wait, telling).await;
        }
        (Some(to), _) if done => {
            let settles = Duration::from_millis(habits.settle_ms);
            let entry = entry.clone();
            tokio::spawn(async move {
                tokio::time::sleep(settles).await;
                call_back::tell(entry, to).await;
            });
        }
        _ => {}
    }
    match fault {
        Some(Fault::Slow | Fault::CalledBack) => tokio::time::sleep(wait).await,
        Some(Fault::Dropped) => cut.after(0),
        Some(Fault::Half) => cut.after(HALF),
        Some(Fault::Broken) => return Ok(StatusCode::INTERNAL_SERVER_ERROR.into_response()),
        _ => {}
    }
    Ok(answer(&desk, &entry, &habits))
}

/// What is to be written.
enum Act {
    Apply(Habits),
    Enter(What),
}

/// fsync blocks: not in the runtime's own threads.
async fn write(desk: &Arc<Desk>, request: Request, act: Act) -> io::Result<Entry> {
    let desk = desk.clone();
    let written = tokio::task::spawn_blocking(move || {
        let mut books = lock(&desk.books);
        match act {
            Act::Apply(habits) => books.apply(&request, &habits),
            Act::Enter(what) => books.enter(&request, what, 0, now_ms()),
        }
    });
    written.await.map_err(io::Error::other)?
}

/// What is said about a request that came to something.
fn answer(desk: &Desk, entry: &Entry, habits: &Habits) -> Response {
    match (entry.what, entry.kind) {
        (What::Expired, _) => said(StatusCode::REQUEST_TIMEOUT, "it came after its time"),
        (What::Repeat, Kind::Grudging) => {
            if entry.number.is_multiple_of(2) {
                said(StatusCode::CONFLICT, "duplicate")
            } else {
                said(StatusCode::PAYMENT_REQUIRED, "insufficient funds")
            }
        }
        (What::Repeat, _) => match lock(&desk.books).order(entry.kind, entry.number) {
            Some(first) => state(first, habits),
            None => StatusCode::NOT_FOUND.into_response(),
        },
        _ => state(entry, habits),
    }
}

fn said(status: StatusCode, error: &str) -> Response {
    (status, Json(json!({ "error": error }))).into_response()
}

/// What became of an order that it has in its books.
fn state(entry: &Entry, habits: &Habits) -> Response {
    if entry.what == What::Refused {
        return said(StatusCode::UNPROCESSABLE_ENTITY, "refused for good");
    }
    let settles_at = entry.at_ms + habits.settle_ms;
    let pending = entry.fault == Some(Fault::Pending) && now_ms() + habits.ahead_ms < settles_at;
    let (status, state) = match pending {
        true => (StatusCode::ACCEPTED, "pending"),
        false => (StatusCode::OK, "settled"),
    };
    let receipt = "=".repeat(2 * HALF);
    (
        status,
        Json(json!({ "order": entry.number, "state": state, "receipt": receipt })),
    )
        .into_response()
}

async fn by_number(
    State(desk): State<Arc<Desk>>,
    Path((kind, number)): Path<(Kind, u64)>,
) -> Response {
    let habits = lock(&desk.habits).clone();
    match lock(&desk.books).order(kind, number) {
        Some(entry) => state(entry, &habits),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn by_reference(
    State(desk): State<Arc<Desk>>,
    Path((kind, reference)): Path<(Kind, String)>,
) -> Response {
    if kind == Kind::Keyless {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let habits = lock(&desk.habits).clone();
    match lock(&desk.books).by_reference(kind, &reference) {
        Some(entry) => state(entry, &habits),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
