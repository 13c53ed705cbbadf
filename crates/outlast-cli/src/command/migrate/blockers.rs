//! Says who stands in the way while a step waits for its locks.

use std::time::Duration;

use outlast_postgres::connect;
use tokio::task::JoinHandle;
use tokio_postgres::types::Type;

use crate::{
    args::Global,
    database::{Database, target},
    out::{complain, text},
    problem::Answer,
};

/// Waiting shorter than this is not worth a word.
const PATIENCE: Duration = Duration::from_secs(3);

/// Ends when it is dropped.
pub(super) struct Watch(JoinHandle<()>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Looks at the session of `database` from a second connection, every few seconds.
pub(super) async fn watch(database: &Database, global: &Global) -> Answer<Watch> {
    let rows = database
        .rows("ask for the session", "select pg_backend_pid()", &[])
        .await?;
    let pid: i32 = rows.first().map_or(0, |row| row.get(0));
    let target = target(global)?;
    Ok(Watch(tokio::spawn(async move {
        loop {
            tokio::time::sleep(PATIENCE).await;
            // It is a courtesy: what goes wrong here is not worth a word.
            let Ok((client, _driver)) = connect::connect(&target).await else {
                continue;
            };
            let sql = include_str!("../../../sql/migrate/blockers.sql");
            let rows = client
                .query_typed(sql, &[(&pid, Type::INT4)])
                .await
                .unwrap_or_default();
            for row in rows {
                let (pid, seconds) = (row.get::<_, i32>("pid"), row.get::<_, i64>("seconds"));
                let [name, role, state] =
                    ["name", "role", "state"].map(|column| text::line(row.get(column)));
                complain(&format!(
                    "waiting for a lock behind session {pid} ({name}, role {role}, {state}, since {seconds} s); \
                     it ends with: select pg_terminate_backend({pid})\n"
                ));
            }
        }
    })))
}
