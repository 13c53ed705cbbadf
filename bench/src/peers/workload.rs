//! The workloads, each a room of its own.

pub mod crash;
pub mod drain;
pub mod enqueue;
pub mod held;
pub mod idle;
pub mod shapes;
pub mod stop;
pub mod trickle;

use super::stage::{Form, Stage};

/// In the order in which they are run: in the quick form what matters most comes first.
pub const ALL: [&str; 13] = [
    "drain",
    "enqueue",
    "trickle",
    "stop",
    "kill",
    "handlers",
    "two-workers",
    "fan-out",
    "payload",
    "restart",
    "snapshot",
    "retained",
    "idle",
];

/// What the quick form has time for.
const QUICK: [&str; 5] = ["drain", "enqueue", "trickle", "stop", "kill"];

/// What is run when nobody names any.
pub fn of(form: Form) -> Vec<&'static str> {
    match form {
        Form::Quick => QUICK.to_vec(),
        Form::Full | Form::Smoke => ALL.to_vec(),
    }
}

pub async fn run(stage: &Stage, name: &str) {
    match name {
        "drain" => drain::run(stage).await,
        "enqueue" => enqueue::run(stage).await,
        "trickle" => trickle::run(stage).await,
        stop::STOP => stop::run(stage).await,
        crash::KILL => crash::kill(stage).await,
        crash::RESTART => crash::restart(stage).await,
        shapes::HANDLERS => shapes::handlers(stage).await,
        shapes::WORKERS => shapes::two_workers(stage).await,
        shapes::FAN_OUT => shapes::fan_out(stage).await,
        shapes::PAYLOAD => shapes::payload(stage).await,
        held::SNAPSHOT => held::snapshot(stage).await,
        held::RETAINED => held::retained(stage).await,
        idle::IDLE => idle::run(stage).await,
        other => unreachable!("{other} is not in the list"),
    }
}
