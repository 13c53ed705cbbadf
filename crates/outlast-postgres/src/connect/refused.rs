//! Why a connection did not come about, as a word that a person can act on.

use super::Target;
use crate::{Error, error::Refused};
use std::{error::Error as _, io::ErrorKind, time::Duration};

pub(super) fn error(target: &Target, error: tokio_postgres::Error) -> Error {
    Error::Connect {
        target: target.to_string(),
        why: why(&error),
        source: error.into(),
    }
}

/// The socket is open and the server says nothing.
pub(super) fn silent(target: &Target, after: Duration) -> Error {
    Error::Connect {
        target: target.to_string(),
        why: Refused::NoServer,
        source: format!("no word from the server after {after:?}").into(),
    }
}

fn why(error: &tokio_postgres::Error) -> Refused {
    if let Some(state) = error.code() {
        return match state.code() {
            "28P01" | "28000" => Refused::Login,
            "3D000" => Refused::NoDatabase,
            "53300" => Refused::Full,
            "57P01" | "57P02" | "57P03" => Refused::NotReady,
            _ => Refused::Other,
        };
    }
    // The driver tells a timeout and a missing password by their texts only.
    let Some(source) = error.source() else {
        return if error.to_string().starts_with("timeout") {
            Refused::NoServer
        } else {
            Refused::Other
        };
    };
    match source.downcast_ref::<std::io::Error>() {
        Some(io)
            if io
                .get_ref()
                .is_some_and(|inner| inner.is::<rustls::Error>()) =>
        {
            Refused::Tls
        }
        // The driver's own word; the operating system's has a number.
        Some(io) if io.kind() == ErrorKind::PermissionDenied && io.raw_os_error().is_none() => {
            Refused::ReadOnly
        }
        Some(_) => Refused::NoServer,
        None if source.to_string() == "password missing" => Refused::NoPassword,
        None if error.to_string().contains("TLS") => Refused::Tls,
        None => Refused::Other,
    }
}
