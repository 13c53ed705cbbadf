//! What stands in the rows: what enqueue would refuse, keys, names, and how long it takes.

use std::{collections::BTreeSet, time::Instant};

use outlast_core::broker::Severity::{self, Bad, Good, Unverified, Warning};
use tokio_postgres::{Client, Row, types::Type};

use super::{mapping::Mapping, statement, table::Table};
use crate::{
    command::doctor::found::Found,
    database::{Database, Given},
    exit::Exit,
    out::text,
    problem::{Answer, Problem, Tried},
};

/// Longer no question to the table takes: it is somebody's production.
const PATIENCE: &str = "set local statement_timeout = '60s'";
/// So many rows are moved and rolled back by `--rehearse`.
const REHEARSED: u32 = 1000;

/// What is looked at, and what was found so far.
pub(super) struct Look<'a> {
    /// How many rows at most.
    pub(super) scan: u32,
    /// Whether some may be moved, and that rolled back.
    pub(super) rehearses: bool,
    pub(super) database: &'a mut Database,
    pub(super) table: &'a Table,
    pub(super) mapping: &'a Mapping,
    pub(super) served: Option<BTreeSet<String>>,
    /// How many rows wait, as far as that was seen.
    pub(super) waiting: f64,
}

fn of_row(
    severity: Severity,
    about: &str,
    found: impl Into<String>,
    mend: impl Into<String>,
) -> Found {
    Found::new(severity, "rows", about, found, mend)
}

