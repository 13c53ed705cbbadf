//! `outlast consumers remove-type`.

use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tokio::time::{Instant, sleep};
use tokio_postgres::types::Type;

use crate::{
    args::Global,
    database::Database,
    exit::Exit,
    out::text,
    problem::{Answer, Problem},
};

/// How long to wait for what is in work.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub(crate) struct RemoveType {
    /// The consumer's name
    name: String,
    /// The event type or pattern, as `consumers show` lists it
    #[arg(value_name = "TYPE")]
    entry: String,
    /// Why, for the audit and for the events that are skipped
    #[arg(long)]
    reason: String,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

#[derive(Serialize)]
struct Removed<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    entry: &'a str,
    skipped: i64,
}

impl RemoveType {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        let out = global.out();
        let database = Database::to_write(global).await?;
        let (name, entry) = (&self.name, &self.entry);
        let (shown, of) = (text::line(entry), text::line(name));
        let what = format!("remove type {shown} from consumer {of}");
        let sql = include_str!("../../../sql/consumer/parked_of_type.sql");
        let given = [(name as _, Type::TEXT), (entry as _, Type::TEXT)];
        let rows = database.rows(&what, sql, &given).await?;
        let skipped: i64 = rows[0].get(0);
        let parked = text::count(skipped, "parked event", "parked events");
        if !self.yes && !out.asks(&format!("take {shown} from {of} and skip {parked} of it?"))? {
            let next = "nothing was changed; add --yes to do it without being asked";
            return Err(Problem::new(Exit::Usage, what, "nobody said yes").next(next));
        }
        let sql = include_str!("../../../sql/consumer/remove_type.sql");
        let given = [
            (name as _, Type::TEXT),
            (entry as _, Type::TEXT),
            (&self.reason as _, Type::TEXT),
        ];
        let end = Instant::now() + PATIENCE;
        loop {
            let busy: i32 = database.rows(&what, sql, &given).await?[0].get("busy");
            if busy == 0 {
                break;
            }
            if Instant::now() >= end {
                let why = format!(
                    "{} of it are in work all the time",
                    text::count(busy, "event", "events")
                );
                let next = "nothing was changed; pause the consumer, and try again";
                return Err(Problem::new(Exit::Failed, what, why).next(next));
            }
            sleep(Duration::from_millis(200)).await;
        }
        if out.json {
            out.object(&Removed {
                name,
                entry,
                skipped,
            })?;
        }
        out.say(&format!("{of} takes no {shown} any more; {parked} skipped"))?;
        Ok(Exit::Done)
    }
}
