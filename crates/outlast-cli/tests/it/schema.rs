//! The schema, as pg_dump sees it; and the guard of the committed one.

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use outlast_postgres::cluster::Installation;
use outlast_testkit::pg::Database;

use crate::database;

/// Regenerates the committed file.
const UPDATE: &str = "OUTLAST_UPDATE_SCHEMA";

fn tool(name: &str) -> Command {
    let installation = Installation::find().expect("PostgreSQL is there: the tests run on it");
    Command::new(installation.program(name))
}

fn output(mut command: Command, stdin: &[u8]) -> String {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    child
        .stdin
        .take()
        .expect("stdin is piped")
        .write_all(stdin)
        .expect("it reads its input");
    let output = child.wait_with_output().expect("it ends");
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("it prints UTF-8")
}

/// psql, which ends at the first error.
pub(crate) fn psql(database: &Database, args: &[&str], stdin: &[u8]) -> String {
    let mut command = tool("psql");
    command
        .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", database.url()])
        .args(args);
    output(command, stdin)
}

/// Everything in the schema, and which migrations and functions it says it has.
pub(crate) fn dump(database: &Database) -> String {
    let has = "select version, name, breaking from outlast._migration order by 1;
               select digest from outlast._functions";
    structure(database) + &psql(database, &["-At"], has.as_bytes())
}

fn structure(database: &Database) -> String {
    let mut command = tool("pg_dump");
    command.args([
        "--schema-only",
        "--no-owner",
        "--no-privileges",
        "-d",
        database.url(),
    ]);
    let dump = output(command, b"");
    // Newer releases guard their script with a random word; older ones say their versions.
    let text = dump
        .lines()
        .filter(|line| !line.starts_with("\\") && !line.starts_with("-- Dumped "));
    text.collect::<Vec<_>>().join("\n")
}

/// What a reader wants to see of a dump: tables, views, and what anybody may call. The bodies of functions and those for
/// our own use are files already; one leaf of each ring stands for all sixteen.
fn outline(dump: &str) -> String {
    let mut out = String::new();
    let mut section: Vec<&str> = Vec::new();
    let mut keep = false;
    for line in dump.lines() {
        if let Some(about) = line.strip_prefix("-- Name: ") {
            flush(&mut section, keep, &mut out);
            let is_private_function = about.starts_with('_') && about.contains("Type: FUNCTION");
            keep = !is_other_leaf(about)
                && !is_private_function
                && !about.contains("Type: EXTENSION")
                && about.contains("Schema: outlast;");
        }
        section.push(line);
    }
    flush(&mut section, keep, &mut out);
    out
}

fn is_other_leaf(about: &str) -> bool {
    let name = about.split([';', ' ']).next().unwrap_or_default();
    let digits = |rest: &str| {
        rest.split('_')
            .next()
            .is_some_and(|n| n.parse::<u8>().is_ok_and(|n| n > 0))
    };
    ["_event_", "_processed_event_"]
        .iter()
        .any(|ring| name.strip_prefix(ring).is_some_and(digits))
}

fn flush(section: &mut Vec<&str>, keep: bool, out: &mut String) {
    // The quote that ends the body, while in one.
    let mut body: Option<String> = None;
    let mut lines = Vec::new();
    for line in section.drain(..).filter(|_| keep) {
        if let Some(quote) = &body {
            if line.contains(quote.as_str()) {
                body = None;
            }
        } else if let Some(quoted) = line.trim_start().strip_prefix("AS $") {
            let quote = format!("${}$", quoted.split('$').next().unwrap_or_default());
            body = Some(quote).filter(|quote| line.matches(quote.as_str()).count() < 2);
            lines.push("    AS ..;");
        } else if !line.is_empty() && !line.starts_with("--") && !line.starts_with("SET ") {
            lines.push(line);
        }
    }
    if !lines.is_empty() {
        out.push_str(&lines.join("\n"));
        out.push_str("\n\n");
    }
}

#[tokio::test]
async fn the_committed_schema_is_the_one_that_migrations_make() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../outlast-postgres/schema.sql");
    let (database, _client) = database().await;
    let installation = Installation::find().expect("PostgreSQL is there: the tests run on it");
    let header = format!(
        "-- What the migrations make: tables, views, the signatures of public functions; one leaf of each ring for all.\n\
         -- Written by a test: {UPDATE}=1 ./run test -p outlast-cli\n\
         -- PostgreSQL {}\n\n",
        installation.major()
    );
    let made = header.clone() + &outline(&structure(&database));
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&file, &made).expect("the file can be written");
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    if !committed.is_empty() && !committed.starts_with(&header) {
        eprintln!("skipped: another major version of PostgreSQL writes its dump in other words");
        return;
    }
    assert!(
        committed == made,
        "{} is not what the migrations make: {UPDATE}=1 writes it anew",
        file.display()
    );
}
