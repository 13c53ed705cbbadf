//! Real child processes: started, watched line by line, killed, frozen, and never left behind.

mod guard;

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{env, fmt, thread};

use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};
use tokio::sync::watch;
use tokio::time::timeout;

pub use rustix::process::Signal;

/// A child in a process group of its own. The whole group is killed when the child ends, when this is dropped, and when
/// we ourselves die.
pub struct Process {
    name: String,
    pid: Pid,
    output: watch::Receiver<Vec<String>>,
    /// How many lines [`line`](Self::line) has passed.
    passed: Mutex<usize>,
    exit: watch::Receiver<Option<ExitStatus>>,
    /// True as long as the pid is certainly the child's. Signals are sent under this lock.
    unreaped: Arc<Mutex<bool>>,
}

impl Process {
    /// Starts it with an empty stdin; captures stdout and stderr, line by line, in one list.
    ///
    /// # Errors
    /// The system's, such as a program that does not exist.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        let name = format!("{command:?}");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let mut child = command.spawn()?;
        let pid = Pid::from_child(&child);
        guard::add(pid.as_raw_nonzero().get());
        let (lines, output) = watch::channel(Vec::new());
        let lines = Arc::new(lines);
        read(child.stdout.take(), Arc::clone(&lines));
        read(child.stderr.take(), lines);
        let unreaped = Arc::new(Mutex::new(true));
        let exit = reap(child, pid, Arc::clone(&unreaped));
        Ok(Self {
            name,
            pid,
            output,
            passed: Mutex::new(0),
            exit,
            unreaped,
        })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Sends a signal to the process alone. One that has ended gets none.
    pub fn signal(&self, signal: Signal) {
        if *lock(&self.unreaped) {
            kill_process(self.pid, signal).expect("our own child may be signalled");
        }
    }

    /// SIGKILL.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// SIGTERM.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// SIGSTOP: it stands still until [`thaw`](Self::thaw), with its connections open. It does when this returns, not a moment
    /// later.
    pub fn freeze(&self) {
        let unreaped = lock(&self.unreaped);
        if *unreaped {
            kill_process(self.pid, Signal::STOP).expect("our own child may be signalled");
            let stopped = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while let Err(Errno::INTR) = waitid(WaitId::Pid(self.pid), stopped) {}
        }
    }

    /// SIGCONT.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Waits for a line that contains `text`, and gives it. Goes on after the line it gave last, so that a second call
    /// waits for a second line.
    ///
    /// # Panics
    /// With all of the output, if the line does not come in time or the output ends.
    pub async fn line(&self, text: &str, deadline: Duration) -> String {
        let mut output = self.output.clone();
        let seen = output.wait_for(|lines| self.next(lines, text).is_some());
        let Ok(Ok(lines)) = timeout(deadline, seen).await else {
            panic!("waited {deadline:?} for the line {text:?} of {self:?}");
        };
        let at = self.next(&lines, text).expect("wait_for has just seen it");
        *lock(&self.passed) = at + 1;
        lines[at].clone()
    }

    /// How it ended, if it has.
    pub fn ended(&self) -> Option<ExitStatus> {
        *self.exit.borrow()
    }

    /// All lines so far, of stdout and stderr, as they came.
    pub fn lines(&self) -> Vec<String> {
        self.output.borrow().clone()
    }

    /// Waits until it has ended.
    ///
    /// # Panics
    /// With all of the output, if it still runs after the deadline.
    pub async fn exit(&self, deadline: Duration) -> ExitStatus {
        let mut exit = self.exit.clone();
        let ended = timeout(deadline, exit.wait_for(Option::is_some)).await;
        let Ok(Ok(status)) = ended else {
            panic!("waited {deadline:?} for the end of {self:?}");
        };
        status.expect("wait_for has just seen it")
    }

    /// All lines that it has ever said: waits until both of its streams have ended, which are read a moment behind it.
    ///
    /// # Panics
    /// With the output so far, if one is still open after the deadline.
    pub async fn all_lines(&self, deadline: Duration) -> Vec<String> {
        let mut output = self.output.clone();
        // Whoever reads a stream holds the other end of this, until the stream has ended.
        let ended = timeout(deadline, async { while output.changed().await.is_ok() {} }).await;
        assert!(
            ended.is_ok(),
            "waited {deadline:?} for the last line of {self:?}"
        );
        self.lines()
    }

    fn next(&self, lines: &[String], text: &str) -> Option<usize> {
        let passed = *lock(&self.passed);
        let found = lines
            .iter()
            .skip(passed)
            .position(|line| line.contains(text))?;
        Some(passed + found)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Its children too. After its end there is nothing to do: `reap` has done the same.
        if *lock(&self.unreaped) {
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self
            .exit
            .borrow()
            .map_or("running".to_owned(), |status| status.to_string());
        write!(
            f,
            "{} (process {}, {state}), output:\n{}",
            self.name,
            self.pid(),
            self.lines().join("\n")
        )
    }
}

/// The path of a program of this workspace, built if need be, in the profile of the running program.
///
/// # Panics
/// If it cannot be built.
pub fn program(package: &str, name: &str) -> PathBuf {
    let me = env::current_exe().expect("a running program has a path");
    let mut folder = me.parent().expect("a program is in a folder");
    if folder.ends_with("deps") || folder.ends_with("examples") {
        folder = folder
            .parent()
            .expect("cargo puts deps into the profile's folder");
    }
    let program = folder.join(name);
    if !program.exists() {
        let mut build = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
        build.args(["build", "--quiet", "--package", package, "--bin", name]);
        // What a cargo around us has set for us makes this one build dependencies once more.
        for (name, _) in env::vars_os() {
            let name = name.to_string_lossy();
            if [
                "CARGO_PKG_",
                "CARGO_MANIFEST_",
                "CARGO_CRATE_",
                "CARGO_BIN_",
            ]
            .iter()
            .any(|start| name.starts_with(start))
            {
                build.env_remove(name.as_ref());
            }
        }
        if folder.ends_with("release") {
            build.arg("--release");
        }
        let built = build.status().expect("cargo runs");
        assert!(
            built.success() && program.exists(),
            "{build:?} did not make {}",
            program.display()
        );
    }
    program
}

/// Reads lines until the stream ends. A thread, so that a process can be shared by tests with runtimes of their own.
fn read(stream: Option<impl Read + Send + 'static>, lines: Arc<watch::Sender<Vec<String>>>) {
    let mut stream = BufReader::new(stream.expect("spawn has just piped it"));
    thread::spawn(move || {
        let mut line = Vec::new();
        while stream
            .read_until(b'\n', &mut line)
            .is_ok_and(|read| read > 0)
        {
            let text = String::from_utf8_lossy(line.trim_ascii_end()).into_owned();
            lines.send_modify(|lines| lines.push(text));
            line.clear();
        }
    });
}

fn reap(
    mut child: Child,
    pid: Pid,
    unreaped: Arc<Mutex<bool>>,
) -> watch::Receiver<Option<ExitStatus>> {
    let (tell, exit) = watch::channel(None);
    thread::spawn(move || {
        // Without reaping: until then nobody else can get the number.
        let gently = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while let Err(Errno::INTR) = waitid(WaitId::Pid(pid), gently) {}
        let mut unreaped = lock(&unreaped);
        // What is left of its group, while the group's number is certainly still its own.
        let _ = kill_process_group(pid, Signal::KILL);
        guard::forget(pid.as_raw_nonzero().get());
        let status = child.wait().expect("waitid has just seen its end");
        *unreaped = false;
        drop(unreaped);
        tell.send_replace(Some(status));
    });
    exit
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
