//! Entities: what their provider shows is the truth, and it stands in the provider's own book.

mod e10;
mod e6;
mod office;

use super::Scenario;

/// What is changed while it is converged.
pub(super) fn e6_scenarios() -> Vec<Scenario> {
    e6::scenarios()
}

/// What is deleted with what the provider calls it.
pub(super) fn e10_scenarios() -> Vec<Scenario> {
    e10::scenarios()
}
