use super::{
    Case, KINDS, Kind, Twin,
    properties::{EARLY, ENDS, ONCE, ONE_SEND, TRUE_END, UNKNOWN, WAITING},
};
use crate::{breaks, holds};

#[test]
fn whatever_goes_wrong_a_command_has_its_effect_once_or_a_person_is_asked() {
    for kind in KINDS {
        holds(Case::of(kind));
    }
}

#[test]
fn as_time_passes_it_is_sent_again_asked_after_and_at_last_a_persons() {
    for kind in [Kind::Replays, Kind::Asked] {
        holds(in_time(&Case {
            faults: 1,
            ..Case::of(kind)
        }));
    }
}

#[test]
fn told_by_key_at_any_time_it_ends_as_it_was_told() {
    for kind in KINDS {
        holds(Case {
            webhooks: 1,
            ..Case::of(kind)
        });
    }
}

#[test]
fn told_before_it_is_there_and_told_lies_it_ends_once_and_is_not_sent() {
    for kind in [Kind::KeyedAsked, Kind::Keyless] {
        holds(Case {
            faults: 1,
            webhooks: 3,
            lies: true,
            ..Case::of(kind)
        });
    }
}

#[test]
fn wanted_gone_it_goes_only_without_an_effect() {
    for kind in KINDS {
        holds(Case {
            cancels: 1,
            ..Case::of(kind)
        });
    }
}

#[test]
#[ignore = "a minute or more: ./run prove models"]
fn the_same_with_more_workers_and_more_that_goes_wrong() {
    for kind in KINDS {
        holds(Case {
            attempts: 3,
            faults: 3,
            webhooks: 1,
            cancels: 1,
            ..Case::of(kind)
        });
        holds(Case {
            workers: 3,
            ..Case::of(kind)
        });
        holds(Case {
            moments: 5,
            ..Case::of(kind)
        });
        holds(Case {
            moments: 3,
            attempts: 3,
            persons: 2,
            ..Case::of(kind)
        });
    }
}

/// The window of a provider that honours keys comes to its end.
fn in_time(case: &Case) -> Case {
    Case {
        moments: 3,
        ..case.clone()
    }
}

#[test]
fn whoever_has_lost_his_lease_and_is_believed_is_found_out() {
    breaks(Case::twin(Kind::Asked, Twin::NoFence), ONCE);
}

#[test]
fn a_new_key_for_each_send_is_found_out() {
    for kind in [Kind::Replays, Kind::Keyed] {
        breaks(Case::twin(kind, Twin::NewKey), ONCE);
    }
}

#[test]
fn a_resend_on_timeout_is_found_out() {
    breaks(Case::twin(Kind::Keyless, Twin::ResendsBlindly), ONE_SEND);
    breaks(Case::twin(Kind::Asked, Twin::ResendsBlindly), ONCE);
}

#[test]
fn a_resend_in_the_last_part_of_the_window_is_found_out() {
    breaks(in_time(&Case::twin(Kind::Replays, Twin::NoMargin)), ONCE);
}

#[test]
fn a_window_that_begins_anew_after_a_proof_is_found_out() {
    breaks(in_time(&Case::twin(Kind::Keyed, Twin::WindowAnew)), ONCE);
}

#[test]
fn a_claim_that_calls_it_running_is_found_out() {
    for kind in KINDS {
        breaks(Case::twin(kind, Twin::RunningAtClaim), UNKNOWN);
    }
}

#[test]
fn a_send_without_a_second_look_at_the_lease_is_found_out() {
    breaks(Case::twin(Kind::Asked, Twin::NoSecondLook), ONCE);
}

#[test]
fn a_clean_failure_that_clears_what_was_sent_is_found_out() {
    for kind in [Kind::Replays, Kind::Keyed] {
        breaks(Case::twin(kind, Twin::ForgetsSent), WAITING);
        let twin = Case {
            cancels: 1,
            ..Case::twin(kind, Twin::ForgetsSent)
        };
        breaks(twin, TRUE_END);
    }
}

#[test]
fn a_refusal_that_is_believed_after_an_ambiguous_send_is_found_out() {
    breaks(Case::twin(Kind::Keyed, Twin::BelievesRefusal), TRUE_END);
    // Who repeats his first answer may be believed.
    holds(Case::twin(Kind::Replays, Twin::BelievesRefusal));
}

#[test]
fn a_late_refusal_that_is_believed_although_it_was_sent_again_is_found_out() {
    breaks(Case::twin(Kind::Keyed, Twin::BelievesLateRefusal), TRUE_END);
}

#[test]
fn a_handlers_nothing_to_do_that_is_believed_after_an_ambiguous_send_is_found_out() {
    breaks(Case::twin(Kind::Replays, Twin::BelievesObsolete), TRUE_END);
}

#[test]
fn a_cancellation_that_ignores_what_was_sent_is_found_out() {
    for kind in KINDS {
        let twin = Case {
            cancels: 1,
            ..Case::twin(kind, Twin::CancelIgnoresSent)
        };
        breaks(twin, TRUE_END);
    }
}

#[test]
fn a_look_up_that_is_applied_to_whatever_it_has_become_is_found_out() {
    for kind in [Kind::Asked, Kind::KeyedAsked] {
        let twin = Case {
            webhooks: 1,
            ..Case::twin(kind, Twin::LookWithoutCompare)
        };
        breaks(twin, ENDS);
    }
}

#[test]
fn a_look_up_whose_ignorance_is_proof_is_found_out() {
    breaks(Case::twin(Kind::Asked, Twin::UnsureIsProof), ONCE);
}

#[test]
fn a_settlement_that_is_dropped_because_it_came_first_is_found_out() {
    let twin = Case {
        webhooks: 1,
        lies: true,
        ..Case::twin(Kind::Keyless, Twin::DropsEarly)
    };
    breaks(twin, EARLY);
}
