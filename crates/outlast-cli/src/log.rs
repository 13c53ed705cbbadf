//! Log lines on stderr: sentences for people, JSON for collectors.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::{EnvFilter, layer::SubscriberExt, util::SubscriberInitExt};

use crate::args::LogFormat;

/// What says what is logged.
const VARIABLE: &str = "OUTLAST_LOG";

/// Starts logging. A program that has its own subscriber keeps it.
pub(crate) fn start(format: Option<LogFormat>, default_level: &str) {
    let filter =
        EnvFilter::try_from_env(VARIABLE).unwrap_or_else(|_| EnvFilter::new(default_level));
    let terminal = stderr().is_terminal();
    let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let format = format.unwrap_or(if terminal {
        LogFormat::Pretty
    } else {
        LogFormat::Json
    });
    let registry = tracing_subscriber::registry().with(filter);
    let layer = tracing_subscriber::fmt::layer().with_writer(stderr);
    let started = match format {
        LogFormat::Pretty => registry
            .with(layer.with_ansi(colour).with_target(false))
            .try_init(),
        LogFormat::Json => registry.with(layer.json().flatten_event(true)).try_init(),
    };
    // The user's binary may have set one up before: its choice stands.
    drop(started);
}
