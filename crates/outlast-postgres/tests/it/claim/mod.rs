//! The door for other languages: only `outlast.register`, `claim`, `complete`, `fail`, `renew` and `fence`, all in text.

mod refused;
mod several;
mod worker;

use tokio_postgres::{Client, SimpleQueryMessage};

use crate::house::House;
use crate::sql;

/// What `outlast.claim` answered, as psql shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) token: String,
    pub(crate) id: String,
    pub(crate) attempt: String,
    pub(crate) payload: String,
}

/// A client of another language: the simple protocol, every value a text.
pub(crate) struct Foreign {
    pub(crate) client: Client,
}

impl Foreign {
    pub(crate) async fn new(house: &House) -> Self {
        Self {
            client: house.connect().await,
        }
    }

    pub(crate) async fn rows(&self, sql: &str) -> Vec<Vec<String>> {
        let answer = self.client.simple_query(sql).await;
        let answer = answer.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        let row = |message| match message {
            SimpleQueryMessage::Row(row) => Some(
                (0..row.len())
                    .map(|n| row.get(n).unwrap_or_default().to_owned())
                    .collect(),
            ),
            _ => None,
        };
        answer.into_iter().filter_map(row).collect()
    }

    /// The SQLSTATE with which this is refused.
    pub(crate) async fn state(&self, sql: &str) -> String {
        sql::state(self.client.simple_query(sql).await)
    }

    pub(crate) async fn emit(&self, n: usize) {
        for n in 0..n {
            self.rows(&format!("select outlast.emit('a', '{n}')")).await;
        }
    }

    pub(crate) async fn claim(&self, n: usize, more: &str) -> Vec<Row> {
        let sql = format!(
            "select token, id, attempt, convert_from(payload, 'UTF8') from outlast.claim('event', 'c', {n}{more})"
        );
        let row = |row: Vec<String>| {
            let [token, id, attempt, payload] = row.try_into().expect("four columns");
            Row {
                token,
                id,
                attempt,
                payload,
            }
        };
        self.rows(&sql).await.into_iter().map(row).collect()
    }

    pub(crate) async fn complete(&self, row: &Row) {
        self.rows(&format!(
            "select outlast.complete('{}', '{}')",
            row.token, row.id
        ))
        .await;
    }

    pub(crate) async fn fail(&self, row: &Row, class: &str) -> String {
        self.rows(&format!(
            "select outlast.fail('{}', '{}', '{class}', 'why')",
            row.token, row.id
        ))
        .await
        .remove(0)
        .remove(0)
    }

    pub(crate) async fn lapse(&self) {
        self.rows("update outlast._lease set expires_at = outlast.clock() - interval '1 second'")
            .await;
    }

    pub(crate) async fn count(&self, table: &str) -> i64 {
        sql::one(
            &self.client,
            &format!("select count(*) from outlast.{table}"),
            &[],
        )
        .await
    }
}

pub(crate) fn payloads(rows: &[Row]) -> Vec<&str> {
    rows.iter().map(|row| row.payload.as_str()).collect()
}
