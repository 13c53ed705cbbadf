use super::{DOUBLED, LOST, Log, ORDER, REST, Reader, Step, Stragglers};
use crate::{breaks, holds};

#[test]
fn a_window_loses_nothing_doubles_nothing_and_keeps_the_order_of_what_was_visible() {
    assert!(holds(Log::product(3, 1, 3)) > 10_000);
    holds(Log::product(2, 2, 3));
}

#[test]
fn sessions_that_write_again_lose_nothing() {
    holds(Log {
        transactions: 2,
        rolls_back: false,
        ..Log::product(2, 1, 2)
    });
}

#[test]
fn readers_of_one_consumer_take_turns() {
    let two = Log {
        readers: 2,
        ..Log::product(2, 1, 2)
    };
    holds(two.clone());
    breaks(Log { lock: false, ..two }, DOUBLED);
}

#[test]
#[ignore = "a minute or more: ./run prove models"]
fn the_same_with_more_writers_and_ticks() {
    holds(Log::product(3, 1, 4));
    holds(Log::product(3, 2, 2));
    holds(Log::product(4, 1, 2));
    holds(Log {
        transactions: 2,
        ..Log::product(2, 1, 3)
    });
}

#[test]
fn an_id_cursor_is_found_out() {
    let twin = Log {
        reader: Reader::IdCursor,
        ..Log::product(2, 1, 2)
    };
    breaks(twin, LOST);
}

#[test]
fn an_xmin_cursor_is_found_out() {
    // It loses nothing. But it takes three transactions to turn one key's order round.
    let twin = |sessions| Log {
        reader: Reader::XminCursor,
        ..Log::product(sessions, 1, 2)
    };
    breaks(twin(3), ORDER);
    holds(twin(2));
}

#[test]
fn each_other_order_of_a_tick_is_found_out() {
    use Step::{H, Hi, Snap};
    for (tick, property) in [
        ([Hi, Snap, H], DOUBLED),
        ([Hi, H, Snap], DOUBLED),
        ([Snap, H, Hi], LOST),
        // A transaction id from before the tick: of an earlier write, or a caller's.
        ([H, Snap, Hi], LOST),
        ([H, Hi, Snap], LOST),
    ] {
        println!("{tick:?}");
        let twin = Log {
            tick,
            ..Log::product(2, 1, 2)
        };
        breaks(twin, property);
    }
}

#[test]
fn a_window_without_stragglers_is_found_out() {
    for stragglers in [Stragglers::Nobody, Stragglers::Open] {
        let twin = Log {
            reader: Reader::Windows(stragglers),
            ..Log::product(2, 1, 2)
        };
        breaks(twin, LOST);
    }
}

#[test]
fn a_sequence_with_a_cache_is_found_out() {
    let twin = Log {
        cache: 2,
        transactions: 2,
        ..Log::product(2, 1, 2)
    };
    breaks(twin, LOST);
}

#[test]
fn who_asks_the_sequence_alone_is_found_out() {
    let twin = Log {
        looks_for_stragglers: false,
        ..Log::product(2, 1, 2)
    };
    breaks(twin, REST);
}
