use super::{CLEANED, Case, KEPT, ONE, REST, Twin};
use crate::{breaks, holds};

#[test]
fn the_provider_has_what_was_wanted_last_and_everything_deleted_is_cleaned_up() {
    holds(Case::of(Twin::None));
}

#[test]
#[ignore = "a minute or more: ./run prove models"]
fn the_same_with_more_changes_and_lapses() {
    for (changes, deletes, runners, lapses) in [(3, 1, 1, 0), (3, 1, 2, 1), (2, 1, 3, 3)] {
        holds(Case {
            changes,
            deletes,
            runners,
            lapses,
            ..Case::of(Twin::None)
        });
    }
}

#[test]
fn a_completion_up_to_an_id_is_found_out() {
    breaks(Case::of(Twin::Below), REST);
    breaks(Case::of(Twin::Below), CLEANED);
}

#[test]
fn a_fold_that_goes_on_behind_an_id_is_found_out() {
    for twin in [Twin::Cursor, Twin::BehindDrawn] {
        breaks(Case::of(twin), REST);
    }
}

#[test]
fn a_mark_that_draws_its_id_before_its_transaction_has_one_is_found_out() {
    let twin = Case {
        changes: 3,
        deletes: 0,
        runners: 1,
        lapses: 0,
        ..Case::of(Twin::DrawsFirst)
    };
    breaks(twin, REST);
}

#[test]
fn a_counter_that_is_read_and_written_is_found_out() {
    breaks(Case::of(Twin::Counter), REST);
}

#[test]
fn a_completion_that_forgets_what_came_since_its_claim_is_found_out() {
    breaks(Case::of(Twin::ForgetsNews), REST);
}

#[test]
fn a_fold_and_a_completion_without_a_common_lock_are_found_out() {
    breaks(Case::of(Twin::NoLock), REST);
}

#[test]
fn a_fold_that_makes_it_due_while_somebody_has_it_is_found_out() {
    breaks(Case::of(Twin::DueTwice), ONE);
}

#[test]
fn a_tombstone_that_a_later_change_takes_away_is_found_out() {
    breaks(Case::of(Twin::DropsTombstone), CLEANED);
}

#[test]
fn refs_that_are_kept_without_a_look_at_the_lease_are_found_out() {
    breaks(Case::of(Twin::KeepsLate), KEPT);
}

#[test]
fn a_reread_in_an_older_transaction_is_found_out() {
    breaks(Case::of(Twin::OldSnapshot), REST);
}

#[test]
fn a_provider_that_takes_what_comes_last_needs_more_than_a_lease() {
    // The documentation says so: without the number a sleeper may overwrite.
    breaks(Case::of(Twin::NoFence), REST);
}
