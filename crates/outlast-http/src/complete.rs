//! Completion over HTTP, for endpoints that have accepted an event and speak no SQL.
//!
//! Two routes to mount in an application of yours: `POST /v1/complete` and `POST /v1/fail`. The token of an attempt is 122 random
//! bits that only its endpoint was given, and ends with the attempt: who has it may end that attempt and nothing else.
//! Nothing here opens a port; where others than your endpoints reach it, ask for signatures too ([`Complete::signed`]).

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use outlast_core::text;
use outlast_postgres::{
    Error,
    schema::Schema,
    tx::{OwnedTx, Pool, Tx, Value},
};
use serde::Deserialize;
use uuid::Uuid;

use crate::signature::Verifier;

mod problem;

use problem::Problem;

/// The most bytes of a request's body.
const BODY: usize = 16 * 1024;
/// How long the database may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The two routes.
///
/// ```
/// use outlast_http::complete::Complete;
///
/// # fn f(pool: deadpool_postgres::Pool) -> axum::Router {
/// axum::Router::new().merge(Complete::new(pool).router())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "mount its router"]
pub struct Complete<P> {
    pool: P,
    schema: Schema,
    verifier: Option<Verifier>,
}

impl<P: Pool> Complete<P> {
    /// Completes events of the schema `outlast` in the database of this pool, whose login needs the role `outlast_engine`.
    pub fn new(pool: P) -> Self {
        Self {
            pool,
            schema: Schema::DEFAULT,
            verifier: None,
        }
    }

    /// In another schema.
    pub fn schema(mut self, schema: Schema) -> Self {
        self.schema = schema;
        self
    }

    /// Takes only requests that are signed as the endpoint's own are.
    pub fn signed(mut self, verifier: Verifier) -> Self {
        self.verifier = Some(verifier);
        self
    }

    /// The routes, to be merged into a router of yours.
    pub fn router(self) -> Router {
        Router::new()
            .route("/v1/complete", post(complete::<P>))
            .route("/v1/fail", post(fail::<P>))
            .layer(DefaultBodyLimit::max(BODY))
            .with_state(Arc::new(self))
    }

    /// One statement in a transaction of its own; the first column of its row, committed.
    async fn once(&self, sql: &'static str, args: &[Value<'_>]) -> Result<Option<String>, Problem> {
        let work = async {
            let mut tx = self.pool.begin().await?;
            let row = tx.call(self.schema.statement(sql), args).await?;
            tx.commit().await?;
            Ok(row.into_iter().next().flatten())
        };
        match tokio::time::timeout(PATIENCE, work).await {
            Ok(answer) => answer.map_err(|error: Error| Problem::of(&error.in_schema(self.schema))),
            Err(_) => Err(Problem::unavailable("the database does not answer")),
        }
    }

    /// Signed, of JSON, and readable.
    fn read<'a, T: Deserialize<'a>>(
        &self,
        headers: &HeaderMap,
        body: &'a [u8],
    ) -> Result<T, Problem> {
        if let Some(verifier) = &self.verifier
            && let Err(why) = verifier.verify(headers, body)
        {
            tracing::warn!(%why, "a completion was refused");
            return Err(Problem::new(
                StatusCode::UNAUTHORIZED,
                "not signed as it should be",
            ));
        }
        let kind = headers
            .get(header::CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok());
        let kind = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
        if !kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json")) {
            return Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "application/json is expected",
            ));
        }
        serde_json::from_slice(body)
            .map_err(|error| Problem::bad(&text::clean(&error.to_string(), 200)))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Done {
    token: Uuid,
    id: Uuid,
    outcome: Option<String>,
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Failed {
    token: Uuid,
    id: Uuid,
    class: String,
    reason: Option<String>,
    after_ms: Option<u64>,
}

async fn complete<P: Pool>(
    State(this): State<Arc<Complete<P>>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<StatusCode, Problem> {
    const SQL: &str = "select outlast.complete(token => $1::text::uuid, id => $2::text::uuid, \
        outcome => coalesce($3::text, 'done'), reason => $4::text)::text";
    let done: Done = this.read(&headers, &body)?;
    let (token, id) = (done.token.to_string(), done.id.to_string());
    let args = [
        token.as_str().into(),
        id.as_str().into(),
        done.outcome.as_deref().into(),
        done.reason.as_deref().into(),
    ];
    this.once(SQL, &args).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn fail<P: Pool>(
    State(this): State<Arc<Complete<P>>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    const SQL: &str = "select outlast.fail(token => $1::text::uuid, id => $2::text::uuid, \
        class => $3::text, reason => $4::text, after_ms => $5::text::bigint)";
    let failed: Failed = this.read(&headers, &body)?;
    let (token, id) = (failed.token.to_string(), failed.id.to_string());
    let after = failed
        .after_ms
        .map(|ms| ms.min(i64::MAX as u64).to_string());
    let args = [
        token.as_str().into(),
        id.as_str().into(),
        failed.class.as_str().into(),
        failed.reason.as_deref().into(),
        after.as_deref().into(),
    ];
    let state = this.once(SQL, &args).await?;
    let body = serde_json::json!({ "state": state }).to_string();
    let json = HeaderValue::from_static("application/json");
    Ok(([(header::CONTENT_TYPE, json)], body).into_response())
}
