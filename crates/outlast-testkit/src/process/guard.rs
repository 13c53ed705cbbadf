//! Kills our children when we ourselves are killed.
//!
//! A shell of its own reads the process groups of our children from a pipe. When we die, even of SIGKILL, the kernel
//! closes the pipe, and the shell kills what is still on its list.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};

const SCRIPT: &str = r#"
trap '' HUP INT TERM
while read -r what group; do
    case $what in
        add) groups="$groups $group" ;;
        forget)
            kept=
            for one in $groups; do [ "$one" = "$group" ] || kept="$kept $one"; done
            groups=$kept ;;
    esac
done
for group in $groups; do kill -s KILL -- "-$group"; done
"#;

#[expect(clippy::zombie_processes, reason = "it ends after us")]
static GUARD: LazyLock<Mutex<ChildStdin>> = LazyLock::new(|| {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", SCRIPT, "guard"]).process_group(0);
    shell
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut shell = shell.spawn().expect("a POSIX system has /bin/sh");
    Mutex::new(shell.stdin.take().expect("stdin was piped above"))
});

pub(super) fn add(group: i32) {
    tell(&format!("add {group}\n"));
}

/// Before the group is reaped, so that nobody else can have its number yet.
pub(super) fn forget(group: i32) {
    tell(&format!("forget {group}\n"));
}

fn tell(line: &str) {
    let mut guard = GUARD.lock().unwrap_or_else(PoisonError::into_inner);
    guard
        .write_all(line.as_bytes())
        .expect("the guard reads as long as we live");
}
