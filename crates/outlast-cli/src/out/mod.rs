//! What a command prints: aligned tables and sentences for people, JSON for programs, on stdout; errors go to stderr.
//!
//! Text from the database may hold anything. Nothing of it reaches a terminal as a control character.

mod table;
pub(crate) mod text;

use std::io::{IsTerminal, Write, stdin, stdout};

use serde::Serialize;

use crate::problem::{Answer, Tried};
pub(crate) use table::Table;

/// Where and how to print.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Out {
    /// One JSON document, or one object a line, instead of text.
    pub(crate) json: bool,
    /// The columns of the terminal; none when it is not one: then nothing is shortened.
    width: Option<usize>,
}

impl Out {
    pub(crate) fn new(json: bool) -> Self {
        let width =
            || terminal_size::terminal_size().map_or(100, |(width, _)| usize::from(width.0));
        Self {
            json,
            width: stdout().is_terminal().then(width),
        }
    }

    /// Whether a person looks at it directly.
    pub(crate) fn is_terminal(self) -> bool {
        self.width.is_some()
    }

    /// A sentence for people; with `--json` nothing.
    pub(crate) fn say(self, text: &str) -> Answer<()> {
        if self.json {
            Ok(())
        } else {
            self.write(&[text.as_bytes(), b"\n"])
        }
    }

    /// One object on a line of its own.
    pub(crate) fn object(self, value: &impl Serialize) -> Answer<()> {
        let line = serde_json::to_string(value).expect("our own structs have string keys");
        self.write(&[text::plain_json(&line).as_bytes(), b"\n"])
    }

    /// One object a line.
    pub(crate) fn objects(self, values: impl IntoIterator<Item = impl Serialize>) -> Answer<()> {
        values.into_iter().try_for_each(|value| self.object(&value))
    }

    /// A table, as wide as the terminal at most.
    pub(crate) fn table(self, table: &Table) -> Answer<()> {
        self.write(&[table.render(self.width).as_bytes()])
    }

    /// Asks the person at the terminal. False without one: nobody can be asked then.
    pub(crate) fn asks(self, question: &str) -> Answer<bool> {
        if self.json || !self.is_terminal() || !stdin().is_terminal() {
            return Ok(false);
        }
        self.write(&[text::line(question).as_bytes(), b" [y/N] "])?;
        let mut answer = String::new();
        stdin().read_line(&mut answer).tried("read the answer")?;
        Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
    }

    /// Exactly these bytes.
    pub(crate) fn raw(self, bytes: &[u8]) -> Answer<()> {
        self.write(&[bytes])
    }

    fn write(self, parts: &[&[u8]]) -> Answer<()> {
        let mut stdout = stdout().lock();
        let mut all = || {
            parts.iter().try_for_each(|part| stdout.write_all(part))?;
            stdout.flush()
        };
        all().tried("write to stdout")
    }
}

/// Prints to stderr. Nobody can be told if that fails.
pub(crate) fn complain(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
