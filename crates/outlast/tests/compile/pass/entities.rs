//! Entities: marked on several drivers, in a handler too; converged with what is kept, forgotten, sealed.
#![allow(dead_code)]
use outlast::{Attempt, Entity, Error, Failure, Job, Options, Outlast, Sealed, Unreadable, Worker};
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, PgTransaction};
use std::time::Duration;

#[derive(Clone)]
struct App {
    db: PgPool,
    outlast: Outlast,
    twilio: Twilio,
}

#[derive(Serialize, Deserialize)]
struct Membership {
    chat: i64,
    user: i64,
}
#[derive(Clone, Serialize, Deserialize)]
struct Participant {
    conversation: String,
    sid: String,
}
impl Entity for Membership {
    const NAME: &'static str = "chat_membership";
    const VERSION: u16 = 2;
    type Refs = Participant;
    fn key(&self) -> String {
        format!("{}/{}", self.chat, self.user)
    }
    fn exclusive(&self) -> Option<String> {
        Some(format!("conversation/{}", self.chat))
    }
    fn options() -> Options {
        Options::new().deadline(Duration::from_secs(20)).concurrency(4)
    }
    fn upcast(_: u16, old: serde_json::Value) -> Result<Self, Unreadable> {
        Ok(serde_json::from_value(old)?)
    }
}

async fn leave(app: &App, chat: i64, user: i64) -> anyhow::Result<()> {
    let mut tx = app.db.begin().await?;
    let refs = delete_member(&mut tx, chat, user).await?; // the row goes, its provider ids stay
    app.outlast.deleted(&mut tx, &Membership { chat, user }, &refs).await?;
    tx.commit().await?;
    Ok(())
}

async fn sync_membership(app: App, m: Attempt<Membership>) -> Result<(), Failure> {
    let role = member_role(&app.db, m.chat, m.user).await?; // reread: never trust the hint
    match (role, m.refs()) {
        (Some(role), Some(p)) if !m.is_deletion() => app.twilio.set_role(p, &role).await?,
        (Some(role), None) => m.keep(app.twilio.add(m.chat, m.user, &role).await?).await?,
        (_, Some(p)) => {
            app.twilio.remove(p).await?; // `remove` maps 404 to Ok: absent is the aim
            m.forget().await?;
        }
        (None, None) => app.twilio.remove_by_identity(m.chat, m.user).await?, // no row is no proof of removal
    }
    Ok(())
}

#[derive(Serialize, Deserialize)]
struct Sweep;
impl Job for Sweep {
    const NAME: &'static str = "sweep";
}

async fn sweep(app: App, job: Attempt<Sweep>) -> Result<Sealed, Failure> {
    let mut tx = app.db.begin().await?;
    for user in 0..10 {
        job.outlast().changed(&mut tx, &Membership { chat: 7, user }).await?;
    }
    job.seal(tx).await
}

#[derive(Serialize, Deserialize)]
struct Page(String);
impl Entity for Page {
    const NAME: &'static str = "search.page";
    type Refs = ();
    fn key(&self) -> String {
        self.0.clone()
    }
}

async fn index(app: App, page: Attempt<Page>) -> Result<Sealed, Failure> {
    let _stop = page.lost();
    let _fence: u64 = page.fence_number();
    let tx = app.db.begin().await?;
    page.seal(tx).await
}

async fn elsewhere(outlast: Outlast, client: &mut tokio_postgres::Client) -> Result<(), Error> {
    let mut tx = client.transaction().await?;
    outlast.tenant("acme").actor("jane").changed(&mut tx, &Page("a".into())).await?;
    outlast.deleted(&mut tx, &Page("b".into()), &()).await
}

fn spawned(app: App) {
    tokio::spawn(async move { leave(&app, 1, 2).await });
}

fn worker(app: App) -> Worker<App> {
    app.outlast.clone().worker(app).job(sweep).reconcile(sync_membership).reconcile(index)
}

#[derive(Clone)]
struct Twilio;
#[derive(Debug)]
struct TwilioError;
impl std::fmt::Display for TwilioError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("twilio")
    }
}
impl outlast::Classify for TwilioError {
    fn class(&self) -> outlast::Class {
        outlast::Class::Retry
    }
}
impl Twilio {
    async fn set_role(&self, _: &Participant, _: &str) -> Result<(), TwilioError> {
        Ok(())
    }
    async fn add(&self, _: i64, _: i64, _: &str) -> Result<Participant, TwilioError> {
        unimplemented!()
    }
    async fn remove(&self, _: &Participant) -> Result<(), TwilioError> {
        Ok(())
    }
    async fn remove_by_identity(&self, _: i64, _: i64) -> Result<(), TwilioError> {
        Ok(())
    }
}
async fn delete_member(_: &mut PgTransaction<'_>, _: i64, _: i64) -> Result<Participant, sqlx::Error> {
    unimplemented!()
}
async fn member_role(_: &PgPool, _: i64, _: i64) -> Result<Option<String>, sqlx::Error> {
    unimplemented!()
}

fn main() {}
