//! Conversations at a chat provider: closed, opened again and archived by commands; made, kept alike and deleted as entities. All of them
//! share one key of exclusion, so that the provider hears of one conversation one thing at a time; and what is wanted is reread under it,
//! so that what is old does nothing.
//!
//! Needs a database to play with (`outlast dev`, and `outlast deployment set example` for it) and a provider: `cargo run -p
//! outlast-testkit --bin fake-provider -- --ledger /tmp/ledger` says where it listens. Then `DATABASE_URL=… PROVIDER=http://127.0.0.1:…
//! cargo run --example conversations --features http-provider`.

use std::{error::Error, time::Duration};

use deadpool_postgres::{Manager, Pool as Connections};
use outlast::{
    Attempt, ClientTx, Command, Entity, Failure, IfUnknown, Outlast, OwnedTx, Pool, Sealed, Sent,
    Settings,
    http::provider::{Provider, Said},
};
// How the provider is to misbehave; no application has that.
use outlast_testkit::provider::order::{Fault, Habits};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_postgres::NoTls;

/// Who takes part, and that it is there at all: the latest counts.
#[derive(Serialize, Deserialize)]
struct Conversation {
    id: i64,
}

/// What the provider calls it. It is needed when our row is gone.
#[derive(Clone, Serialize, Deserialize)]
struct Sid {
    sid: u64,
}

impl Entity for Conversation {
    const NAME: &'static str = "conversation";
    type Refs = Sid;

    fn key(&self) -> String {
        self.id.to_string()
    }

    fn exclusive(&self) -> Option<String> {
        Some(alone(self.id))
    }
}

/// One at a time of everything that names it, whatever it is.
fn alone(id: i64) -> String {
    format!("conversation/{id}")
}

/// A step of its life, as it was decided: which one it was (`change`), and where.
#[derive(Clone, Serialize, Deserialize)]
struct Step {
    id: i64,
    change: i64,
    sid: u64,
}

/// Which state it brings about.
trait Leads: Command<Answer = ()> {
    const TO: &'static str;
    fn step(&self) -> &Step;
    fn of(step: Step) -> Self;
}

macro_rules! step {
    ($name:ident, $called:literal, $to:literal) => {
        #[derive(Serialize, Deserialize)]
        struct $name(Step);
        impl Command for $name {
            const NAME: &'static str = $called;
            type Answer = ();
            fn key(&self) -> String {
                format!("conversation/{}/change/{}", self.0.id, self.0.change)
            }
            fn account(&self) -> Option<String> {
                Some("chat".into())
            }
            fn exclusive(&self) -> Option<String> {
                Some(alone(self.0.id))
            }
        }
        impl Leads for $name {
            const TO: &'static str = $to;
            fn step(&self) -> &Step {
                &self.0
            }
            fn of(step: Step) -> Self {
                Self(step)
            }
        }
    };
}
step!(Close, "conversation.close", "closed");
step!(Reopen, "conversation.reopen", "open");
step!(Archive, "conversation.archive", "archived");

#[derive(Clone)]
struct App {
    chat: Provider,
    db: Connections,
}

#[derive(Deserialize)]
struct Order {
    order: u64,
}

impl App {
    /// One request. The same key again is the same request. `account` is only for the provider's books: they tell how many requests
    /// about one conversation were under way at once.
    async fn ask(
        &self,
        key: &str,
        id: i64,
        mut what: Value,
    ) -> Result<Result<u64, String>, Failure> {
        what["reference"] = key.into();
        what["account"] = alone(id).into();
        let request = self.chat.post("orders/keyed").key(key).json(&what);
        let answer = request.send().await?;
        Ok(match answer.said()? {
            Said::Done => Ok(answer.json::<Order>()?.order),
            Said::Refused(why) => Err(why),
        })
    }
}

