//! Which seeds a random run takes: few by default, more on request, one again to look at it.

use std::env;

/// `default` seeds, or as many as `OUTLAST_SEEDS` says, or the one of `OUTLAST_SEED`.
pub(crate) fn seeds(default: u64) -> Vec<u64> {
    if let Some(seed) = number("OUTLAST_SEED") {
        return vec![seed];
    }
    (1..=number("OUTLAST_SEEDS").unwrap_or(default)).collect()
}

/// Whether the long forms run.
pub(crate) fn long() -> bool {
    number("OUTLAST_SEEDS").is_some()
}

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} must be a number, not {text}")),
    )
}
