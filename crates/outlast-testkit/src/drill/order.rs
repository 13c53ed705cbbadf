//! The commands of drills: one name for each kind of provider, so that each has its own contract.

use outlast_core::{Command, job::Options};
use outlast_engine::Outlast;
use outlast_postgres::{
    Error,
    event::Accepted,
    tx::{Tx, Value},
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::did;
use crate::provider::order::Kind;

/// More than the seeds of a drill make fail: nothing here is put before a person because it was unlucky.
const ATTEMPTS: u32 = 40;

/// By the number of its kind.
pub(super) const NAMES: [&str; 4] = [
    "drill.keyed",
    "drill.grudging",
    "drill.looked",
    "drill.keyless",
];

/// An instruction to the provider of kind `K` of [`Kind::ALL`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Order<const K: usize> {
    /// Which one, as the drill counts. The others of its kind have other numbers.
    pub(super) n: i64,
    pub(super) account: String,
    /// The provider is to refuse it.
    pub(super) refuse: bool,
    /// Who is told of its end.
    pub(super) call_back: Option<String>,
    /// The order that it takes back.
    pub(super) undoes: Option<u64>,
}

/// What the provider says when it has done it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Receipt {
    pub(super) order: u64,
}

impl<const K: usize> Command for Order<K> {
    const NAME: &'static str = NAMES[K];
    type Answer = Receipt;

    fn key(&self) -> String {
        format!("order/{}", self.n)
    }

    fn account(&self) -> Option<String> {
        Some(self.account.clone())
    }

    fn options() -> Options {
        Options::new().forever().attempts(ATTEMPTS)
    }
}

/// An order of any kind, before it is given.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) kind: Kind,
    pub(super) n: i64,
    pub(super) account: String,
    pub(super) refuse: bool,
    pub(super) call_back: Option<String>,
    pub(super) undoes: Option<u64>,
    /// The command that it corrects.
    pub(super) supersedes: Option<Uuid>,
}

impl Wanted {
    /// The nth of its kind, of an account of its own for every eighth, with nothing special about it.
    pub(super) fn new(kind: Kind, n: i64) -> Self {
        Self {
            kind,
            n,
            account: format!("{}/{}", kind.as_str(), n % 8),
            refuse: false,
            call_back: None,
            undoes: None,
            supersedes: None,
        }
    }

    /// The business row and the command, or neither if the command is there already.
    pub(super) async fn give(&self, tx: &mut impl Tx) -> Result<Accepted, Error> {
        match self.kind {
            Kind::Keyed => self.give_as::<0>(tx).await,
            Kind::Grudging => self.give_as::<1>(tx).await,
            Kind::Looked => self.give_as::<2>(tx).await,
            Kind::Keyless => self.give_as::<3>(tx).await,
        }
    }

    async fn give_as<const K: usize>(&self, tx: &mut impl Tx) -> Result<Accepted, Error> {
        const ROW: &str = "insert into drill.business (n, event_id, digest) values ($1::text::bigint, $2::text::uuid, $3)";
        let order = Order::<K> {
            n: self.n,
            account: self.account.clone(),
            refuse: self.refuse,
            call_back: self.call_back.clone(),
            undoes: self.undoes,
        };
        let outlast = Outlast::new();
        let mut give = outlast.command(tx, &order);
        if let Some(old) = self.supersedes {
            give = give.supersedes(old);
        }
        let accepted = give.await?;
        if accepted.new {
            let (n, id, digest) = (
                self.n.to_string(),
                accepted.id.to_string(),
                did::digest(&order),
            );
            let args: [Value<'_>; 3] = [
                n.as_str().into(),
                id.as_str().into(),
                digest.as_str().into(),
            ];
            tx.call(ROW, &args).await?;
        }
        Ok(accepted)
    }
}