/// A step goes only if it is still the newest: what has come after it decides, and an archived conversation stays archived.
async fn take<C: Leads>(app: App, c: Attempt<C>) -> Result<Sent<()>, Failure> {
    let step = c.step();
    let db = app.db.get().await.map_err(Failure::retry)?;
    let sql = "select state, change from conversation where id = $1";
    let row = db
        .query_opt(sql, &[&step.id])
        .await
        .map_err(Failure::retry)?;
    drop(db);
    match row.map(|row| (row.get::<_, String>(0), row.get::<_, i64>(1))) {
        Some((_, change)) if change == step.change => {}
        Some((state, _)) => return Ok(Sent::Obsolete(format!("it is {state} now"))),
        None => return Ok(Sent::Obsolete("it is deleted".into())),
    }
    let what = json!({ "op": C::TO, "sid": step.sid });
    Ok(match app.ask(c.provider_key(), step.id, what).await? {
        Ok(_) => Sent::Settled(()),
        Err(why) => Sent::Rejected(why),
    })
}

/// Makes the provider look like our tables. Each step of it may happen twice.
async fn sync(app: App, c: Attempt<Conversation>) -> Result<Sealed, Failure> {
    let tx = app.db.begin().await?;
    let sql = "select c.state, c.joins, array(select m.name from member m where m.conversation = c.id order by 1) as names
         from conversation c where c.id = $1";
    let row = tx.query_opt(sql, &[&c.id]).await?;
    tx.commit().await?;
    let wanted = row.map(|row| {
        let names: Vec<String> = row.get("names");
        (
            row.get::<_, String>("state"),
            row.get::<_, i64>("joins"),
            names,
        )
    });
    let refused = |why: String| Failure::permanent(why);
    let mut sid = c.refs().map(|refs| refs.sid);
    match (wanted, sid) {
        (row, Some(there)) if c.is_deletion() || row.is_none() => {
            // Our row is gone, or another one is there by now: the number of what is to go came with the deletion.
            let what = json!({ "op": "deleted", "sid": there });
            app.ask(&format!("{there}/delete"), c.id, what)
                .await?
                .map_err(refused)?;
            c.forget().await?;
            sid = None;
        }
        // Nobody comes or goes any more.
        (Some((state, ..)), _) if state == "archived" => {}
        (Some((_, joins, names)), known) => {
            let there = match known {
                Some(there) => there,
                None => {
                    let key = format!("{}/create", c.id);
                    let made = app.ask(&key, c.id, json!({ "op": "created" })).await?;
                    let made = made.map_err(refused)?;
                    // Durable before anything else: if we die now, the next try knows it.
                    c.keep(Sid { sid: made }).await?;
                    made
                }
            };
            // The same members again are the same request.
            let key = format!("{there}/members/{joins}");
            let what = json!({ "op": "members", "sid": there, "names": names });
            app.ask(&key, c.id, what).await?.map_err(refused)?;
            sid = Some(there);
        }
        (None, _) => {}
    }
    let tx = app.db.begin().await?;
    if let Some(sid) = sid.and_then(|sid| i64::try_from(sid).ok()) {
        let note = "update conversation set sid = $2 where id = $1";
        tx.execute(note, &[&c.id, &sid]).await?;
    }
    c.seal(tx).await
}

/// The members, and that they have changed: one commit.
async fn join(app: &App, id: i64, names: &[&str]) -> Result<(), Box<dyn Error>> {
    let mut tx = app.db.begin().await?;
    let row = "insert into conversation (id) values ($1)
         on conflict (id) do update set joins = conversation.joins + 1";
    tx.execute(row, &[&id]).await?;
    for name in names {
        let row = "insert into member (conversation, name) values ($1, $2)";
        tx.execute(row, &[&id, name]).await?;
    }
    Outlast::new()
        .changed(&mut tx, &Conversation { id })
        .await?;
    tx.commit().await?;
    Ok(())
}

/// The new state and the step that leads there: one commit. Answers whether `from` was its state at all.
async fn lead<C: Leads>(tx: &mut ClientTx, id: i64, from: &[&str]) -> Result<bool, Box<dyn Error>> {
    let sql = "update conversation set state = $2, change = change + 1
         where id = $1 and state = any ($3) returning change, sid";
    let Some(row) = tx.query_opt(sql, &[&id, &C::TO, &from]).await? else {
        return Ok(false);
    };
    let (change, sid) = (row.get("change"), u64::try_from(row.get::<_, i64>("sid"))?);
    Outlast::new()
        .command(tx, &C::of(Step { id, change, sid }))
        .await?;
    Ok(true)
}

