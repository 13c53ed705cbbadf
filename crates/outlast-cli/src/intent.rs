//! One intent from a shell: its payload from an argument or stdin, and what the database has answered to it.

use std::{ffi::OsStr, io::Read, os::unix::ffi::OsStrExt};

use outlast_postgres::Error;
use serde::Serialize;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::{
    args::Global,
    exit::Exit,
    problem::{Answer, Tried},
};

#[derive(Serialize)]
struct Accepted {
    id: Uuid,
    new: bool,
}

/// What the shell gave, as it is; - is stdin.
pub(crate) fn payload(given: &OsStr) -> Answer<Vec<u8>> {
    if given != "-" {
        return Ok(given.as_bytes().to_vec());
    }
    let mut payload = Vec::new();
    std::io::stdin()
        .lock()
        .read_to_end(&mut payload)
        .tried("read the payload from stdin")?;
    Ok(payload)
}

/// Says what became of it: `done` is the word for it, such as emitted. Another content under its key is a failure.
pub(crate) fn answered(
    global: &Global,
    (kind, done, what): (&'static str, &str, String),
    rows: &[Row],
    key: Option<&str>,
) -> Answer {
    let out = global.out();
    let row = rows.first().expect("an intent is answered by one row");
    let (id, key) = (row.get("id"), key.unwrap_or_default().to_owned());
    if row.get("conflict") {
        let first = id;
        return Err(Error::Conflict { kind, key, first }).tried(what);
    }
    if row.get("expired") {
        return Err(Error::Expired { kind, key }).tried(what);
    }
    let accepted = Accepted {
        id,
        new: row.get("new"),
    };
    if out.json {
        out.object(&accepted)?;
    } else if accepted.new {
        out.say(&format!("{done} {id}"))?;
    } else {
        out.say(&format!("{done} before, as {id}; nothing new was written"))?;
    }
    Ok(Exit::Done)
}
