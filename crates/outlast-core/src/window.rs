//! Windows: which events of the log lie between two ticks.
//!
//! The rule alone. The SQL that reads by it is `outlast-postgres/functions/window.sql`; a test there compares the two, and
//! the models of this crate show that the rule loses nothing and doubles nothing in any order of writers and ticks.

/// What had committed at one moment, as PostgreSQL says it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Snapshot {
    /// Transactions from here on had not ended.
    pub xmax: u64,
    /// Transactions below `xmax` that had not ended either, in order.
    pub xip: Vec<u64>,
}

impl Snapshot {
    /// Had this transaction ended?
    pub fn sees(&self, xid: u64) -> bool {
        xid < self.xmax && !self.xip.contains(&xid)
    }
}

/// A consistent cut through the log: a snapshot, *then* the last id that was drawn, *then* a transaction id of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tick {
    /// What had committed.
    pub snap: Snapshot,
    /// The last log id that was drawn.
    pub hi: i64,
    /// A transaction id of the tick's own.
    pub h: u64,
    /// Transactions of the snapshot that were running and may own ids up to `hi`.
    pub open: Vec<u64>,
    /// Ids up to `hi` may also belong to a transaction from here to `h`.
    pub young: Option<u64>,
}

impl Tick {
    /// The cut that has seen nothing.
    pub const fn zero() -> Self {
        Self {
            snap: Snapshot {
                xmax: 1,
                xip: Vec::new(),
            },
            hi: 0,
            h: 1,
            open: Vec::new(),
            young: None,
        }
    }

    /// The tick after `prev`, whose transaction has ended. Its three values must have been taken in this order.
    pub fn after(prev: &Self, snap: Snapshot, hi: i64, h: u64) -> Self {
        // If no id was drawn since, who has come since has none. And who was there already was known.
        let drawn = hi > prev.hi;
        let owns = |xid: &u64| drawn || prev.may_straggle(*xid);
        Self {
            open: snap.xip.iter().copied().filter(owns).collect(),
            // Nobody else got an id between the snapshot and the tick's own: then there is none.
            young: (drawn && h > snap.xmax).then_some(snap.xmax),
            snap,
            hi,
            h,
        }
    }

    /// May this transaction commit, after the tick, events with ids that were drawn before it? A snapshot's `xmax` is one
    /// past the highest transaction that has *ended*: younger ones may be running, up to the tick's own.
    pub fn may_straggle(&self, xid: u64) -> bool {
        self.open.contains(&xid)
            || self
                .young
                .is_some_and(|young| (young..=self.h).contains(&xid))
    }
}

/// Does an event lie in the window (a, b]? Every event lies in exactly one window of a chain of ticks, and in the order
/// of log ids all stragglers of a window come before the rest of it.
///
/// ```
/// use outlast_core::window::{in_window, Snapshot, Tick};
/// // Transaction 5 was open at tick `a`, and had drawn id 7 by then; at tick `b` it had ended.
/// let a = Tick::after(&Tick::zero(), Snapshot { xmax: 7, xip: vec![5] }, 8, 7);
/// let b = Tick::after(&a, Snapshot { xmax: 8, xip: vec![] }, 8, 8);
/// assert!(in_window(&a, &b, 7, 5));
/// // Id 8 belongs to transaction 6, which had ended before `a` already.
/// assert!(!in_window(&a, &b, 8, 6));
/// ```
pub fn in_window(a: &Tick, b: &Tick, id: i64, xid: u64) -> bool {
    b.snap.sees(xid) && (id > a.hi || a.may_straggle(xid))
}

/// Is there anything beyond a tick? If an id was drawn since, or if somebody has ended who
/// may own an older one: the sequence alone would miss a straggler. `ended` are such transactions with ids up to `hi`.
pub fn is_beyond(tick: &Tick, last_id: i64, ended: impl IntoIterator<Item = u64>) -> bool {
    last_id > tick.hi || ended.into_iter().any(|xid| tick.may_straggle(xid))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snap(xmax: u64, xip: &[u64]) -> Snapshot {
        Snapshot {
            xmax,
            xip: xip.to_vec(),
        }
    }

    #[test]
    fn what_a_tick_saw_is_in_no_later_window() {
        let a = Tick::after(&Tick::zero(), snap(10, &[4, 8]), 20, 12);
        let b = Tick::after(&a, snap(30, &[]), 40, 31);
        // An id up to `hi` was drawn by somebody whose transaction id is at most `h`.
        for xid in 2..=a.h {
            for id in 1..=a.hi {
                assert_eq!(in_window(&a, &b, id, xid), !a.snap.sees(xid), "{id} {xid}");
            }
        }
    }

    #[test]
    fn before_the_first_tick_nothing_was_seen() {
        let b = Tick::after(&Tick::zero(), snap(9, &[5]), 3, 10);
        assert!(in_window(&Tick::zero(), &b, 1, 3));
        assert!(!in_window(&Tick::zero(), &b, 2, 5));
        assert!(!in_window(&Tick::zero(), &b, 3, 9));
    }

    #[test]
    fn a_tick_whose_own_id_follows_its_snapshot_knows_of_everybody_who_may_straggle() {
        let a = Tick::after(&Tick::zero(), snap(10, &[4]), 20, 10);
        assert_eq!((a.young, a.may_straggle(10)), (None, false));
        let b = Tick::after(&Tick::zero(), snap(10, &[4]), 20, 11);
        assert!(b.may_straggle(10) && b.may_straggle(4));
    }

    #[test]
    fn who_has_come_since_the_last_id_was_drawn_owns_none() {
        let a = Tick::after(&Tick::zero(), snap(10, &[4]), 20, 12);
        let b = Tick::after(&a, snap(15, &[4, 11, 14]), 20, 16);
        assert_eq!(b.open, [4, 11]);
        assert!(!b.may_straggle(14) && !b.may_straggle(15));
        assert!(!is_beyond(&b, 20, [14]) && is_beyond(&b, 20, [11]) && is_beyond(&b, 21, []));
    }
}
