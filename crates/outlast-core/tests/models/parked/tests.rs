use super::{LED, LEVELS, Lanes, Level, ORDER, Twin};
use crate::{breaks, holds};

#[test]
fn a_key_keeps_its_order_and_nobody_waits_for_nobody() {
    for level in LEVELS {
        holds(Lanes::of(Twin::None, level));
    }
}

#[test]
#[ignore = "a minute or more: ./run prove models"]
fn the_same_with_more_events_failures_and_deaths() {
    for level in LEVELS {
        holds(Lanes {
            events: 4,
            failures: 3,
            spent: 2,
            deaths: 2,
            ..Lanes::of(Twin::None, level)
        });
    }
}

#[test]
fn a_parker_that_only_reads_is_found_out() {
    for level in LEVELS {
        breaks(Lanes::of(Twin::PlainRead, level), LED);
    }
}

#[test]
fn a_parker_that_locks_and_writes_nothing_is_found_out_above_read_committed() {
    breaks(Lanes::of(Twin::LocksOnly, Level::Repeatable), LED);
    holds(Lanes::of(Twin::LocksOnly, Level::Committed));
}

#[test]
fn a_release_that_looks_in_the_statement_that_waits_is_found_out() {
    breaks(Lanes::of(Twin::SameStatement, Level::Committed), LED);
}

#[test]
fn a_claim_that_does_not_look_at_parked_keys_is_found_out() {
    for twin in [Twin::Blind, Twin::BlindAfterDeath] {
        breaks(Lanes::of(twin, Level::Committed), ORDER);
    }
}

#[test]
fn a_parker_that_finds_no_row_and_parks_all_the_same_is_found_out() {
    breaks(Lanes::of(Twin::ParksAnyway, Level::Committed), LED);
}

#[test]
fn a_release_of_all_at_once_is_found_out() {
    breaks(Lanes::of(Twin::ReleasesAll, Level::Committed), ORDER);
}

#[test]
fn a_skip_that_lets_nobody_go_is_found_out() {
    breaks(Lanes::of(Twin::SkipForgets, Level::Committed), LED);
}
