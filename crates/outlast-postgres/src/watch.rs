//! Is there news in the log? Judged from one cheap statement.
//!
//! News is a drawn id that was not there at the last look, or the end of a transaction that may own such an id: one that
//! was open when it was drawn. Others are not waited for, so a database that is busy with other work is quiet.
//!
//! An id is drawn when an event is written, which is before it is committed: a look that comes in between is asked whether
//! there is anything yet, because a claim that finds nothing costs much more.

use tokio_postgres::Row;

use crate::Error;

/// What a look has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Nothing.
    None,
    /// Claims may find something that they did not find before it.
    Some,
    /// Ids above this one were drawn, and everybody who has one may still be open: [`Watch::VISIBLE`] tells. If not, their end
    /// will be news.
    Above(i64),
}

/// What the last looks have seen.
#[derive(Debug, Default)]
pub struct Watch {
    last: i64,
    /// Open transactions that may own an id up to `last`.
    open: Vec<u64>,
    /// Transactions that no snapshot has shown yet and that may own one too: from the first number to below the second.
    young: Option<(u64, u64)>,
}

impl Watch {
    /// The snapshot first, then the last id: in the other order a commit between the two would hide. `$1` is
    /// [`last`](Self::last): where the id has moved, an own transaction id is drawn after it, because nothing else tells
    /// how young the owner may be (a snapshot does not show who began after the last one that ended).
    pub const LOOK: &'static str =
        "select x.snap::text, x.last, case when x.last <> $1 then pg_current_xact_id()::text end
         from (select s.snap, coalesce(pg_sequence_last_value('outlast._event_id'), 0) as last
               from (select pg_current_snapshot() as snap offset 0) s offset 0) x";

    /// A look that waits in the server until an id is drawn, `$2` milliseconds at most: [`look`](Self::LOOK) and
    /// [`visible`](Self::VISIBLE) in one. Only when [`is_settled`](Self::is_settled): who is waited for otherwise draws no id when he ends.
    pub const AWAIT: &'static str =
        "select snap, last_id, own, visible from outlast._await($1, $2)";

    /// Whether there is an event above the id `$1` that can be seen by now.
    pub const VISIBLE: &'static str = "select outlast._visible_above($1)";

    /// The last id that a look has seen.
    pub fn last(&self) -> i64 {
        self.last
    }

    /// Whether everybody who may own an id up to the last one has ended: whoever commits something from now on draws a
    /// new one.
    pub fn is_settled(&self) -> bool {
        self.open.is_empty() && self.young.is_none()
    }

    /// Takes in one look.
    pub fn news(&mut self, rows: &[Row]) -> Result<News, Error> {
        let row = rows
            .first()
            .ok_or_else(|| Error::Unexpected("no row from a look at the log".into()))?;
        let snapshot: &str = row.try_get(0)?;
        let (xmax, xip) = parse(snapshot)
            .ok_or_else(|| Error::Unexpected(format!("not a snapshot: {snapshot}")))?;
        let own: Option<&str> = row.try_get(2)?;
        let own = own.and_then(|own| own.parse().ok());
        Ok(self.judge(xmax, xip, row.try_get(1)?, own))
    }

    fn judge(&mut self, xmax: u64, xip: Vec<u64>, last: i64, own: Option<u64>) -> News {
        // Less than before: the sequence was set back by a restore.
        if last != self.last {
            let before = std::mem::replace(&mut self.last, last);
            // What was waited for before may have ended.
            let known = std::mem::replace(&mut self.open, xip);
            let ended = known.iter().any(|xid| !self.open.contains(xid)) || self.young.is_some();
            self.young = own.map(|own| (xmax, own)).filter(|(xmax, own)| xmax < own);
            return match last > before && !ended && !self.is_settled() {
                true => News::Above(before),
                false => News::Some,
            };
        }
        let known = self.open.len();
        self.open.retain(|xid| xip.contains(xid));
        let mut ended = self.open.len() < known;
        if let Some((from, below)) = self.young.take() {
            for xid in from..below.min(xmax) {
                if xip.contains(&xid) {
                    self.open.push(xid);
                } else {
                    ended = true;
                }
            }
            self.young = (xmax < below).then_some((xmax.max(from), below));
        }
        match ended {
            true => News::Some,
            false => News::None,
        }
    }
}

