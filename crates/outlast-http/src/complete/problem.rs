//! Errors as `application/problem+json` (RFC 9457). What a caller need not know is in the log instead.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use outlast_postgres::Error;
use serde::Serialize;

#[derive(Debug, Serialize)]
pub(super) struct Problem {
    title: &'static str,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    /// In seconds.
    #[serde(skip)]
    retry_after: Option<&'static str>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, title: &'static str) -> Self {
        Self {
            title,
            status: status.as_u16(),
            code: None,
            detail: None,
            retry_after: None,
        }
    }

    /// A request that says what cannot be.
    pub(super) fn bad(why: &str) -> Self {
        Self {
            detail: Some(why.to_owned()),
            code: Some("OL005"),
            ..Self::new(StatusCode::BAD_REQUEST, "the request cannot be read")
        }
    }

    /// Later it may be otherwise.
    pub(super) fn unavailable(title: &'static str) -> Self {
        Self {
            retry_after: Some("1"),
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, title)
        }
    }

    pub(super) fn of(error: &Error) -> Self {
        let conflict = |code, title| Self {
            code: Some(code),
            ..Self::new(StatusCode::CONFLICT, title)
        };
        match error {
            Error::LeaseLost => {
                conflict("OL001", "the lease is lost: somebody newer owns this event")
            }
            Error::AlreadySealed => conflict("OL002", "this event was completed before"),
            Error::NotInClaim => conflict(
                "OL003",
                "this event is not in this claim, or was given to a later try",
            ),
            Error::Stopped(_) | Error::Held(_) => Self {
                code: Some("OL004"),
                ..Self::unavailable("stopped until a person has confirmed a restore")
            },
            Error::BadName(why) => Self::bad(&outlast_core::text::clean(why, 200)),
            error if error.is_transient() => {
                tracing::warn!(%error, "a completion was not recorded");
                Self::unavailable("not recorded: the database does not answer")
            }
            error => {
                tracing::error!(%error, "a completion was not recorded");
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "not recorded")
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_string(&self).unwrap_or_default();
        let kind = HeaderValue::from_static("application/problem+json");
        let mut response = (status, [(header::CONTENT_TYPE, kind)], body).into_response();
        if let Some(seconds) = self.retry_after {
            let seconds = HeaderValue::from_static(seconds);
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        response
    }
}
