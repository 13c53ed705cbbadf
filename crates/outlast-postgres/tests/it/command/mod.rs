//! Commands: nothing is sent twice blindly, nothing that a provider said is lost, and what nobody knows is called unknown.

mod accept;
mod account;
mod exclusive;
mod life;
mod random;
mod reported;
mod resolve;
mod restore;
mod settle;
mod table;
mod unknown;

use tokio_postgres::{Client, Error};
use uuid::Uuid;

use crate::house::House;
use crate::sql;

/// One database of commands, one client.
pub(crate) struct Desk {
    pub(crate) house: House,
    pub(crate) client: Client,
}

/// A command in somebody's hand.
#[derive(Clone, Debug)]
pub(crate) struct Try {
    pub(crate) token: Uuid,
    pub(crate) id: Uuid,
    pub(crate) key: String,
    /// s: send, l: look up, p: poll.
    pub(crate) next: char,
    pub(crate) provider_key: String,
}

/// What whoever sends says about the provider.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Contract {
    pub(crate) resend_ms: Option<i64>,
    pub(crate) looks: bool,
    pub(crate) replays: bool,
}

/// Honours its key for a day.
pub(crate) const KEYED: Contract = Contract {
    resend_ms: Some(86_400_000),
    looks: false,
    replays: false,
};
/// Can be asked.
pub(crate) const LOOKS: Contract = Contract {
    resend_ms: None,
    looks: true,
    replays: false,
};
/// Neither.
pub(crate) const KEYLESS: Contract = Contract {
    resend_ms: None,
    looks: false,
    replays: false,
};

impl Desk {
    pub(crate) async fn new() -> Self {
        let house = House::new().await;
        let client = house.connect().await;
        Self { house, client }
    }

    /// Accepts `pay` under this key.
    pub(crate) async fn accept(&self, key: &str) -> Uuid {
        self.accept_as("pay", key, "").await
    }

    /// Accepts one; `more`: further arguments in SQL.
    pub(crate) async fn accept_as(&self, name: &str, key: &str, more: &str) -> Uuid {
        let sql =
            format!("select id from outlast.command($1, '{{\"amount\": \"1.00\"}}', $2{more})");
        sql::one(&self.client, &sql, &[&name, &key]).await
    }

    pub(crate) async fn claim(&self, n: i32) -> Vec<Try> {
        claim(&self.client, "pay", n).await.expect("claims")
    }

    /// The one that can be claimed.
    pub(crate) async fn take(&self) -> Try {
        let mut tries = self.claim(10).await;
        assert_eq!(tries.len(), 1, "{tries:?}");
        tries.remove(0)
    }

    /// The one that can be claimed once its time has come.
    pub(crate) async fn take_later(&self) -> Try {
        self.come().await;
        self.take().await
    }

    /// The time of everything that waits for one has come.
    pub(crate) async fn come(&self) {
        sql::run(
            &self.client,
            "update outlast._job_later set due_at = outlast.clock()",
        )
        .await;
    }

    pub(crate) async fn sent(&self, one: &Try, contract: Contract) -> bool {
        sent(&self.client, one, contract)
            .await
            .expect("says that it is about to leave")
    }

    pub(crate) async fn record(&self, one: &Try, result: &str) -> String {
        record(&self.client, one, result).await.expect("records")
    }

    pub(crate) async fn fail(&self, one: &Try, class: &str) -> String {
        sql::one(
            &self.client,
            "select outlast.fail($1, $2, $3, 'because')",
            &[&one.token, &one.id, &class],
        )
        .await
    }

    /// Whoever holds a lease is gone, and somebody has noticed.
    pub(crate) async fn lose(&self) {
        let sql = "update outlast._lease set expires_at = outlast.clock() - interval '1 second' where room = 'job'";
        sql::run(&self.client, sql).await;
        sql::run(&self.client, "select outlast._reclaim_jobs(100)").await;
    }

    pub(crate) async fn state(&self, id: Uuid) -> String {
        sql::one(
            &self.client,
            "select state from outlast.command where id = $1",
            &[&id],
        )
        .await
    }

    /// Which incidents are open.
    pub(crate) async fn incidents(&self) -> Vec<String> {
        let rows = self
            .client
            .query("select kind from outlast.incident order by kind", &[])
            .await
            .expect("looks");
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// What has become of commands, as events tell it.
    pub(crate) async fn told(&self) -> Vec<String> {
        let sql = "select convert_from(payload, 'UTF8')::json ->> 'how' from outlast.event where type = 'pay.resolved' order by log_id";
        let rows = self.client.query(sql, &[]).await.expect("looks");
        rows.iter().map(|row| row.get(0)).collect()
    }

    pub(crate) async fn settle(&self, key: &str, state: &str) -> String {
        let sql = "select outlast.settle('pay', $1, $2, case $2 when 'settled' then '{\"id\": 1}' end, reason => 'told')";
        sql::one(&self.client, sql, &[&key, &state]).await
    }

    pub(crate) async fn must_be_sound(&self) {
        assert_eq!(sql::broken(&self.client).await, Vec::<String>::new());
    }
}

pub(crate) async fn claim(client: &Client, name: &str, n: i32) -> Result<Vec<Try>, Error> {
    client
        .batch_execute("select outlast._promote(1000)")
        .await?;
    let sql = "select token, id, key, next::text, provider_key from outlast._claim_jobs(array['command:' || $1::text], array[1], array[$2::int], 1000000, 15000)";
    let rows = client.query(sql, &[&name, &n]).await?;
    let one = |row: &tokio_postgres::Row| Try {
        token: row.get(0),
        id: row.get(1),
        key: row.get(2),
        next: row
            .get::<_, String>(3)
            .chars()
            .next()
            .expect("what is next"),
        provider_key: row.get(4),
    };
    Ok(rows.iter().map(one).collect())
}

pub(crate) async fn sent(client: &Client, one: &Try, contract: Contract) -> Result<bool, Error> {
    let sql = "select count(*) = 1 from outlast._sent($1, array[$2::uuid], 15000, $3, $4, $5)";
    let args: [&(dyn tokio_postgres::types::ToSql + Sync); 5] = [
        &one.token,
        &one.id,
        &contract.resend_ms,
        &contract.looks,
        &contract.replays,
    ];
    Ok(client.query_one(sql, &args).await?.get(0))
}

pub(crate) async fn record(client: &Client, one: &Try, result: &str) -> Result<String, Error> {
    let sql = "select outlast.record($1, $2, $3, case $3 when 'settled' then '{\"id\": 1}'::bytea end, 'ref', 'said so')";
    Ok(client
        .query_one(sql, &[&one.token, &one.id, &result])
        .await?
        .get(0))
}
