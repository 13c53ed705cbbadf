//! What the clients will ask for. The same seed makes the same plan.

use std::time::Duration;

use fastrand::Rng;

use crate::payloads::Payload;

/// One request of one client.
#[derive(Debug)]
pub(crate) struct Request {
    /// The client's own name for it, by which it is found again if no answer comes.
    pub(crate) name: String,
    pub(crate) work: Work,
}

#[derive(Debug)]
pub(crate) enum Work {
    Book {
        guest: String,
        total: String,
        /// The client goes away after so long, wherever the service is by then.
        leave_after: Option<Duration>,
    },
    Deliver(Payload),
}

const GUESTS: [&str; 8] = [
    "Ada Lovelace",
    "Zoë Müller",
    "Jean-Luc O'Neil",
    "Łukasz \"Lu\" Nowak",
    "李小龍",
    "Frida\tKahlo",
    "نجيب محفوظ",
    "🎪 & Co.",
];

/// So many bookings and all the payloads, in any order.
pub(crate) fn plan(bookings: usize, payloads: Vec<Payload>, seed: u64) -> Vec<Request> {
    let mut random = Rng::with_seed(seed);
    let booked: Vec<_> = (0..bookings).map(|_| book(&mut random)).collect();
    let mut works: Vec<_> = booked
        .into_iter()
        .chain(payloads.into_iter().map(Work::Deliver))
        .collect();
    random.shuffle(&mut works);
    let name = |(nth, work)| Request {
        name: format!("r{nth:06}"),
        work,
    };
    works.into_iter().enumerate().map(name).collect()
}

fn book(random: &mut Rng) -> Work {
    let guest = GUESTS[random.usize(..GUESTS.len())].to_owned();
    // One in 16 costs nothing: refused after the event was written. One client in 25 does not wait for the answer.
    let free = random.u32(..16) == 0;
    let cents = if free { 0 } else { random.u32(100..100_000) };
    let leave_after =
        (random.u32(..25) == 0).then(|| Duration::from_micros(random.u64(500..8_000)));
    Work::Book {
        guest,
        total: format!("{}.{:02}", cents / 100, cents % 100),
        leave_after,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_plan() {
        let show = |seed| format!("{:?}", plan(200, Vec::new(), seed));
        assert_eq!(show(7), show(7));
        assert_ne!(show(7), show(8));
    }
}
