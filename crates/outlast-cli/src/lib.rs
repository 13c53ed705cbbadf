//! The command `outlast`, and the same commands for your own binary.
//!
//! Each command is one file in `command/`: what it takes, what it does, what it prints. People get sentences and aligned
//! tables, programs get `--json`; errors go to stderr and say what was tried, on what, and what to do next. The exit
//! codes are listed in `docs/cli.md`.

mod args;
mod command;
mod database;
mod engine;
mod exit;
mod intent;
mod log;
mod needs;
mod out;
mod own;
mod problem;
mod product;
mod push;
mod settings;
mod signal;
mod since;
mod work;

use std::process::ExitCode;

use clap::Parser;

use crate::{
    exit::Exit,
    problem::{Answer, Problem},
};

pub use own::cli;

/// The whole of the product's binary.
pub fn main() -> ExitCode {
    let cli = product::Cli::parse();
    log::start(cli.global.log, cli.log_level());
    let json = cli.global.json;
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            return end(
                Err(Problem::new(
                    Exit::Failed,
                    "start the runtime",
                    error.to_string(),
                )),
                json,
            );
        }
    };
    let answer = runtime.block_on(cli.run());
    // A thread that still waits for a server to start must not keep us: the server ends with this process.
    runtime.shutdown_background();
    end(answer, json)
}

/// The exit code of an answer; the reason on stderr if it is a problem.
fn end(answer: Answer, json: bool) -> ExitCode {
    let problem = match answer {
        Ok(exit) => return exit.into(),
        Err(problem) => problem,
    };
    if !problem.silent {
        out::complain(&if json { problem.json() } else { problem.text() });
    }
    problem.exit.into()
}
