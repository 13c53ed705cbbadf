//! What goes wrong with a request: by chance, of a seed, so that the same requests meet the same faults.

use serde::{Deserialize, Serialize};

use super::Kind;

/// How one request is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Done at once, answered late.
    Slow,
    /// Done late: the request was long on its way.
    Late,
    /// 429 with `Retry-After`; nothing is done.
    Throttled,
    /// 503; nothing is done.
    Away,
    /// The connection is closed; nothing is done.
    Lost,
    /// Done, and the connection is closed.
    Dropped,
    /// Done, and half an answer comes.
    Half,
    /// Done, and 500 is answered.
    Broken,
    /// Done, and told to the address to be called back before it is answered, late.
    CalledBack,
    /// Taken, and settled later: 202.
    Pending,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Slow,
        Self::Late,
        Self::Throttled,
        Self::Away,
        Self::Lost,
        Self::Dropped,
        Self::Half,
        Self::Broken,
        Self::CalledBack,
        Self::Pending,
    ];
}

/// How a provider treats orders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Habits {
    /// Where its chances come from.
    pub seed: u64,
    /// How many requests of a hundred meet a fault.
    pub percent: u32,
    /// This one, instead of any.
    pub only: Option<Fault>,
    /// Only requests of this account.
    pub account: Option<String>,
    /// So many requests with one reference may meet one; the ones after them do not.
    pub visits: u32,
    /// How long *slow* and *late* are, at most.
    pub slow_ms: u64,
    /// When what is pending settles.
    pub settle_ms: u64,
    /// In seconds, of 429.
    pub retry_after: u64,
    /// How long a key is honoured; none: for ever.
    pub window_ms: Option<u64>,
    /// How far its clock is ahead.
    pub ahead_ms: u64,
}

impl Default for Habits {
    fn default() -> Self {
        Self {
            seed: 0,
            percent: 0,
            only: None,
            account: None,
            visits: 2,
            slow_ms: 400,
            settle_ms: 500,
            retry_after: 1,
            window_ms: None,
            ahead_ms: 0,
        }
    }
}

impl Habits {
    /// A well-behaved provider, but for this fault, which the first request of each order meets.
    pub fn only(fault: Fault) -> Self {
        Self {
            percent: 100,
            only: Some(fault),
            visits: 1,
            ..Self::default()
        }
    }

    /// How the nth request with this reference is treated, and how long it takes.
    pub(super) fn fault(
        &self,
        kind: Kind,
        account: &str,
        reference: &str,
        visit: u32,
    ) -> Option<Fault> {
        let mine = self.account.as_deref().is_none_or(|name| name == account);
        let mut rng = self.chances(kind, reference, visit);
        if visit >= self.visits || !mine || rng.u32(0..100) >= self.percent {
            return None;
        }
        self.only.or_else(|| rng.choice(Fault::ALL))
    }

    /// How long *slow* is for this request.
    pub(super) fn slow_ms(&self, kind: Kind, reference: &str, visit: u32) -> u64 {
        let mut rng = self.chances(kind, reference, visit.wrapping_add(1_000_000));
        rng.u64(self.slow_ms / 2..=self.slow_ms)
    }

    fn chances(&self, kind: Kind, reference: &str, visit: u32) -> fastrand::Rng {
        let text = format!("{} {reference} {visit}", kind.as_str());
        // FNV-1a: the same on every machine and with every release.
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        fastrand::Rng::with_seed(hash ^ self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}
