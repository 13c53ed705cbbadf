//! `outlast webhooks`: what providers tell us.

mod presets;
mod verify;

use clap::{Args, Subcommand};

use crate::{args::Global, problem::Answer};

#[derive(Debug, Args)]
pub(crate) struct Webhooks {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Judge recorded webhooks by their signatures, from a file; needs no database
    #[command(after_help = "\
The file is an array in JSON; each row has id, scheme, headers and body (utf8 or base64), and as its scheme needs it
method, url, secret (one or several), public_key, timestamp_now, tolerance_s and options. A row with an
unknown scheme is refused. If rows say what they expect and one is judged otherwise, the exit code is 1.

Examples:
  outlast webhooks verify --vectors vectors.json
  outlast webhooks verify --vectors - --json < vectors.json    id, verdict, reason, event_id; one row a line")]
    Verify(verify::Verify),
    /// List the providers whose webhooks are known, and what their signatures prove
    #[command(after_help = "\
Example:
  outlast webhooks presets --json")]
    Presets(presets::Presets),
}

impl Webhooks {
    pub(crate) fn run(&self, global: &Global) -> Answer {
        match &self.command {
            Command::Verify(verify) => verify.run(global),
            Command::Presets(presets) => presets.run(global),
        }
    }
}
