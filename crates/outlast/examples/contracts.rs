//! Contracts sent for signature: the version that was approved is the one that goes, and to a provider that knows no keys and answers no
//! questions it goes once. When nobody knows whether it has, a person looks, and what he says decides.
//!
//! Needs a database to play with (`outlast dev`, and `outlast deployment set example` for it) and a provider: `cargo run -p
//! outlast-testkit --bin fake-provider -- --ledger /tmp/ledger` says where it listens. Then `DATABASE_URL=… PROVIDER=http://127.0.0.1:…
//! cargo run --example contracts --features http-provider`.

use std::error::Error;

use deadpool_postgres::{Manager, Pool as Connections};
use outlast::{
    Attempt, ClientTx, Command, Consumer, Failure, IfUnknown, Outlast, OwnedTx, Pool, Resolved,
    Sent, Settings, Start,
    http::provider::{Provider, Said},
};
// How the provider is to misbehave; no application has that.
use outlast_testkit::provider::order::{Fault, Habits};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_postgres::NoTls;
use uuid::Uuid;

/// What was approved: this version of the document, and nothing that it may become. Its digest makes sure that a version is what it was.
#[derive(Serialize, Deserialize)]
struct SendContract {
    contract: i64,
    version: i32,
    digest: String,
    to: String,
}

impl Command for SendContract {
    const NAME: &'static str = "send_contract";
    /// The provider's number of the envelope.
    type Answer = u64;

    /// A version is sent once, for ever. Another version is another instruction.
    fn key(&self) -> String {
        format!("contract/{}/version/{}", self.contract, self.version)
    }

    fn account(&self) -> Option<String> {
        Some("sign".into())
    }

    /// Versions of one contract one after the other: while nobody knows of one, the next does not go.
    fn exclusive(&self) -> Option<String> {
        Some(format!("contract/{}", self.contract))
    }
}

#[derive(Clone)]
struct App {
    sign: Provider,
    db: Connections,
}

#[derive(Deserialize)]
struct Order {
    order: u64,
}

async fn send(app: App, c: Attempt<SendContract>) -> Result<Sent<u64>, Failure> {
    // Nothing has left yet: whatever goes wrong up to here may simply be tried again.
    let db = app.db.get().await.map_err(Failure::retry)?;
    let sql = "select text from document where contract = $1 and version = $2 and digest = $3";
    let row = db
        .query_opt(sql, &[&c.contract, &c.version, &c.digest])
        .await;
    let Some(row) = row.map_err(Failure::retry)? else {
        return Err(Failure::permanent("the document is not what was approved"));
    };
    drop(db);
    let body = json!({ "reference": c.provider_key(), "account": "sign", "to": c.to,
        "contract": c.contract, "version": c.version, "text": row.get::<_, &str>("text") });
    // `?` on it: not sent is tried again, maybe sent is unknown.
    let answer = app.sign.post("orders/keyless").json(&body).send().await?;
    Ok(match answer.said()? {
        Said::Done => Sent::Settled(answer.json::<Order>()?.order),
        Said::Refused(why) => Sent::Rejected(why),
    })
}

/// The end, in one commit with the document's own state.
async fn ended(
    _: App,
    tx: &mut ClientTx,
    end: Attempt<Resolved<SendContract>>,
) -> Result<(), Failure> {
    let sql = "update document set state = $3 where contract = $1 and version = $2";
    tx.execute(
        sql,
        &[
            &end.command.contract,
            &end.command.version,
            &end.how.as_str(),
        ],
    )
    .await?;
    Ok(())
}

