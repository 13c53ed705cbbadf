use super::{AGAIN, Batch, LEVELS, LOCKED, LOST, Level, STALE, Twin};
use crate::{breaks, holds};

#[test]
fn of_one_batch_everything_is_done_once_whoever_ends_it() {
    for level in LEVELS {
        holds(Batch::of(Twin::None, level));
    }
}

#[test]
fn the_last_seal_and_the_end_in_one_commit_may_be_called_twice() {
    holds(Batch::called_twice(Twin::None));
    breaks(Batch::called_twice(Twin::SealsFirst), LOCKED);
}

#[test]
#[ignore = "a minute or more: ./run prove models"]
fn the_same_with_more_workers_lapses_and_deaths() {
    for level in LEVELS {
        for (workers, lapses, deaths) in [(2, 3, 2), (3, 2, 1)] {
            holds(Batch {
                workers,
                lapses,
                deaths,
                ..Batch::of(Twin::None, level)
            });
        }
    }
}

#[test]
fn a_token_that_is_read_without_a_lock_is_found_out() {
    breaks(Batch::of(Twin::PlainRead, Level::Committed), STALE);
}

#[test]
fn a_proof_that_ends_before_the_seal_begins_is_found_out() {
    for level in LEVELS {
        breaks(Batch::of(Twin::ProvesBefore, level), STALE);
    }
}

#[test]
fn a_reclaim_that_keeps_the_token_is_found_out() {
    for level in LEVELS {
        breaks(Batch::of(Twin::KeepsToken, level), STALE);
    }
}

#[test]
fn a_reclaim_by_update_is_found_out_above_read_committed() {
    breaks(Batch::of(Twin::UpdatesRow, Level::Repeatable), STALE);
    holds(Batch::of(Twin::UpdatesRow, Level::Committed));
}

#[test]
fn enders_that_lock_the_row_only_are_found_out_in_read_committed() {
    breaks(Batch::of(Twin::RowOnly, Level::Committed), STALE);
    holds(Batch::of(Twin::RowOnly, Level::Repeatable));
}

#[test]
fn a_reclaim_that_looks_before_it_locks_is_found_out() {
    for level in LEVELS {
        breaks(Batch::of(Twin::LooksFirst, level), AGAIN);
    }
}

#[test]
fn an_end_that_believes_the_handler_is_found_out() {
    for level in LEVELS {
        breaks(Batch::of(Twin::Believes, level), LOST);
    }
}
