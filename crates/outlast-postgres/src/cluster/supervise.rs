//! Runs a program that must not outlive us, not even when we are killed with SIGKILL.
//!
//! Between us and the program stands a small shell (`supervise.sh`) that reads a pipe of ours. The kernel closes our
//! end when we die, whatever the reason. (`PR_SET_PDEATHSIG` would need unsafe code and does not exist on macOS.)
//! The shell has its own process group, so that Ctrl-C in a terminal reaches us and not the server.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::Error;
use super::account::{Account, command};
use super::error::on;

const SCRIPT: &str = include_str!("supervise.sh");

/// How to end the program. The words are those of the script.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// SIGINT: PostgreSQL rolls back what is open and shuts down cleanly.
    Fast,
    /// SIGQUIT: it stops at once and recovers at the next start.
    Immediate,
    /// SIGKILL to the postmaster alone.
    Kill,
}

#[derive(Debug)]
pub(super) struct Supervised {
    shell: Child,
    orders: ChildStdin,
    pid: u32,
}

impl Supervised {
    /// Starts `program` in `folder`, its output appended to `log`. If we die, `remove` is removed after it ended.
    pub(super) fn start(
        account: Option<&Account>,
        folder: &Path,
        log: &File,
        remove: Option<&Path>,
        program: &[std::ffi::OsString],
    ) -> Result<Self, Error> {
        let sh = Path::new("/bin/sh");
        let log = log.try_clone().map_err(on("write the log in", folder))?;
        let mut shell = command(account, sh, folder)
            .args(["-c", &script(), "supervise"])
            .arg(remove.unwrap_or(Path::new("")))
            .args(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .process_group(0)
            .spawn()
            .map_err(on("run", sh))?;
        let orders = shell.stdin.take().expect("stdin was piped above");
        let answers = shell.stdout.take().expect("stdout was piped above");
        let mut line = String::new();
        BufReader::new(answers)
            .read_line(&mut line)
            .map_err(on("hear from", sh))?;
        let pid = line
            .trim()
            .parse()
            .map_err(std::io::Error::other)
            .map_err(on("hear from", sh))?;
        Ok(Self { shell, orders, pid })
    }

    /// The program's own process id, not the shell's.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn order(&mut self, end: End) {
        let word = match end {
            End::Fast => "fast\n",
            End::Immediate => "immediate\n",
            End::Kill => "kill\n",
        };
        // A closed pipe means that the program has ended already, which is what was asked for.
        let _ = self.orders.write_all(word.as_bytes());
    }

    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.shell.try_wait().ok().flatten()
    }

    /// True if the program has ended within `patience`.
    pub(super) fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            if Instant::now() >= deadline {
                return None;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Without the comments, because `ps` shows all of it.
fn script() -> String {
    let lines = SCRIPT
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'));
    lines.collect::<Vec<_>>().join("\n")
}
