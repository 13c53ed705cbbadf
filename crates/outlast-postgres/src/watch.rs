//! Is there news in the log? Judged from one cheap statement, without a transaction id.
//!
//! News is a drawn id that was not there at the last look, or the end of a transaction that was open when ids were last
//! drawn, since it may own one of them. Others are not waited for, so a database that is busy with other work is quiet.

use tokio_postgres::Row;

use crate::Error;

/// What the last looks have seen.
#[derive(Debug, Default)]
pub struct Watch {
    last: i64,
    /// Open transactions that may own an id up to `last`.
    open: Vec<u64>,
    /// The look that saw `last` move; ids drawn between its snapshot and its reading may belong to younger ones.
    moved_at: Option<u64>,
}

impl Watch {
    /// The snapshot first, then the last id: in the other order a commit between the two would hide.
    pub const LOOK: &'static str =
        "select s.snap::text, coalesce(pg_sequence_last_value('outlast._event_id'), 0)
         from (select pg_current_snapshot() as snap offset 0) s";

    /// Takes in one look; true when claims may find something that they did not find before it.
    pub fn news(&mut self, rows: &[Row]) -> Result<bool, Error> {
        let row = rows
            .first()
            .ok_or_else(|| Error::Unexpected("no row from a look at the log".into()))?;
        let snapshot: &str = row.try_get(0)?;
        let (xmax, xip) = parse(snapshot)
            .ok_or_else(|| Error::Unexpected(format!("not a snapshot: {snapshot}")))?;
        Ok(self.judge(xmax, xip, row.try_get(1)?))
    }

    fn judge(&mut self, xmax: u64, xip: Vec<u64>, last: i64) -> bool {
        // Less than before: the sequence was set back by a restore.
        let moved = last != self.last;
        let ended = self.open.iter().any(|xid| !xip.contains(xid));
        // The look after a move: whoever began between that snapshot and now may own an id, ended or not.
        let younger = self.moved_at.take().is_some_and(|before| xmax > before);
        if moved {
            self.last = last;
            self.moved_at = Some(xmax);
        }
        if moved || younger {
            self.open = xip;
        } else if ended {
            self.open.retain(|xid| xip.contains(xid));
        }
        moved || ended || younger
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

    fn quiet() -> Watch {
        let mut watch = Watch::default();
        watch.judge(10, vec![], 5);
        watch.judge(10, vec![], 5);
        watch
    }

    #[test]
    fn a_drawn_id_is_news_once_and_other_transactions_are_none() {
        let mut watch = quiet();
        assert!(watch.judge(11, vec![], 6));
        assert!(!watch.judge(11, vec![], 6));
        assert!(
            !watch.judge(12, vec![11], 6),
            "a younger transaction cannot own an id that was drawn before it"
        );
        assert!(!watch.judge(13, vec![], 6));
    }

    #[test]
    fn the_end_of_a_transaction_that_was_open_when_an_id_was_drawn_is_news() {
        let mut watch = quiet();
        assert!(
            watch.judge(12, vec![11], 6),
            "somebody drew an id and has not committed"
        );
        assert!(!watch.judge(12, vec![11], 6));
        assert!(watch.judge(12, vec![], 6), "he has committed");
        assert!(!watch.judge(12, vec![], 6));
    }

    #[test]
    fn a_transaction_younger_than_the_snapshot_may_own_the_last_id() {
        let mut watch = quiet();
        assert!(
            watch.judge(11, vec![], 6),
            "12 drew id 6 after the snapshot was taken"
        );
        assert!(watch.judge(13, vec![], 6), "12 has ended since");
        assert!(!watch.judge(13, vec![], 6));
    }

    #[test]
    fn snapshots_are_read_as_postgresql_writes_them() {
        assert_eq!(parse("730:733:730,732"), Some((733, vec![730, 732])));
        assert_eq!(parse("730:730:"), Some((730, vec![])));
        assert_eq!(parse("nonsense"), None);
    }
}
