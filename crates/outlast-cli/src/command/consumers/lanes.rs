//! `outlast consumers lanes`: another number of lanes, order kept, while workers run.

use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tokio::time::sleep;
use tokio_postgres::types::Type;

use crate::{args::Global, database::Database, exit::Exit, out::text, problem::Answer};

#[derive(Debug, Args)]
pub(crate) struct Lanes {
    /// The consumer's name
    name: String,
    /// How many lanes, 1 to 1024
    lanes: i32,
    /// Begin the change and do not wait for its end
    #[arg(long)]
    no_wait: bool,
}

#[derive(Serialize)]
struct Changed<'a> {
    name: &'a str,
    lanes: i32,
    /// Not yet: what it will be.
    wanted: Option<i32>,
}

impl Lanes {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        let out = global.out();
        let database = Database::to_write(global).await?;
        let name = &self.name;
        let what = format!("change the lanes of consumer {}", text::line(name));
        let sql = include_str!("../../../sql/consumer/change_lanes.sql");
        let given = [(name as _, Type::TEXT), (&self.lanes as _, Type::INT4)];
        database.rows(&what, sql, &given).await?;
        let sql = include_str!("../../../sql/consumer/lanes_standing.sql");
        let mut told = None;
        loop {
            let rows = database.rows(&what, sql, &[(name, Type::TEXT)]).await?;
            let (lanes, wanted): (i32, Option<i32>) = (rows[0].get("lanes"), rows[0].get("wanted"));
            let there: i32 = rows[0].get("there");
            if wanted.is_none() || self.no_wait {
                if out.json {
                    out.object(&Changed {
                        name,
                        lanes,
                        wanted,
                    })?;
                }
                out.say(&match wanted {
                    None => format!("{} has {lanes} lanes", text::line(name)),
                    Some(wanted) => format!(
                        "{} will have {wanted} lanes when all {lanes} are at the common place: {there} are",
                        text::line(name)
                    ),
                })?;
                return Ok(Exit::Done);
            }
            if told != Some(there) {
                out.say(&format!(
                    "{there} of {lanes} lanes are at the common place; a worker has to bring the others there"
                ))?;
                told = Some(there);
            }
            sleep(Duration::from_millis(200)).await;
        }
    }
}
