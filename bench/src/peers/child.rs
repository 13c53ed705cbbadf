//! A process of an adapter: started with its environment, listened to with a deadline, ended whatever happens.

use std::{
    collections::VecDeque,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use serde::Deserialize;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::{ChildStdin, Command},
    sync::mpsc,
    time::{Instant, timeout_at},
};

use super::{adapter::Who, adapter::last_words, room::Room, task::Task};

/// A line of an adapter.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Line {
    Ready,
    Handled,
    Start {
        n: i64,
        at: i64,
    },
    Committed {
        n: i64,
        at: i64,
    },
    End {
        handled: Option<i64>,
        transactions: Option<i64>,
        seconds: Option<f64>,
    },
}

pub struct Child {
    what: String,
    process: tokio::process::Child,
    pid: u32,
    stdin: Option<ChildStdin>,
    lines: mpsc::UnboundedReceiver<Result<Line, String>>,
    said: Arc<Mutex<VecDeque<String>>>,
    ended: bool,
}

impl Child {
    /// Starts it in a process group of its own.
    pub fn start(who: &Who, room: &Room, task: &Task) -> Result<Self> {
        let what = format!("{who}: {}", task.verb);
        let mut process = Command::from(who.adapter.command()?)
            .envs(room.environment())
            .envs(task.environment(&who.profile))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{what} cannot be started"))?;
        let pid = process.id().context("it has no process id")?;
        let (sender, lines) = mpsc::unbounded_channel();
        let said = Arc::new(Mutex::new(VecDeque::new()));
        let (stdout, stderr) = (process.stdout.take(), process.stderr.take());
        let mut out = BufReader::new(stdout.context("no stdout")?).lines();
        tokio::spawn(async move {
            while let Ok(Some(line)) = out.next_line().await {
                let line = serde_json::from_str(&line)
                    .map_err(|_| format!("not a line of the contract: {line}"));
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut err = BufReader::new(stderr.context("no stderr")?).lines();
        let keep = said.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = err.next_line().await {
                let mut said = keep.lock().unwrap_or_else(PoisonError::into_inner);
                said.push_back(line);
                if said.len() > 50 {
                    said.pop_front();
                }
            }
        });
        let stdin = process.stdin.take();
        Ok(Self {
            what,
            process,
            pid,
            stdin,
            lines,
            said,
            ended: false,
        })
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The next line; None when there will be no more.
    pub async fn next(&mut self, until: Instant) -> Result<Option<Line>> {
        match timeout_at(until, self.lines.recv()).await {
            Err(_) => bail!("{}: no word in time{}", self.what, self.words()),
            Ok(None) => Ok(None),
            Ok(Some(Ok(line))) => Ok(Some(line)),
            Ok(Some(Err(why))) => bail!("{}: {why}", self.what),
        }
    }

    /// A line that is there already.
    pub fn now(&mut self) -> Result<Option<Line>> {
        match self.lines.try_recv() {
            Ok(line) => line
                .map(Some)
                .map_err(|why| anyhow::anyhow!("{}: {why}", self.what)),
            Err(_) => Ok(None),
        }
    }

    /// Whether it has said all that it will say.
    pub fn is_silent(&self) -> bool {
        self.lines.is_closed() && self.lines.is_empty()
    }

    pub async fn ready(&mut self) -> Result<()> {
        const PATIENCE: Duration = Duration::from_secs(60);
        match self.next(Instant::now() + PATIENCE).await? {
            Some(Line::Ready) => Ok(()),
            Some(other) => bail!("{}: {other:?} instead of ready", self.what),
            None => bail!(
                "{}: it ended before it was ready{}",
                self.what,
                self.words()
            ),
        }
    }

    /// The line that starts the clock.
    pub async fn go(&mut self) -> Result<()> {
        let stdin = self.stdin.as_mut().context("stdin is closed")?;
        stdin.write_all(b"go\n").await?;
        Ok(stdin.flush().await?)
    }

    /// Ends its stdin: a worker shall stop in good order.
    pub fn close(&mut self) {
        self.stdin = None;
    }

    /// Waits for its end and answers the lines that were left.
    pub async fn end(&mut self, patience: Duration) -> Result<Vec<Line>> {
        let until = Instant::now() + patience;
        let mut lines = Vec::new();
        while let Some(line) = self.next(until).await? {
            lines.push(line);
        }
        let Ok(status) = timeout_at(until, self.process.wait()).await else {
            bail!("{}: it did not end in time{}", self.what, self.words());
        };
        self.ended = true;
        let status = status?;
        if !status.success() {
            bail!("{}: {status}{}", self.what, self.words());
        }
        Ok(lines)
    }

    pub fn freeze(&self) -> Result<()> {
        Ok(killpg(self.group(), Signal::SIGSTOP)?)
    }

    pub fn wake(&self) -> Result<()> {
        Ok(killpg(self.group(), Signal::SIGCONT)?)
    }

    pub async fn kill(&mut self) -> Result<()> {
        killpg(self.group(), Signal::SIGKILL)?;
        self.process.wait().await?;
        self.ended = true;
        Ok(())
    }

    fn group(&self) -> Pid {
        Pid::from_raw(self.pid.cast_signed())
    }

    /// The end of what it said on stderr, to be hung on a sentence.
    pub fn words(&self) -> String {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        match last_words(said.iter().map(String::as_str)) {
            words if words.is_empty() => words,
            words => format!(": {words}"),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.ended {
            // The whole group, frozen or not: also what the adapter has started.
            let _ = killpg(self.group(), Signal::SIGKILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Line;

    #[test]
    fn every_line_of_the_contract_can_be_read_and_nothing_else() {
        let read = |text: &str| serde_json::from_str::<Line>(text).ok();
        assert!(matches!(read(r#"{"event":"ready"}"#), Some(Line::Ready)));
        assert!(matches!(
            read(r#"{"event":"handled"}"#),
            Some(Line::Handled)
        ));
        assert!(matches!(
            read(r#"{"event":"start","n":17,"at":5}"#),
            Some(Line::Start { n: 17, at: 5 })
        ));
        assert!(matches!(
            read(r#"{"event":"committed","n":1,"at":5}"#),
            Some(Line::Committed { n: 1, .. })
        ));
        assert!(matches!(
            read(r#"{"event":"end","handled":3}"#),
            Some(Line::End {
                handled: Some(3),
                transactions: None,
                ..
            })
        ));
        assert!(read(r#"{"event":"started","n":17}"#).is_none());
        assert!(read("INFO ready").is_none());
    }
}