async fn close(app: &App, id: i64) -> Result<bool, Box<dyn Error>> {
    let mut tx = app.db.begin().await?;
    let closes = lead::<Close>(&mut tx, id, &["open"]).await?;
    tx.commit().await?;
    Ok(closes)
}

async fn archive(app: &App, id: i64) -> Result<bool, Box<dyn Error>> {
    let mut tx = app.db.begin().await?;
    let archives = lead::<Archive>(&mut tx, id, &["open", "closed"]).await?;
    tx.commit().await?;
    Ok(archives)
}

/// A message opens a closed conversation again, however late it comes; never an archived one. (It comes by the provider's webhook.)
async fn message(app: &App, id: i64) -> Result<bool, Box<dyn Error>> {
    let mut tx = app.db.begin().await?;
    let opens = lead::<Reopen>(&mut tx, id, &["closed"]).await?;
    tx.commit().await?;
    Ok(opens)
}

/// The rows go; the provider's number of it goes with the mark.
async fn delete(app: &App, id: i64) -> Result<(), Box<dyn Error>> {
    let mut tx = app.db.begin().await?;
    tx.execute("delete from member where conversation = $1", &[&id])
        .await?;
    let row = tx
        .query_one(
            "delete from conversation where id = $1 returning sid",
            &[&id],
        )
        .await?;
    let refs = Sid {
        sid: u64::try_from(row.get::<_, i64>("sid"))?,
    };
    Outlast::new()
        .deleted(&mut tx, &Conversation { id }, &refs)
        .await?;
    tx.commit().await?;
    Ok(())
}

/// The provider honours keys for a day, and answers a repeated one as it did the first time.
fn again<C: Command>() -> IfUnknown<App, C> {
    IfUnknown::resend_within(Duration::from_secs(24 * 3600)).replays_answers()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL")?;
    outlast::migrate(&url).await?;
    let db = Connections::builder(Manager::new(url.parse()?, NoTls)).build()?;
    db.get().await?.batch_execute(
        "create table conversation (id bigint primary key, state text not null default 'open', change bigint not null default 0,
           joins bigint not null default 0, sid bigint);
         create table member (conversation bigint, name text, primary key (conversation, name))",
    ).await?;
    let app = App {
        chat: Provider::new(&std::env::var("PROVIDER")?)?,
        db: db.clone(),
    };
    let work = async || {
        let worker = Outlast::new()
            .worker(app.clone())
            .database(&url)
            // Of a copy of this database it must change nothing there.
            .settings(Settings {
                deployment: Some("example".into()),
                ..Settings::default()
            })
            .command(take::<Close>, again())
            .command(take::<Reopen>, again())
            .command(take::<Archive>, again())
            .reconcile(sync);
        worker.run_until(all_done(&db)).await
    };
    // Every first answer is lost.
    let lost = Habits::only(Fault::Dropped);
    app.chat.put("orders").json(&lost).send().await?;

    join(&app, 7, &["ann", "bob"]).await?;
    work().await?;
    assert!(close(&app, 7).await?);
    work().await?;

    // While nobody works: it is opened again by a message, somebody comes, it is closed once more, and then archived.
    assert!(message(&app, 7).await?);
    join(&app, 7, &["cid"]).await?;
    assert!(close(&app, 7).await?);
    assert!(archive(&app, 7).await?);
    // An old message comes late.
    assert!(!message(&app, 7).await?);
    work().await?;

    delete(&app, 7).await?;
    work().await?;
    let lines = "select string_agg(format('%s: %s', name, state), E'\\n' order by accepted_at) from outlast.command";
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

/// Resolves when nothing is to be told to the provider any more.
async fn all_done(db: &Connections) {
    let open = "select (select count(*) from outlast.command where ended_at is null)
         + (select count(*) from outlast.entity_status('conversation', '7') s where s.state <> 'converged')";
    let done = async || {
        let db = db.get().await.ok()?;
        Some(db.query_one(open, &[]).await.ok()?.get::<_, i64>(0) == 0)
    };
    while done().await != Some(true) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
