//! One pass of maintenance: fold what was completed long ago, empty the leaves of the rings that nobody needs, forget keys, move out of
//! a leaf what is in the way of emptying it.
//!
//! Every step is a transaction of its own with a deadline, and looks again at what it is about to remove. Two passes at
//! once do no harm; the engine elects one process so that they are not wasted.

use std::time::{Duration, Instant};

use tokio_postgres::{
    Client, IsolationLevel, Row, Transaction,
    error::SqlState,
    types::{ToSql, Type},
};

use crate::{Error, schema::Schema};

/// How long the server may work on one step; the longest is a range of 8,192 completions or one TRUNCATE.
const STEP: Duration = Duration::from_secs(20);

/// How much one pass does at most.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Ranges of up to 8,192 log ids that are folded, over all consumers.
    pub ranges: usize,
    /// Rows that are deleted or moved a statement: keys, bits whose leaf is gone, completions in the way of a sweep.
    pub rows: i32,
    /// Such statements, of each kind.
    pub deletes: usize,
    /// How long a leaf may be locked while it is emptied: claims wait for it. What takes longer is taken back and tried
    /// again; on a slow disk nothing is emptied then, and a person may allow more.
    pub hold: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            ranges: 64,
            rows: 2000,
            deletes: 20,
            hold: Duration::from_millis(60),
        }
    }
}

/// Something that a pass has done, committed when it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// The settings contradict each other: nothing is removed until they do not.
    Contradiction(Vec<String>),
    /// Completions of one consumer became bits.
    Folded {
        /// Its name.
        consumer: String,
        /// The first log id of the range.
        first: i64,
        /// The last one.
        last: i64,
        /// How many completions are bits now.
        completed: i32,
        /// How many events of the range keep a row of their own.
        kept: i32,
    },
    /// A leaf of a ring was emptied.
    Emptied {
        /// `log` or `inbox`.
        ring: String,
        /// Its number.
        slot: i16,
        /// `empty`, or `sweep`: only what is proved by bits is gone.
        how: String,
    },
    /// A leaf could be emptied and was not, this time.
    Kept {
        /// `log` or `inbox`.
        ring: String,
        /// Its number.
        slot: i16,
        /// Such as `lock`.
        why: String,
    },
    /// Completions of consumers on brokers were moved out of a leaf of the inbox that is to be swept.
    Moved {
        /// How many.
        rows: i64,
    },
    /// Deduplication keys, bits whose leaf is gone, or jobs that ended long ago, were deleted.
    Forgot {
        /// `keys`, `bits` or `jobs`.
        what: &'static str,
        /// How many.
        rows: i64,
    },
}

/// Does one pass and tells each step. Answers whether there is more to do at once.
///
/// What was told is committed. If this process dies in between, the next pass goes on where it was.
///
/// # Errors
/// A step that failed ends the pass. The database is as it was before that step.
///
/// ```no_run
/// # async fn example(client: &mut tokio_postgres::Client) -> Result<(), outlast_postgres::Error> {
/// use outlast_postgres::{retention::{Bounds, pass}, schema::Schema};
/// let more = pass(client, Schema::DEFAULT, Bounds::default(), |step| println!("{step:?}")).await?;
/// # Ok(())
/// # }
/// ```
pub async fn pass(
    client: &mut Client,
    schema: Schema,
    bounds: Bounds,
    mut tell: impl FnMut(Step),
) -> Result<bool, Error> {
    let client = &mut Steps { client, schema };
    let problems = problems(client).await?;
    if !problems.is_empty() {
        tell(Step::Contradiction(problems));
        return Ok(false);
    }
    let mut more = fold(client, bounds.ranges, &mut tell).await?;
    let due = step(
        client,
        "select ring, slot, how from outlast._judge() where how is not null",
        &[],
    )
    .await?;
    for row in due {
        let (ring, slot, how): (String, i16, String) = (row.get(0), row.get(1), row.get(2));
        match empty(client, &ring, slot, &how, bounds.hold).await? {
            None => tell(Step::Emptied { ring, slot, how }),
            Some(why) => tell(Step::Kept { ring, slot, why }),
        }
    }
    for (what, sql) in [
        ("bits", "select outlast._forget($1)"),
        ("keys", "select outlast._forget_keys($1)"),
        ("jobs", "select outlast._forget_jobs($1)"),
    ] {
        let told = |rows| tell(Step::Forgot { what, rows });
        more |= in_pages(client, bounds, sql, told).await?;
    }
    let told = |rows| tell(Step::Moved { rows });
    more |= in_pages(client, bounds, "select outlast._move_out($1)", told).await?;
    Ok(more)
}

/// Where the steps of a pass are done.
struct Steps<'a> {
    client: &'a mut Client,
    schema: Schema,
}