impl Look<'_> {
    /// What stands in its rows.
    pub(super) async fn of_rows(&mut self) -> Answer<Vec<Found>> {
        let scan = i64::from(self.scan);
        let schema = self.database.schema();
        let given: [Given<'_>; 1] = [(&scan, Type::INT8)];
        let (table, mapping) = (self.table, self.mapping);
        let client = self.database.client_mut();
        let sql = statement::looked_at(table);
        let looked: i64 = read(client, &sql, &given).await?[0].get(0);
        let rows = match read(client, &statement::look(table, mapping, schema), &given).await {
            Ok(rows) => rows,
            Err(problem) if problem.exit == Exit::Connect => return Err(problem),
            Err(problem) => {
                let mend = "in fewer rows it may be found: --scan; or an expression does not fit every row";
                return Ok(vec![of_row(Unverified, "rows", problem.message(), mend)]);
            }
        };
        let counted = Counted(&rows);
        let mut all = Vec::new();
        all.push(match looked < scan {
            true => of_row(Good, "looked at", format!("all {looked}"), ""),
            false => {
                let about = table
                    .rows
                    .map_or_else(String::new, |rows| format!(" of about {rows:.0}"));
                of_row(
                    Unverified,
                    "looked at",
                    format!("{looked}{about}"),
                    "the others may hold anything: --scan ROWS",
                )
            }
        });
        let waiting = counted.of("waiting");
        self.waiting = waiting as f64;
        if let Some(rows) = table.rows.filter(|_| looked == scan) {
            self.waiting *= (rows / looked as f64).max(1.0);
        }
        all.push(match waiting {
            0 => of_row(
                Good,
                "waiting",
                "none: nothing is to be moved, and the old runner has nothing to do",
                "",
            ),
            n => of_row(Good, "waiting", n.to_string(), ""),
        });
        if let Some((n, such)) = counted.some("running") {
            let mend = "they stay, and end there: run the statement again when it has";
            all.push(of_row(
                Warning,
                "running",
                format!("{n} in the old runner's hands{such}"),
                mend,
            ));
        }
        for (what, mend) in REFUSED {
            if let Some((n, such)) = counted.some(what) {
                all.push(of_row(Bad, what, format!("{n}{such}"), *mend));
            }
        }
        self.of_keys(&counted, &mut all).await?;
        self.of_names(&rows, &mut all);
        Ok(all)
    }

    async fn of_keys(&mut self, counted: &Counted<'_>, all: &mut Vec<Found>) -> Answer<()> {
        if counted.of("no key") > 0 {
            let mend = "what is enqueued twice without a key runs twice: leave --key out for the primary key, or coalesce it with that";
            all.push(of_row(
                Bad,
                "without a key",
                counted.of("no key").to_string(),
                mend,
            ));
        }
        if let Some((n, such)) = counted.some("same key") {
            let mend = "they are one job: the first moves, the others stay in the table, and there_already counts them";
            all.push(of_row(
                Warning,
                "the same key and content",
                format!("{n} more{such}"),
                mend,
            ));
        }
        if let Some((n, such)) = counted.some("other content") {
            let mend = "only the first of each would move, the others be conflicts: put into the key what tells them apart";
            all.push(of_row(
                Bad,
                "the same key, other content",
                format!("{n} keys{such}"),
                mend,
            ));
        }
        let scan = i64::from(self.scan);
        let sql = statement::there_already(self.table, self.mapping, self.database.schema());
        match read(self.database.client_mut(), &sql, &[(&scan, Type::INT8)]).await {
            Ok(rows) if rows[0].get::<_, i64>(0) > 0 => {
                let (n, key) = (rows[0].get::<_, i64>(0), rows[0].get::<_, &str>(1));
                let mend = "both runners would have them: they were copied, moved back, or the key is another job's. They stay in the table; \
                            see each with `outlast jobs ls --key KEY`, then delete the row or give another key";
                all.push(of_row(
                    Bad,
                    "there already",
                    format!(
                        "{n} have a job under their key, such as {}",
                        text::line(key)
                    ),
                    mend,
                ));
            }
            Ok(_) => all.push(of_row(Good, "keys", "none has a job yet", "")),
            Err(problem) if problem.exit == Exit::Connect => return Err(problem),
            Err(problem) => all.push(of_row(
                Unverified,
                "keys",
                problem.message(),
                "ask with a login that has the role of a worker",
            )),
        }
        Ok(())
    }

    fn of_names(&self, rows: &[Row], all: &mut Vec<Found>) {
        let (mut bad, mut unserved, mut good) = (Vec::new(), Vec::new(), 0);
        for row in rows {
            let name = || text::line(row.get::<_, Option<&str>>("example").unwrap_or_default());
            match row.get("what") {
                "bad name" => bad.push(name()),
                "name" => {
                    good += 1;
                    if self
                        .served
                        .as_ref()
                        .is_some_and(|served| !served.contains(&name()))
                    {
                        unserved.push(name());
                    }
                }
                _ => {}
            }
        }
        if !bad.is_empty() {
            let mend = "1 to 100 of a-z 0-9 . _ / -: for instance --name \"lower(replace(COLUMN, '::', '.'))\"";
            all.push(of_row(
                Bad,
                "names",
                format!("no job can be called {}", some(&bad)),
                mend,
            ));
        }
        if !unserved.is_empty() {
            let mend = "they would wait until a worker has one: deploy it first, or map the name with --name";
            all.push(of_row(
                Bad,
                "names",
                format!("no worker has a handler for {}", some(&unserved)),
                mend,
            ));
        } else if self.served.is_none() && good > 0 {
            let mend =
                "ask your own binary, `YOURS adopt check ..`, or tell them: --served NAME,NAME";
            let names = text::count(good as i64, "name", "names");
            all.push(of_row(
                Unverified,
                "names",
                format!("{names}; this program does not know what workers have handlers for"),
                mend,
            ));
        } else if bad.is_empty() && good > 0 {
            all.push(of_row(
                Good,
                "names",
                format!(
                    "workers have handlers for {}",
                    if good == 1 { "it" } else { "all of them" }
                ),
                "",
            ));
        }
    }

    /// How long it will take, by doing some of it.
    pub(super) async fn time(&mut self) -> Answer<Found> {
        if !self.rehearses || self.waiting == 0.0 || self.table.key.is_empty() {
            let (found, mend) = match self.waiting == 0.0 {
                true => return Ok(of_row(Good, "time", "nothing to move", "")),
                false => (
                    "nobody has measured it",
                    "--rehearse moves up to 1,000 rows and rolls that back",
                ),
            };
            return Ok(of_row(Unverified, "time", found, mend));
        }
        let sql = statement::moves(self.table, self.mapping, self.database.schema(), REHEARSED);
        let client = self.database.client_mut();
        let what = "rehearse the move";
        let moved = async {
            let tx = client.transaction().await.tried(what)?;
            tx.batch_execute(PATIENCE).await.tried(what)?;
            let began = Instant::now();
            let rows = tx.query_typed(&sql, &[]).await.tried(what)?;
            let took = began.elapsed().as_secs_f64();
            tx.rollback().await.tried(what)?;
            Ok::<_, Problem>((rows[0].get::<_, i64>("moved"), took))
        };
        Ok(match moved.await {
            Ok((0, _)) => of_row(
                Warning,
                "time",
                "the rehearsal moved nothing: others have locked the rows, or their jobs are there",
                "",
            ),
            Ok((moved, took)) => {
                let all = took / moved as f64 * self.waiting;
                let found = format!(
                    "about {} for {:.0} rows: {moved} moved in {took:.2} s, and were rolled back",
                    text::duration((all.ceil() as i64).max(1)),
                    self.waiting
                );
                of_row(Good, "time", found, "")
            }
            Err(problem) if problem.exit == Exit::Connect => return Err(problem),
            Err(problem) => of_row(
                Bad,
                "rehearsal",
                problem.message(),
                "the move would end so, with nothing moved",
            ),
        })
    }
}

