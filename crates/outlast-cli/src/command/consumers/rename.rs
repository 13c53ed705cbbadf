//! `outlast consumers rename`.

use clap::Args;
use serde::Serialize;
use tokio_postgres::types::Type;

use crate::{args::Global, database::Database, exit::Exit, out::text, problem::Answer};

#[derive(Debug, Args)]
pub(crate) struct Rename {
    /// Its name now
    old: String,
    /// Its name from now on
    new: String,
}

#[derive(Serialize)]
struct Renamed<'a> {
    was: &'a str,
    name: &'a str,
}

impl Rename {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        let out = global.out();
        let database = Database::to_write(global).await?;
        let (was, name) = (&self.old, &self.new);
        let sql = include_str!("../../../sql/consumer/rename.sql");
        let what = format!("rename consumer {}", text::line(was));
        let given = [(was as _, Type::TEXT), (name as _, Type::TEXT)];
        database.rows(what, sql, &given).await?;
        if out.json {
            out.object(&Renamed { was, name })?;
        }
        let (was, name) = (text::line(was), text::line(name));
        out.say(&format!("{was} is called {name} now"))?;
        out.say(&format!(
            "workers that run go on; one that starts and still has {was} is refused"
        ))?;
        Ok(Exit::Done)
    }
}
