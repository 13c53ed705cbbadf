//! Commands, from the transaction that gives them to the consumer of their end, against a real PostgreSQL.

mod ends;
mod lost;
mod unknown;

use std::{sync::Arc, time::Duration};

use outlast_core::{Command, Failure, Found, Resolution, Sent};
use outlast_engine::{Attempt, IfUnknown, Outlast};
use outlast_postgres::{
    command::Settlement,
    event::Accepted,
    tx::{OwnedTx, Pool},
};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use crate::given::Given;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Charge {
    pub(crate) n: i64,
    pub(crate) amount: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChargeId(pub(crate) String);

impl Command for Charge {
    const NAME: &'static str = "charge";
    type Answer = ChargeId;

    fn key(&self) -> String {
        self.n.to_string()
    }

    fn account(&self) -> Option<String> {
        Some("acme".into())
    }
}

/// A provider in this process: what it is told to do next, and what it was asked.
#[derive(Clone, Default)]
pub(crate) struct Acme {
    /// What becomes of the next sends, the last for all that follow.
    pub(crate) sends: Arc<Mutex<Vec<Becomes>>>,
    pub(crate) finds: Arc<Mutex<Vec<Found<ChargeId>>>>,
    /// The keys that it was given, in order.
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
}

#[derive(Clone, Debug)]
pub(crate) enum Becomes {
    Answer(Sent<ChargeId>),
    Fails(Failure),
    Panics,
    /// It answers after this.
    Late(Duration),
}

impl Acme {
    pub(crate) fn that(sends: Vec<Becomes>) -> Self {
        Self {
            sends: Arc::new(Mutex::new(sends)),
            ..Self::default()
        }
    }

    pub(crate) fn found(self, finds: Vec<Found<ChargeId>>) -> Self {
        Self {
            finds: Arc::new(Mutex::new(finds)),
            ..self
        }
    }
}

pub(crate) fn settled() -> Sent<ChargeId> {
    Sent::Settled(ChargeId("ch_1".into()))
}

pub(crate) async fn charge(acme: Acme, c: Attempt<Charge>) -> Result<Sent<ChargeId>, Failure> {
    acme.asked.lock().await.push(c.provider_key().to_owned());
    let becomes = {
        let mut sends = acme.sends.lock().await;
        match sends.len() {
            0 => Becomes::Answer(settled()),
            1 => sends[0].clone(),
            _ => sends.remove(0),
        }
    };
    match becomes {
        Becomes::Answer(sent) => Ok(sent),
        Becomes::Fails(failure) => Err(failure),
        Becomes::Panics => panic!("a bug in the handler"),
        Becomes::Late(after) => {
            tokio::time::sleep(after).await;
            Ok(settled())
        }
    }
}

pub(crate) async fn find(acme: Acme, _: Attempt<Charge>) -> Result<Found<ChargeId>, Failure> {
    let mut finds = acme.finds.lock().await;
    Ok(match finds.len() {
        0 => Found::Unsure,
        1 => finds[0].clone(),
        _ => finds.remove(0),
    })
}

pub(crate) fn keyed<S>() -> IfUnknown<S, Charge> {
    IfUnknown::resend_within(Duration::from_secs(24 * 3600))
}

impl Given {
    /// Gives charges with these numbers, each in a transaction of its own.
    pub(crate) async fn give(&self, numbers: std::ops::Range<i64>) -> Vec<Accepted> {
        let mut accepted = Vec::new();
        for n in numbers {
            let mut tx = self.pool.begin().await.unwrap();
            let charge = Charge {
                n,
                amount: "1.00".into(),
            };
            let one = Outlast::new().command(&mut tx, &charge).await.unwrap();
            tx.commit().await.unwrap();
            accepted.push(one);
        }
        accepted
    }

    pub(crate) async fn settle(&self, key: &str) -> Settlement {
        let mut tx = self.pool.begin().await.unwrap();
        let how = Resolution::Settled(ChargeId("ch_1".into()));
        let settled = Outlast::new()
            .settle::<Charge>(&mut tx, key, how)
            .await
            .unwrap();
        tx.commit().await.unwrap();
        settled
    }

    /// Waits until this many commands are in this state, and nothing is in work.
    pub(crate) async fn commands(&self, n: i64, state: &str) {
        self.until(
            &format!("select count(*) from outlast.command where state = '{state}'"),
            n,
        )
        .await;
        self.until("select count(*) from outlast.lease where room = 'job'", 0)
            .await;
        self.verified().await;
    }

    /// The time of everything that waits for one has come.
    pub(crate) async fn come(&self) {
        self.sql
            .batch_execute("update outlast._job_later set due_at = outlast.clock(); select nextval('outlast._event_id')")
            .await
            .unwrap();
    }
}
