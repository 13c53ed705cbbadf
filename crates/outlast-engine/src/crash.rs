//! Named points at which a death hurts most: a process can be made to kill or to stop itself exactly there.
//!
//! For our own drills. Compiled in with the feature `crash-points` only; even then nothing happens unless the environment
//! says `OUTLAST_CRASH=point[:nth]` (SIGKILL) or `OUTLAST_PAUSE=point[:nth]` (SIGSTOP; whoever watches sends SIGCONT).
//! Without the feature [`at`] is empty. Every point has a drill: `outlast-testkit/src/drill/rows/crash.rs`.
#![cfg_attr(
    not(feature = "crash-points"),
    expect(
        unreachable_pub,
        dead_code,
        reason = "public, and complete, with the feature only"
    )
)]

/// Where a process can be made to die or to stop. Closed: a new point needs a drill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Point {
    /// The consumers are registered, nothing was claimed.
    Registered,
    /// A claim has committed, nothing of it has started.
    Claimed,
    /// A lapsed batch was taken over, nothing of it has started.
    Reclaimed,
    /// A parked event was claimed, its try has not started.
    ParkedClaimed,
    /// A start was marked, the try has not started.
    Marked,
    /// The transaction of a handler was begun, the handler has not started.
    Begun,
    /// Inside a handler: a drill's own handler says where.
    InHandler,
    /// The handler has returned, the seal was not sent.
    Sealing,
    /// The seal was written, COMMIT was not sent.
    Sealed,
    /// COMMIT was answered, nobody was told.
    Committed,
    /// COMMIT was not answered, nobody has looked for the seal.
    Unsure,
    /// Handlers of outside effects have returned, their seals were not sent.
    Flushing,
    /// Seals of outside effects were committed, nobody was told.
    Flushed,
    /// All handlers of a batch have returned, its end was not sent.
    Finishing,
    /// The end of a batch was committed, nobody was told.
    Finished,
    /// Leases were renewed, nobody was told.
    Renewed,
    /// A failure was recorded.
    Failed,
    /// A batch was given back.
    HandedBack,
    /// An intent was written, the caller's COMMIT was not sent.
    Emitted,
}

/// A process that was told to die or to stop here does so when it comes by for the nth time.
#[cfg(not(feature = "crash-points"))]
#[inline(always)]
pub const fn at(_: Point) {}

/// Whether this process was told to die or to stop here: where a point lies inside of what is otherwise one step, the
/// step is taken apart then.
#[cfg(not(feature = "crash-points"))]
#[inline(always)]
pub const fn is_armed(_: Point) -> bool {
    false
}

#[cfg(feature = "crash-points")]
pub use armed::{CRASH, PAUSE, at, is_armed};

#[cfg(feature = "crash-points")]
mod armed {
    use super::Point;
    use nix::sys::signal::{Signal, raise};
    use std::{
        env,
        str::FromStr,
        sync::{
            LazyLock,
            atomic::{AtomicU32, Ordering},
        },
    };

    /// The environment variable that names where to die.
    pub const CRASH: &str = "OUTLAST_CRASH";
    /// The environment variable that names where to stop.
    pub const PAUSE: &str = "OUTLAST_PAUSE";

    impl Point {
        /// Every point, in the order of this page.
        pub const ALL: [Self; 19] = [
            Self::Registered,
            Self::Claimed,
            Self::Reclaimed,
            Self::ParkedClaimed,
            Self::Marked,
            Self::Begun,
            Self::InHandler,
            Self::Sealing,
            Self::Sealed,
            Self::Committed,
            Self::Unsure,
            Self::Flushing,
            Self::Flushed,
            Self::Finishing,
            Self::Finished,
            Self::Renewed,
            Self::Failed,
            Self::HandedBack,
            Self::Emitted,
        ];

        /// The word that the environment uses.
        pub const fn as_str(self) -> &'static str {
            match self {
                Self::Registered => "registered",
                Self::Claimed => "claimed",
                Self::Reclaimed => "reclaimed",
                Self::ParkedClaimed => "parked-claimed",
                Self::Marked => "marked",
                Self::Begun => "begun",
                Self::InHandler => "in-handler",
                Self::Sealing => "sealing",
                Self::Sealed => "sealed",
                Self::Committed => "committed",
                Self::Unsure => "unsure",
                Self::Flushing => "flushing",
                Self::Flushed => "flushed",
                Self::Finishing => "finishing",
                Self::Finished => "finished",
                Self::Renewed => "renewed",
                Self::Failed => "failed",
                Self::HandedBack => "handed-back",
                Self::Emitted => "emitted",
            }
        }
    }

    impl FromStr for Point {
        type Err = String;

        fn from_str(word: &str) -> Result<Self, String> {
            let known = Self::ALL.into_iter().find(|point| point.as_str() == word);
            known.ok_or_else(|| format!("`{word}` is not a crash point"))
        }
    }

    /// What the environment told this process.
    struct Order {
        point: Point,
        nth: u32,
        seen: AtomicU32,
        signal: Signal,
        word: &'static str,
    }

    impl Order {
        fn read(variable: &str, signal: Signal, word: &'static str) -> Option<Self> {
            let text = env::var(variable).ok().filter(|text| !text.is_empty())?;
            let (point, nth) = text.split_once(':').unwrap_or((&text, "1"));
            let (point, nth) = (point.parse(), nth.parse());
            let (Ok(point), Ok(nth)) = (point, nth) else {
                // A drill with a wrong name would pass without its fault.
                panic!("{variable}={text} is not point[:nth]");
            };
            Some(Self {
                point,
                nth,
                seen: AtomicU32::new(0),
                signal,
                word,
            })
        }
    }

    static ORDERS: LazyLock<[Option<Order>; 2]> = LazyLock::new(|| {
        [
            Order::read(CRASH, Signal::SIGKILL, "dies"),
            Order::read(PAUSE, Signal::SIGSTOP, "stops"),
        ]
    });

    /// A process that was told to die or to stop here does so when it comes by for the nth time.
    pub fn at(point: Point) {
        for order in ORDERS.iter().flatten() {
            if order.point == point && order.seen.fetch_add(1, Ordering::Relaxed) + 1 == order.nth {
                let (word, nth) = (order.word, order.nth);
                eprintln!("crash point: {word} at {}:{nth}", point.as_str());
                // To this very thread: one to the process goes to whichever thread comes first, and this one would run on
                // for a while.
                raise(order.signal).expect("a thread may always signal itself");
            }
        }
    }

    /// Whether this process was told to die or to stop here.
    pub fn is_armed(point: Point) -> bool {
        let mut orders = ORDERS.iter().flatten();
        orders.any(|order| order.point == point)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn every_point_has_a_name_of_its_own() {
            for (at, point) in Point::ALL.into_iter().enumerate() {
                assert_eq!(point.as_str().parse(), Ok(point));
                assert_eq!(point as usize, at, "ALL misses one before {point:?}");
            }
        }
    }
}
