//! The evidence table, one file a row.

mod crash;
mod e1;
mod e11;
mod e13;
mod e2;
mod e3;
mod e5;
mod e7;
mod e8;
mod entity;
mod load;
mod million;
mod order;
mod relay;
mod wake;

use std::{fmt, future::Future, sync::Arc, time::Duration};

use anyhow::Result;
use futures_util::future::LocalBoxFuture;

use super::{
    pools::{Driver, Isolation},
    source::Kind,
    worker::{Form, Spec},
    world::World,
};

/// One row of the evidence table.
#[derive(Debug)]
pub struct Row {
    /// `E1` and so on.
    pub name: &'static str,
    /// What must be observed.
    pub what: &'static str,
    /// What is done to find out.
    pub scenarios: Vec<Scenario>,
}

/// One way to find out.
#[derive(Clone)]
pub struct Scenario {
    /// Its name within the row.
    pub name: String,
    /// The settings of the server of its own that it stops or kills; none if it shares one.
    pub server: Option<&'static [(&'static str, &'static str)]>,
    /// Part of the small setting.
    pub core: bool,
    /// No run takes that long, also on a slow machine.
    pub patience: Duration,
    work: Work,
}

type Work = Arc<dyn Fn(Arc<World>) -> LocalBoxFuture<'static, Result<()>> + Send + Sync>;

impl Scenario {
    fn new<F>(
        name: impl Into<String>,
        work: impl Fn(Arc<World>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<()>> + 'static,
    {
        Self {
            name: name.into(),
            server: None,
            core: false,
            patience: Duration::from_secs(240),
            work: Arc::new(move |world| Box::pin(work(world))),
        }
    }

    /// It gets a server of its own.
    fn alone(mut self, settings: &'static [(&'static str, &'static str)]) -> Self {
        self.server = Some(settings);
        self
    }

    /// It takes longer than others, and only runs when its row is named.
    fn patient(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// It belongs to the small setting.
    fn core(mut self) -> Self {
        self.core = true;
        self
    }

    pub(super) fn work(&self, world: Arc<World>) -> LocalBoxFuture<'static, Result<()>> {
        (self.work)(world)
    }
}

impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Row {
    /// Whether it takes so long that it runs only when it is named.
    pub fn is_long(&self) -> bool {
        let hour = Duration::from_secs(3600);
        self.scenarios
            .iter()
            .any(|scenario| scenario.patience > hour)
    }
}

/// Every row that exists: without a broker, or with this one.
pub fn all(broker: Option<Kind>) -> Vec<Row> {
    if let Some(kind) = broker {
        return relay::rows(kind);
    }
    vec![
        e1::row(),
        e2::row(),
        e3::row(),
        order::e4(),
        with(e5::row(), order::e5_scenarios()),
        with(order::e6(), entity::e6_scenarios()),
        e7::row(),
        with(e8::row(), order::e8_scenarios()),
        with(order::e10(), entity::e10_scenarios()),
        e11::row(),
        e13::row(),
        wake::row(),
        load::row(),
        million::row(),
    ]
}

/// A row, and what of it is about commands or entities.
fn with(mut row: Row, more: Vec<Scenario>) -> Row {
    row.scenarios.extend(more);
    row
}

/// A consumer of every form, both drivers, the weakest and the strongest isolation.
fn everyone() -> Vec<Spec> {
    vec![
        Spec::new("ledger", Form::Tx),
        Spec {
            isolation: Isolation::Serializable,
            driver: Driver::Sqlx,
            ..Spec::new("books", Form::Tx)
        },
        Spec::new("archive", Form::Batch),
        Spec::new("mail", Form::Outside),
        Spec::new("post", Form::Seal),
    ]
}

/// From now on `drill.charge` holds whatever is charged to an event, also if the event is done later.
async fn watch_charges(world: &World) -> Result<()> {
    const SQL: &str = "
        create table drill.charge (event_id uuid, class text, failures int, crashes int);
        create function drill.charge() returns trigger language plpgsql security definer as $$ begin
          insert into drill.charge values (new.event_id, new.class, new.failures, new.crashes);
          return null; end $$;
        create trigger charge after insert or update on outlast._parked for each row execute function drill.charge();";
    Ok(world.client().await?.batch_execute(SQL).await?)
}
