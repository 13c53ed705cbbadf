use super::{CHARGED, Case, INNOCENT, PLACE, STOPS, Twin};
use crate::{breaks, holds};

#[test]
fn what_no_process_survives_is_a_persons_and_what_runs_beside_it_is_done() {
    holds(Case::of(Twin::None));
}

#[test]
#[ignore = "a minute or more: ./run prove models"]
fn the_same_with_more_deaths_and_lapses() {
    for (workers, deaths, lapses) in [(3, 1, 1), (2, 1, 3), (2, 2, 1)] {
        holds(Case {
            workers,
            deaths,
            lapses,
            ..Case::of(Twin::None)
        });
    }
}

#[test]
fn a_completion_by_who_has_lost_it_is_found_out() {
    breaks(Case::of(Twin::NoFence), PLACE);
}

#[test]
fn a_start_that_is_never_written_down_is_found_out() {
    breaks(Case::of(Twin::NoMarks), STOPS);
}

#[test]
fn a_death_that_is_charged_to_what_was_only_claimed_is_found_out() {
    breaks(Case::of(Twin::ChargesClaims), CHARGED);
}

#[test]
fn suspects_that_run_together_are_found_out() {
    breaks(Case::of(Twin::Together), INNOCENT);
}
