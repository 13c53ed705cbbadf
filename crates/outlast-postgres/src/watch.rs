//! Is there news in the log? Judged from one cheap statement.
//!
//! News is a drawn id that was not there at the last look, or the end of a transaction that may own such an id: one that
//! was open when it was drawn. Others are not waited for, so a database that is busy with other work is quiet.

use tokio_postgres::Row;

use crate::Error;

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

    /// The last id that a look has seen.
    pub fn last(&self) -> i64 {
        self.last
    }

    /// Whether everybody who may own an id up to the last one has ended: whoever commits something from now on draws a
    /// new one.
    pub fn is_settled(&self) -> bool {
        self.open.is_empty() && self.young.is_none()
    }

    /// Takes in one look; true when claims may find something that they did not find before it.
    pub fn news(&mut self, rows: &[Row]) -> Result<bool, Error> {
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

    fn judge(&mut self, xmax: u64, xip: Vec<u64>, last: i64, own: Option<u64>) -> bool {
        // Less than before: the sequence was set back by a restore.
        if last != self.last {
            self.last = last;
            self.open = xip;
            self.young = own.map(|own| (xmax, own));
            return true;
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
        ended
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
        assert!(watch.judge(11, vec![], 6, Some(11)));
        assert!(!watch.judge(12, vec![], 6, None));
        assert!(
            !watch.judge(13, vec![12], 6, None),
            "a younger transaction cannot own an id that was drawn before it"
        );
        assert!(!watch.judge(14, vec![], 6, None));
    }

    #[test]
    fn the_end_of_a_transaction_that_was_open_when_an_id_was_drawn_is_news() {
        let mut watch = quiet();
        assert!(
            watch.judge(13, vec![11], 6, Some(13)),
            "somebody drew an id and has not committed"
        );
        assert!(!watch.judge(14, vec![11], 6, None));
        assert!(!watch.is_settled());
        assert!(watch.judge(14, vec![], 6, None), "he has committed");
        assert!(watch.is_settled());
        assert!(!watch.judge(14, vec![], 6, None));
    }

    #[test]
    fn a_transaction_that_no_snapshot_has_shown_may_own_the_last_id() {
        let mut watch = quiet();
        assert!(
            watch.judge(11, vec![], 6, Some(12)),
            "11 drew id 6, and nobody who began after it has ended"
        );
        assert!(!watch.judge(11, vec![], 6, None), "nor has our own look");
        assert!(!watch.judge(13, vec![11], 6, None), "it is still open");
        assert!(watch.judge(13, vec![], 6, None), "it has ended");
        assert!(!watch.judge(20, vec![], 6, None));
    }

    #[test]
    fn snapshots_are_read_as_postgresql_writes_them() {
        assert_eq!(parse("730:733:730,732"), Some((733, vec![730, 732])));
        assert_eq!(parse("730:730:"), Some((730, vec![])));
        assert_eq!(parse("nonsense"), None);
    }
}
