//! What statements have read, each against its bound.

use std::collections::BTreeMap;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};

use crate::house::House;
use crate::sql::{one, run};

/// What a session has read so far: index entries, and rows of sequential scans.
const READ: &str =
    "select coalesce(sum(pg_stat_get_xact_tuples_returned(c.oid)), 0)::bigint from pg_class c
    where c.relnamespace = 'outlast'::regnamespace and c.relkind in ('r', 'i')";

/// Runs a statement in a transaction of its own; its rows, and how many rows it has read for them.
pub(super) async fn measure(
    client: &Client,
    sql: &str,
    args: &[&(dyn ToSql + Sync)],
) -> (Vec<Row>, i64) {
    run(client, "begin").await;
    let before: i64 = one(client, READ, &[]).await;
    let rows = client
        .query(sql, args)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    let after: i64 = one(client, READ, &[]).await;
    run(client, "commit").await;
    (rows, after - before)
}

/// Nobody but the test decides when statistics of these tables are taken and dead rows removed.
pub(super) async fn leave_alone(client: &Client, tables: &str) {
    let sql = "select format('alter table outlast.%I set (autovacuum_enabled = off)', relname) from pg_class
        where relnamespace = 'outlast'::regnamespace and relkind = 'r' and relname ~ $1";
    for row in client.query(sql, &[&tables]).await.expect("lists tables") {
        run(client, row.get(0)).await;
    }
}

/// A database, and the most that each statement has read in it.
pub(super) struct Meter {
    pub(super) house: House,
    pub(super) client: Client,
    pub(super) most: BTreeMap<&'static str, (i64, i64)>,
}

impl Meter {
    /// `tables`: a pattern of those that nobody else may touch.
    pub(super) async fn new(house: House, tables: &str) -> Self {
        let client = house.connect().await;
        leave_alone(&client, tables).await;
        Self {
            house,
            client,
            most: BTreeMap::new(),
        }
    }

    /// Runs a statement, and takes note of how much it has read beside its bound.
    pub(super) async fn note(
        &mut self,
        what: &'static str,
        bound: i64,
        sql: &str,
        args: &[&(dyn ToSql + Sync)],
    ) -> Vec<Row> {
        let (rows, read) = measure(&self.client, sql, args).await;
        let entry = self.most.entry(what).or_insert((bound, 0));
        entry.1 = entry.1.max(read);
        rows
    }

    pub(super) fn check(&self) {
        println!("{:#?}", self.most);
        let over: Vec<_> = self
            .most
            .iter()
            .filter(|(_, (bound, read))| read > bound)
            .collect();
        assert!(
            over.is_empty(),
            "read more rows than their bound: {over:#?}"
        );
    }
}
