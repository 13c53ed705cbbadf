//! Entities from end to end: the members of a chat, kept alike in our table and at a provider that has them, too.
//!
//! Needs a database to play with: `outlast dev` in one terminal, `DATABASE_URL=… cargo run --example entities` in another.

use std::{
    collections::BTreeMap,
    error::Error,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use outlast::{Attempt, Entity, Failure, Outlast, Sealed};
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, PgTransaction};

/// Which member; what he may do is read from the table each time.
#[derive(Serialize, Deserialize)]
struct Membership {
    chat: i64,
    name: String,
}

/// What the provider calls him. It is needed to take him away there when our row is gone.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Participant {
    sid: String,
}

impl Entity for Membership {
    const NAME: &'static str = "chat_membership";
    type Refs = Participant;

    fn key(&self) -> String {
        format!("{}/{}", self.chat, self.name)
    }

    /// The provider takes one change of a conversation at a time.
    fn exclusive(&self) -> Option<String> {
        Some(format!("conversation/{}", self.chat))
    }
}

impl Membership {
    fn of(name: &str) -> Self {
        Self {
            chat: 7,
            name: name.to_owned(),
        }
    }
}

/// The provider: its members by sid, each with name and role.
#[derive(Clone, Default)]
struct Provider(Arc<Mutex<BTreeMap<String, (String, String)>>>);

impl Provider {
    fn members(&self) -> MutexGuard<'_, BTreeMap<String, (String, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shown(&self) -> String {
        let mut shown: Vec<String> = self
            .members()
            .values()
            .map(|(name, role)| format!("{name} {role}"))
            .collect();
        shown.sort();
        shown.join(", ")
    }

    /// Adding a name twice would make two of it: so look first.
    async fn find(&self, name: &str) -> Option<Participant> {
        let members = self.members();
        let (sid, _) = members.iter().find(|(_, (known, _))| known == name)?;
        Some(Participant { sid: sid.clone() })
    }

    async fn add(&self, name: &str, role: &str) -> Participant {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let sid = format!("MB{}", MADE.fetch_add(1, Ordering::Relaxed));
        self.members()
            .insert(sid.clone(), (name.into(), role.into()));
        Participant { sid }
    }

    async fn set_role(&self, member: &Participant, role: &str) -> Result<(), Failure> {
        match self.members().get_mut(&member.sid) {
            Some(known) => {
                known.1 = role.into();
                Ok(())
            }
            // Absent is not what is wanted here, so it is no success.
            None => Err(Failure::permanent(format!(
                "the provider does not know {}",
                member.sid
            ))),
        }
    }

    /// Absent already is as good: absent is what is wanted.
    async fn remove(&self, member: &Participant) {
        self.members().remove(&member.sid);
    }
}

#[derive(Clone)]
struct App {
    db: PgPool,
    provider: Provider,
    outlast: Outlast,
}

impl App {
    /// The row and the mark: one commit.
    async fn set(&self, name: &str, role: &str) -> Result<(), Box<dyn Error>> {
        let mut tx = self.db.begin().await?;
        self.write(&mut tx, name, role).await?;
        Ok(tx.commit().await?)
    }

    async fn write(
        &self,
        tx: &mut PgTransaction<'_>,
        name: &str,
        role: &str,
    ) -> Result<(), Box<dyn Error>> {
        let set = "insert into member (chat, name, role) values (7, $1, $2)
             on conflict (chat, name) do update set role = excluded.role";
        let set = sqlx::query(set).bind(name).bind(role);
        set.execute(&mut **tx).await?;
        self.outlast.changed(tx, &Membership::of(name)).await?;
        Ok(())
    }

    /// The row goes; what the provider calls him goes with the mark.
    async fn leave(&self, name: &str) -> Result<(), Box<dyn Error>> {
        let mut tx = self.db.begin().await?;
        let gone = "delete from member where chat = 7 and name = $1 returning sid";
        let sid: Option<String> = sqlx::query_scalar(gone)
            .bind(name)
            .fetch_one(&mut *tx)
            .await?;
        let member = Membership::of(name);
        match sid {
            Some(sid) => {
                let refs = Participant { sid };
                self.outlast.deleted(&mut tx, &member, &refs).await?;
            }
            // Nothing was made there yet, or is being made right now: whoever reconciles will see.
            None => self.outlast.changed(&mut tx, &member).await?,
        }
        Ok(tx.commit().await?)
    }
}

/// Makes the provider look like the table. Runs again if it dies anywhere, so each step may happen twice.
async fn sync(app: App, member: Attempt<Membership>) -> Result<Sealed, Failure> {
    // Reread, on the primary: the mark says who, not what.
    let role = "select role from member where chat = $1 and name = $2";
    let role = sqlx::query_scalar(role)
        .bind(member.chat)
        .bind(&member.name);
    let role: Option<String> = role.fetch_optional(&app.db).await?;
    let known = match member.refs() {
        Some(refs) => Some(refs.clone()),
        None => app.provider.find(&member.name).await,
    };
    let there = match (role, known) {
        // It was deleted, whether or not he is there again: a run for the membership itself follows.
        (_, Some(known)) if member.is_deletion() => {
            app.provider.remove(&known).await;
            None
        }
        (Some(role), Some(known)) => {
            app.provider.set_role(&known, &role).await?;
            Some(known)
        }
        (Some(role), None) => {
            let made = app.provider.add(&member.name, &role).await;
            // Durable before anything else: if we die now, the next try knows it.
            member.keep(made.clone()).await?;
            Some(made)
        }
        (None, Some(known)) => {
            app.provider.remove(&known).await;
            member.forget().await?;
            None
        }
        (None, None) => None,
    };
    // Our own row and the completion: one commit. To note this is no change that the provider has to hear of.
    let mut tx = app.db.begin().await?;
    if let Some(there) = there {
        let note = "update member set sid = $3 where chat = $1 and name = $2";
        let note = sqlx::query(note).bind(member.chat).bind(&member.name);
        note.bind(&there.sid).execute(&mut *tx).await?;
    }
    member.seal(tx).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL")?;
    outlast::migrate(&url).await?;
    let db = PgPool::connect(&url).await?;
    let table = "create table member (chat bigint, name text, role text not null, sid text, primary key (chat, name))";
    sqlx::query(table).execute(&db).await?;
    let app = App {
        db: db.clone(),
        provider: Provider::default(),
        outlast: Outlast::new(),
    };
    let worker = || {
        let worker = app.outlast.worker(app.clone()).database(&url);
        worker.reconcile(sync)
    };

    for name in ["ann", "bob", "cid"] {
        app.set(name, "guest").await?;
    }
    // A transaction that does not commit changes nothing there either.
    let mut tx = db.begin().await?;
    app.write(&mut tx, "dan", "guest").await?;
    tx.rollback().await?;
    worker().run_until(all_alike(&db)).await?;
    println!("{}", app.provider.shown());

    // However often it changes while nobody works, it is converged once, to the latest.
    for role in ["writer", "guest", "admin"] {
        app.set("ann", role).await?;
    }
    app.leave("bob").await?;
    worker().run_until(all_alike(&db)).await?;
    println!("{}", app.provider.shown());
    Ok(())
}

/// Resolves when nothing is to be converged any more.
async fn all_alike(db: &PgPool) {
    let open = "select count(*) from unnest(array['7/ann', '7/bob', '7/cid']) m
         cross join outlast.entity_status('chat_membership', m) s where s.state <> 'converged'";
    while !matches!(
        sqlx::query_scalar::<_, i64>(open).fetch_one(db).await,
        Ok(0)
    ) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
