//! `outlast completions`: what a shell needs to complete our command line.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::{args::Global, exit::Exit, problem::Answer, product::Cli};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  outlast completions bash > /etc/bash_completion.d/outlast
  outlast completions zsh > \"${fpath[1]}/_outlast\"
  outlast completions fish > ~/.config/fish/completions/outlast.fish")]
pub(crate) struct Completions {
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(&self, global: &Global) -> Answer {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "outlast", &mut script);
        global.out().raw(&script)?;
        Ok(Exit::Done)
    }
}