/// What is wrong with the settings, all of it.
async fn problems(client: &mut Steps<'_>) -> Result<Vec<String>, Error> {
    let rows = step(client, "select outlast._check_settings()", &[]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Folds a range of each consumer in turn, until nothing is left or enough was done.
async fn fold(
    client: &mut Steps<'_>,
    ranges: usize,
    tell: &mut impl FnMut(Step),
) -> Result<bool, Error> {
    let rows = step(
        client,
        "select id, name from outlast._consumer order by id",
        &[],
    )
    .await?;
    let mut consumers: Vec<(i32, String)> =
        rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let mut folded = 0;
    while !consumers.is_empty() && folded < ranges {
        let mut left = Vec::new();
        for (id, name) in consumers {
            let rows = step(
                client,
                "select first, last, completed, kept from outlast._fold($1)",
                &[(&id, Type::INT4)],
            )
            .await?;
            let Some(row) = rows.first() else { continue };
            folded += 1;
            tell(Step::Folded {
                consumer: name.clone(),
                first: row.get(0),
                last: row.get(1),
                completed: row.get(2),
                kept: row.get(3),
            });
            left.push((id, name));
        }
        consumers = left;
    }
    Ok(!consumers.is_empty())
}

/// Repeats a statement that answers how many rows it has removed, until there are no more or enough was done.
async fn in_pages(
    client: &mut Steps<'_>,
    bounds: Bounds,
    sql: &'static str,
    mut tell: impl FnMut(i64),
) -> Result<bool, Error> {
    for _ in 0..bounds.deletes {
        let rows = step(client, sql, &[(&bounds.rows, Type::INT4)]).await?;
        let n: i32 = rows.first().map_or(0, |row| row.get(0));
        if n > 0 {
            tell(n.into());
        }
        if n < bounds.rows {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Empties one leaf; answers why not, if not.
///
/// Claims and emits wait for it while the leaf is locked. That is bounded: TRUNCATE by `hold`, ourselves between two
/// statements by `hold`, too. Only COMMIT cannot be bounded: it waits for one flush of the log, never for a standby, and the
/// old files are removed when the lock is gone already. So a flush is tried before, which also takes what others wrote.
async fn empty(
    steps: &mut Steps<'_>,
    ring: &str,
    slot: i16,
    how: &str,
    hold: Duration,
) -> Result<Option<String>, Error> {
    let args: [(&(dyn ToSql + Sync), Type); 3] =
        [(&ring, Type::TEXT), (&slot, Type::INT2), (&how, Type::TEXT)];
    let schema = steps.schema;
    let work = async {
        let flush = flush(steps.client).await?;
        if flush > hold / 2 {
            return Ok(Some(format!("a commit takes {} ms", flush.as_millis())));
        }
        let tx = begin(steps.client, STEP).await?;
        tx.batch_execute(&format!(
            "set local idle_in_transaction_session_timeout = {}",
            hold.as_millis().max(1)
        ))
        .await?;
        let take = schema.statement("select outlast._empty_take($1, $2, $3)");
        let taken = tx.query_typed_one(take, &args).await?;
        if let Some(why) = taken.get(0) {
            // Remembers the try.
            tx.commit().await?;
            return Ok(Some(why));
        }
        tx.batch_execute(&limit(hold)).await?;
        let now = schema.statement("select outlast._empty_now($1, $2, $3)");
        match tx.query_typed_one(now, &args).await {
            Ok(row) => {
                let answer: String = row.get(0);
                tx.commit().await?;
                Ok((answer != "emptied").then_some(answer))
            }
            Err(error) if error.code() == Some(&SqlState::QUERY_CANCELED) => {
                tx.rollback().await?;
                Ok(Some(format!("it took longer than {} ms", hold.as_millis())))
            }
            Err(error) => Err(error.into()),
        }
    };
    within("empty a leaf", work).await
}

/// How long the disk takes for a commit just now.
async fn flush(client: &mut Client) -> Result<Duration, Error> {
    let tx = begin(client, STEP).await?;
    // An id of its own and a flush, whatever this session's habit is.
    tx.batch_execute("set local synchronous_commit = local; select pg_current_xact_id()")
        .await?;
    let asked = Instant::now();
    tx.commit().await?;
    Ok(asked.elapsed())
}

/// One statement in a transaction of its own, with a deadline on the server and, a little later, one here.
async fn step(
    steps: &mut Steps<'_>,
    sql: &'static str,
    args: &[(&(dyn ToSql + Sync), Type)],
) -> Result<Vec<Row>, Error> {
    let sql = steps.schema.statement(sql);
    let work = async {
        let tx = begin(steps.client, STEP).await?;
        let rows = tx.query_typed(sql, args).await?;
        tx.commit().await?;
        Ok(rows)
    };
    within(sql, work).await
}

async fn begin(client: &mut Client, most: Duration) -> Result<Transaction<'_>, Error> {
    let tx = client
        .build_transaction()
        .isolation_level(IsolationLevel::ReadCommitted)
        .start()
        .await?;
    tx.batch_execute(&limit(most)).await?;
    Ok(tx)
}

fn limit(most: Duration) -> String {
    format!("set local statement_timeout = {}", most.as_millis().max(1))
}

async fn within<T>(what: &str, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(STEP + Duration::from_secs(5), work)
        .await
        .unwrap_or_else(|_| {
            Err(Error::Stalled {
                what: what.to_owned(),
                after: STEP,
            })
        })
}