/// What enqueue would refuse, and then the whole statement with it.
const REFUSED: &[(&str, &str)] = &[
    ("no name", "every row needs one: --name"),
    (
        "no payload",
        "every row needs one: --payload \"coalesce(COLUMN, 'null')\"",
    ),
    (
        "too large",
        "over 256 KiB: store the content elsewhere and enqueue a reference, or leave these rows out with --waiting",
    ),
    (
        "not JSON",
        "bytes that are none, deeper than 100, or with \\u0000: mend them, or wrap them with --payload \"to_json(COLUMN::text)\"",
    ),
    ("bad key", "1 to 500 characters: --key"),
    (
        "bad tenant",
        "not null, at most 200 characters, none of them control characters: --tenant \"coalesce(COLUMN, '')\"",
    ),
    (
        "bad time",
        "no more than ten years away, and not -infinity: --at",
    ),
    (
        "bad priority",
        "-100 (soonest) to 100: --priority \"greatest(-100, least(100, COLUMN))\"",
    ),
];

/// Rows of (what, how many, an example): of each, how many, and the words for the example.
struct Counted<'a>(&'a [Row]);

impl Counted<'_> {
    fn some(&self, what: &str) -> Option<(i64, String)> {
        let row = self
            .0
            .iter()
            .find(|row| row.get::<_, Option<&str>>("what") == Some(what))?;
        let n: i64 = row.get("n");
        let example = row.get::<_, Option<&str>>("example");
        let such = example.map_or_else(String::new, |one| format!(", such as {}", text::line(one)));
        (n > 0).then_some((n, such))
    }

    fn of(&self, what: &str) -> i64 {
        self.some(what).map_or(0, |(n, _)| n)
    }
}

/// Some of them, for a sentence.
fn some(names: &[String]) -> String {
    let shown = names[..names.len().min(5)].join(", ");
    match names.len().saturating_sub(5) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Rows of one statement that can change nothing, and not take long.
pub(super) async fn read(client: &mut Client, sql: &str, given: &[Given<'_>]) -> Answer<Vec<Row>> {
    let what = "read the table";
    let tx = client
        .build_transaction()
        .read_only(true)
        .start()
        .await
        .tried(what)?;
    tx.batch_execute(PATIENCE).await.tried(what)?;
    let rows = tx.query_typed(sql, given).await.tried(what)?;
    tx.rollback().await.tried(what)?;
    Ok(rows)
}