/// `xmin:xmax:xip,xip` → (xmax, open).
fn parse(snapshot: &str) -> Option<(u64, Vec<u64>)> {
    let mut parts = snapshot.split(':');
    let (_xmin, xmax, xip) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?);
    let xip = xip
        .split(',')
        .filter(|xid| !xid.is_empty())
        .map(str::parse)
        .collect::<Result<_, _>>()
        .ok()?;
    Some((xmax, xip))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At rest at id 5; 9 was the last transaction.
    fn quiet() -> Watch {
        let mut watch = Watch::default();
        watch.judge(10, vec![], 5, Some(10));
        watch.judge(11, vec![], 5, None);
        watch
    }

    #[test]
    fn a_drawn_id_is_news_once_and_other_transactions_are_none() {
        let mut watch = quiet();
        assert_eq!(watch.judge(11, vec![], 6, Some(11)), News::Some);
        assert_eq!(watch.judge(12, vec![], 6, None), News::None);
        assert_eq!(
            watch.judge(13, vec![12], 6, None),
            News::None,
            "a younger transaction cannot own an id that was drawn before it"
        );
        assert_eq!(watch.judge(14, vec![], 6, None), News::None);
    }

    #[test]
    fn the_end_of_a_transaction_that_was_open_when_an_id_was_drawn_is_news() {
        let mut watch = quiet();
        assert_eq!(
            watch.judge(13, vec![11], 6, Some(13)),
            News::Above(5),
            "somebody drew an id, and one who is open may be it"
        );
        assert_eq!(watch.judge(14, vec![11], 6, None), News::None);
        assert!(!watch.is_settled());
        assert_eq!(watch.judge(14, vec![], 6, None), News::Some, "he has ended");
        assert!(watch.is_settled());
        assert_eq!(watch.judge(14, vec![], 6, None), News::None);
    }

    #[test]
    fn an_end_is_news_also_in_a_look_that_sees_new_ids() {
        let mut watch = quiet();
        assert_eq!(watch.judge(13, vec![11], 6, Some(13)), News::Above(5));
        assert_eq!(
            watch.judge(15, vec![14], 7, Some(15)),
            News::Some,
            "11 may have committed 6, which is not above 6"
        );
        let mut watch = quiet();
        assert_eq!(watch.judge(11, vec![], 6, Some(12)), News::Above(5));
        assert_eq!(
            watch.judge(14, vec![13], 7, Some(14)),
            News::Some,
            "so may 11, which no snapshot has shown"
        );
        assert_eq!(watch.judge(15, vec![13], 8, Some(15)), News::Above(7));
        assert_eq!(
            watch.judge(15, vec![13], 3, Some(15)),
            News::Some,
            "set back"
        );
    }

    #[test]
    fn a_transaction_that_no_snapshot_has_shown_may_own_the_last_id() {
        let mut watch = quiet();
        assert_eq!(
            watch.judge(11, vec![], 6, Some(12)),
            News::Above(5),
            "11 drew id 6, and nobody who began after it has ended"
        );
        let still = "nor has our own look";
        assert_eq!(watch.judge(11, vec![], 6, None), News::None, "{still}");
        let still = "it is still open";
        assert_eq!(watch.judge(13, vec![11], 6, None), News::None, "{still}");
        assert_eq!(watch.judge(13, vec![], 6, None), News::Some, "it has ended");
        assert_eq!(watch.judge(20, vec![], 6, None), News::None);
    }

    #[test]
    fn snapshots_are_read_as_postgresql_writes_them() {
        assert_eq!(parse("730:733:730,732"), Some((733, vec![730, 732])));
        assert_eq!(parse("730:730:"), Some((730, vec![])));
        assert_eq!(parse("nonsense"), None);
    }
}
