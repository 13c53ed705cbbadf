//! What of a name was taken a while ago: nothing below is looked at again. Under an old snapshot the index keeps all that was
//! ever taken, and each claim would step over it.
//!
//! A row may still come below: one that was written by a transaction which stayed open for longer. So the floors are left out
//! once a minute; whatever group that claim brings something of from below begins without one.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::name::Group;

/// What was taken so long ago is below the floor.
const AGE: Duration = Duration::from_secs(5);
/// How often everything is looked at.
const WHOLE: Duration = Duration::from_secs(60);
/// Only groups of which so many were taken are worth it.
const MANY: usize = 2000;
/// Of how many groups at most.
const GROUPS: usize = 32;
/// How often a place is noted.
const STEP: Duration = Duration::from_secs(1);

type Key = (String, String, i16);

#[derive(Debug, Default)]
struct Taken {
    jobs: usize,
    /// The highest number taken, by when.
    noted: VecDeque<(Instant, i64)>,
    floor: i64,
}

#[derive(Debug)]
pub(super) struct Floors {
    groups: HashMap<Key, Taken>,
    whole_at: Instant,
    /// The claim that is on its way looks at everything.
    whole: bool,
}

impl Floors {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            groups: HashMap::new(),
            whole_at: now + WHOLE,
            whole: false,
        }
    }

    /// What the next claim need not look at.
    pub(super) fn at(&mut self, now: Instant) -> Option<Value> {
        self.whole = now >= self.whole_at;
        if self.whole {
            self.whole_at = now + WHOLE;
            return None;
        }
        let mut floors = Vec::new();
        for ((account, tenant, priority), taken) in &mut self.groups {
            while let Some((at, seq)) = taken.noted.front().copied()
                && now.duration_since(at) >= AGE
            {
                taken.floor = taken.floor.max(seq);
                taken.noted.pop_front();
            }
            if taken.jobs >= MANY && taken.floor > 0 && floors.len() < GROUPS {
                floors.push(json!({"account": account, "tenant": tenant, "priority": priority, "above": taken.floor}));
            }
        }
        (!floors.is_empty()).then_some(Value::Array(floors))
    }

    /// What a claim has brought.
    pub(super) fn took(&mut self, groups: Vec<Group>, now: Instant) {
        if self.whole {
            // What nobody takes from any more is forgotten; it would only grow.
            self.groups
                .retain(|_, taken| !std::mem::take(&mut taken.noted).is_empty());
        }
        // One that ran alone stood nowhere.
        for group in groups.into_iter().filter(|group| group.seq > 0) {
            let key = (group.account, group.tenant, group.priority);
            let taken = self.groups.entry(key).or_default();
            if group.seq <= taken.floor {
                *taken = Taken::default();
            }
            taken.jobs += 1;
            match taken.noted.back_mut() {
                Some((at, seq)) if now.duration_since(*at) < STEP => *seq = group.seq.max(*seq),
                _ => taken.noted.push_back((now, group.seq)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(tenant: &str, seqs: std::ops::Range<i64>) -> Vec<Group> {
        let group = |seq| Group {
            account: String::new(),
            tenant: tenant.to_owned(),
            priority: 0,
            seq,
        };
        seqs.map(group).collect()
    }

    fn above(floors: &mut Floors, now: Instant) -> Option<i64> {
        floors.at(now)?.get(0)?.get("above")?.as_i64()
    }

    #[test]
    fn a_floor_is_what_was_taken_seconds_ago_of_a_group_with_many() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut floors = Floors::new(begin);
        assert_eq!(above(&mut floors, begin), None);
        floors.took(of("a", 1..3000), begin);
        floors.took(of("b", 3000..3010), begin);
        assert_eq!(above(&mut floors, at(4)), None, "it may still come below");
        floors.took(of("a", 3010..3020), at(4));
        assert_eq!(above(&mut floors, at(6)), Some(2999));
        assert_eq!(above(&mut floors, at(10)), Some(3019));
    }

    #[test]
    fn once_a_minute_everything_is_looked_at_and_what_comes_from_below_takes_its_floor_away() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut floors = Floors::new(begin);
        floors.took(of("a", 1..3000), begin);
        assert_eq!(above(&mut floors, at(6)), Some(2999));
        floors.took(of("a", 3000..3010), at(59));
        assert_eq!(above(&mut floors, at(61)), None);
        floors.took(of("a", 7..8), at(61));
        assert_eq!(
            above(&mut floors, at(62)),
            None,
            "there may be more of them"
        );
    }
}