/// A new version of the text, approved, and the instruction to send it: one commit.
async fn approve(app: &App, contract: i64, text: &str) -> Result<(), Box<dyn Error>> {
    let mut tx = app.db.begin().await?;
    let sql = "insert into document (contract, version, text, digest, state)
         select $1, 1 + coalesce(max(version), 0), $2, encode(sha256(convert_to($2, 'UTF8')), 'hex'), 'sending'
         from document where contract = $1 returning version, digest";
    let row = tx.query_one(sql, &[&contract, &text]).await?;
    let send = SendContract {
        contract,
        version: row.get("version"),
        digest: row.get("digest"),
        to: "ann@example.org".into(),
    };
    Outlast::new().command(&mut tx, &send).await?;
    tx.commit().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL")?;
    outlast::migrate(&url).await?;
    let db = Connections::builder(Manager::new(url.parse()?, NoTls)).build()?;
    db.get().await?.batch_execute(
        "create table document (contract bigint, version int, text text not null, digest text not null, state text not null,
           primary key (contract, version))",
    ).await?;
    let app = App {
        sign: Provider::new(&std::env::var("PROVIDER")?)?,
        db: db.clone(),
    };
    let ends = Consumer::new("documents").from(Start::Earliest);
    let worker = Outlast::new()
        .worker(app.clone())
        .database(&url)
        // Of a copy of this database it must send nobody anything.
        .settings(Settings {
            deployment: Some("example".into()),
            ..Settings::default()
        })
        .command(send, IfUnknown::ask_a_person())
        .consumer(ends.on_tx(&db, ended));
    worker
        .run_until(async { day(&app).await.expect("the day goes as planned") })
        .await?;

    let lines = "select string_agg(format('contract %s version %s: %s', contract, version, state), E'\\n' order by contract, version) from document";
    println!(
        "{}",
        db.get()
            .await?
            .query_one(lines, &[])
            .await?
            .get::<_, String>(0)
    );
    Ok(())
}

async fn day(app: &App) -> Result<(), Box<dyn Error>> {
    // The provider sends the first one, and its answer is lost. Meanwhile there is a second version of it, which has to wait.
    behave(app, &Habits::only(Fault::Dropped)).await?;
    approve(app, 1, "40 h at 80.00").await?;
    approve(app, 1, "40 h at 90.00").await?;
    until(
        app,
        "select count(*) from outlast.incident where kind = 'unknown command'",
        1,
    )
    .await?;
    // Another one gets lost on its way there. From here that looks the same.
    behave(app, &Habits::only(Fault::Lost)).await?;
    approve(app, 2, "10 h at 80.00").await?;
    until(
        app,
        "select count(*) from outlast.incident where kind = 'unknown command'",
        2,
    )
    .await?;
    behave(app, &Habits::default()).await?;
    let sent = "select count(*) from outlast.command where sent";
    assert_eq!(
        app.db
            .get()
            .await?
            .query_one(sent, &[])
            .await?
            .get::<_, i64>(0),
        2
    );

    for row in app
        .db
        .get()
        .await?
        .query(
            "select id, provider_key from outlast.command where state = 'unknown'",
            &[],
        )
        .await?
    {
        decide(app, row.get("id"), row.get("provider_key")).await?;
    }
    until(
        app,
        "select count(*) from document where state = 'settled'",
        3,
    )
    .await
}

/// What a person does who looks into the provider's console (`outlast commands resolve ID --settled --reference …`, or `--not-applied`).
async fn decide(app: &App, id: Uuid, provider_key: &str) -> Result<(), Box<dyn Error>> {
    let console = app.sign.get("orders").send().await?;
    let lines = std::str::from_utf8(console.body())?.lines();
    let mut effects = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let found = effects.find(|one| one["what"] == "effect" && one["reference"] == provider_key);
    let db = app.db.get().await?;
    match found {
        Some(one) => {
            let number = one["number"].to_string();
            let sql = "select outlast.resolve($1, 'settled', 'it is in their console', $2, $2)";
            db.query_one(sql, &[&id, &number]).await?
        }
        None => {
            let sql =
                "select outlast.resolve($1, 'not_applied', 'their support says it never arrived')";
            db.query_one(sql, &[&id]).await?
        }
    };
    Ok(())
}

async fn behave(app: &App, habits: &Habits) -> Result<(), Box<dyn Error>> {
    let answer = app.sign.put("orders").json(habits).send().await?;
    assert_eq!(answer.status(), 204);
    Ok(())
}

async fn until(app: &App, sql: &str, n: i64) -> Result<(), Box<dyn Error>> {
    let db = app.db.get().await?;
    while db.query_one(sql, &[]).await?.get::<_, i64>(0) < n {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    Ok(())
}
