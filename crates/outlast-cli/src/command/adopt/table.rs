//! The table, as its catalog has it.

use tokio_postgres::types::Type;

use crate::{
    database::Database,
    exit::Exit,
    out::text,
    problem::{Answer, Problem},
};

#[derive(Debug)]
pub(super) struct Table {
    /// Its schema and name, quoted where they must be.
    pub(super) sql: String,
    /// Its name alone.
    pub(super) name: String,
    pub(super) is_table: bool,
    /// How many rows it has, as far as the server knows without counting.
    pub(super) rows: Option<f64>,
    /// Row-level security hides some of it from this login.
    pub(super) hidden: bool,
    pub(super) reads: bool,
    /// This login may lock and delete its rows.
    pub(super) takes: bool,
    pub(super) enqueues: bool,
    pub(super) columns: Vec<String>,
    /// The columns of its primary key, quoted where they must be.
    pub(super) key: Vec<String>,
    /// The tables whose rows point to it.
    pub(super) referrers: Vec<String>,
}

impl Table {
    pub(super) async fn find(database: &Database, name: &str) -> Answer<Self> {
        let shown = text::line(name);
        let what = format!("find the table {shown}");
        let sql = include_str!("../../../sql/adopt/table.sql");
        let rows = database.rows(&*what, sql, &[(&name, Type::TEXT)]).await?;
        let Some(row) = rows.first() else {
            let next = "give it with its schema, as billing.old_job, or a runner with --from; capitals in quotes";
            return Err(Problem::new(Exit::Usage, what, "there is no such table").next(next));
        };
        let rows: f64 = row.get("rows");
        Ok(Self {
            sql: row.get("table"),
            name: row.get("name"),
            is_table: matches!(row.get("kind"), "r" | "p"),
            rows: (rows >= 0.0).then_some(rows),
            hidden: row.get("hidden"),
            reads: row.get("reads"),
            takes: row.get("takes"),
            enqueues: row.get("enqueues"),
            columns: row.get("columns"),
            key: row.get("key"),
            referrers: row.get("referrers"),
        })
    }

    /// What a row is known by in every statement: the table's name and its primary key, such as `old_job/7`.
    pub(super) fn key_text(&self) -> Option<String> {
        if self.key.is_empty() {
            return None;
        }
        let columns = self.key.join(" || '/' || ");
        let name = self.name.replace('\'', "''");
        Some(format!("'{name}/' || {columns}"))
    }
}
