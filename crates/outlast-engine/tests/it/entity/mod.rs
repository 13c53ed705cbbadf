//! Entities, from the transaction that marks them to the provider that looks alike, against a real PostgreSQL.

mod converge;
mod ends;
mod lost;
mod marks;
mod walk;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use deadpool_postgres::Pool;
use outlast_core::{Entity, Failure, job::Options};
use outlast_engine::{Attempt, Outlast};
use outlast_postgres::tx::{ClientTx, OwnedTx, Pool as _};
use serde::{Deserialize, Serialize};
use tokio_postgres::types::Type;

use crate::given::Given;

/// Something in our table that must look the same at a provider. Tries follow one another quickly.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Thing {
    pub(crate) n: i64,
}

/// What the provider calls it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Ref(pub(crate) String);

impl Entity for Thing {
    const NAME: &'static str = "thing";
    type Refs = Ref;

    fn key(&self) -> String {
        self.n.to_string()
    }

    fn options() -> Options {
        Options::new().backoff(Duration::from_millis(20), Duration::from_millis(100))
    }
}

/// A provider in this process, whose ledger is the truth: what each reference is of, and how it looks.
#[derive(Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<Truth>>);

#[derive(Default)]
pub(crate) struct Truth {
    things: BTreeMap<Ref, (i64, String)>,
    made: usize,
}

impl Ledger {
    fn truth(&self) -> MutexGuard<'_, Truth> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Not told again apart from the first time: twice makes two.
    pub(crate) fn add(&self, n: i64, look: &str) -> Ref {
        let mut truth = self.truth();
        truth.made += 1;
        let made = Ref(format!("r{}", truth.made));
        truth.things.insert(made.clone(), (n, look.to_owned()));
        made
    }

    pub(crate) fn set(&self, one: &Ref, look: &str) -> Result<(), Failure> {
        match self.truth().things.get_mut(one) {
            Some(thing) => {
                thing.1 = look.to_owned();
                Ok(())
            }
            None => Err(Failure::permanent(format!("{} is not there", one.0))),
        }
    }

    pub(crate) fn remove(&self, one: &Ref) {
        self.truth().things.remove(one);
    }

    /// All that there are of this number.
    pub(crate) fn find(&self, n: i64) -> Vec<Ref> {
        let truth = self.truth();
        let of = truth.things.iter().filter(|(_, (whose, _))| *whose == n);
        of.map(|(one, _)| one.clone()).collect()
    }

    /// Numbers and looks, in order.
    pub(crate) fn shows(&self) -> Vec<(i64, String)> {
        let mut all: Vec<_> = self.truth().things.values().cloned().collect();
        all.sort();
        all
    }
}

/// What the reconcilers of these tests get.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) db: Pool,
    pub(crate) ledger: Ledger,
}

impl App {
    /// How it should look, by a transaction of its own, begun now.
    pub(crate) async fn wanted(&self, n: i64) -> Result<Option<String>, Failure> {
        let sql = self.db.get().await.map_err(Failure::retry)?;
        // Not prepared: behind a pooler that would be in another session.
        let look = "select look from thing where n = $1";
        let rows = sql.query_typed(look, &[(&n, Type::INT8)]).await?;
        Ok(rows.first().map(|row| row.get(0)))
    }

    /// Makes the provider look so.
    pub(crate) async fn converge(
        &self,
        thing: &Attempt<Thing>,
        wanted: Option<String>,
    ) -> Result<(), Failure> {
        match (wanted, thing.refs()) {
            (_, Some(gone)) if thing.is_deletion() => self.ledger.remove(gone),
            (Some(look), Some(known)) => self.ledger.set(known, &look)?,
            (Some(look), None) => thing.keep(self.ledger.add(thing.n, &look)).await?,
            (None, Some(gone)) => {
                self.ledger.remove(gone);
                thing.forget().await?;
            }
            (None, None) => {
                for gone in self.ledger.find(thing.n) {
                    self.ledger.remove(&gone);
                }
            }
        }
        Ok(())
    }
}

/// The usual reconciler.
pub(crate) async fn sync(app: App, thing: Attempt<Thing>) -> Result<(), Failure> {
    let wanted = app.wanted(thing.n).await?;
    app.converge(&thing, wanted).await
}

impl Given {
    /// With a table of things.
    pub(crate) async fn app(&self) -> App {
        self.sql
            .batch_execute("create table thing (n bigint primary key, look text not null)")
            .await
            .unwrap();
        App {
            db: self.pool.clone(),
            ledger: Ledger::default(),
        }
    }

    /// The row as it should be, written in an open transaction together with its mark.
    pub(crate) async fn put(&self, n: i64, look: &str) -> ClientTx {
        let mut tx = self.pool.begin().await.unwrap();
        let sql =
            "insert into thing values ($1, $2) on conflict (n) do update set look = excluded.look";
        tx.execute(sql, &[&n, &look]).await.unwrap();
        Outlast::new().changed(&mut tx, &Thing { n }).await.unwrap();
        tx
    }

    pub(crate) async fn change(&self, n: i64, look: &str) {
        self.put(n, look).await.commit().await.unwrap();
    }

    /// The row goes; with what the provider calls it, if that is known.
    pub(crate) async fn take_away(&self, n: i64, refs: Option<&Ref>) {
        let mut tx = self.pool.begin().await.unwrap();
        tx.execute("delete from thing where n = $1", &[&n])
            .await
            .unwrap();
        let (outlast, thing) = (Outlast::new(), Thing { n });
        match refs {
            Some(refs) => outlast.deleted(&mut tx, &thing, refs).await.unwrap(),
            None => outlast.changed(&mut tx, &thing).await.unwrap(),
        }
        tx.commit().await.unwrap();
    }

    /// Waits until everything is converged and nothing is in work.
    pub(crate) async fn converged(&self) {
        self.until(
            "select (select count(*) from outlast._entity_mark) + (select count(*) from outlast.entity where state <> 'converged')",
            0,
        )
        .await;
        self.until("select count(*) from outlast.lease where room = 'job'", 0)
            .await;
        self.verified().await;
    }
}
