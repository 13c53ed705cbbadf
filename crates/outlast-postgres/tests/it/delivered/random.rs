//! A broker that does what it likes, processes that fail and die: everything is done once, and each key in its order.

use std::collections::{BTreeMap, BTreeSet};

use outlast_core::Failure;
use outlast_postgres::store::{Claimed, Verdict};
use uuid::Uuid;

use super::{Dock, event};
use crate::seeds;
use crate::sql;

/// What a process has in hand under one token, in the order in which it would run it.
type Hands = BTreeMap<Uuid, Vec<Claimed>>;

/// Goal: with an at-least-once broker that doubles and redelivers, nothing is lost, nothing done twice, and a key is done in its
/// order. Method: 24 events of 3 keys and some without one; each step is one of deliver some (any that were not acked; of a
/// key those come first that were emitted first, but come again in any order; or each acked as soon as it is taken over whole), seal the next, fail the next, die, retry; in
/// the end everybody is well.
#[tokio::test]
async fn everything_is_done_once_and_each_key_in_its_order() {
    for (ordered, takes_over) in [(true, false), (false, false), (true, true)] {
        for seed in seeds::seeds(3) {
            eprintln!("seed {seed}, ordered: {ordered}, takes over: {takes_over}");
            let mut random = fastrand::Rng::with_seed(seed);
            let dock = if ordered {
                Dock::ordered().await
            } else {
                Dock::new().await
            };
            let keys = [Some("a"), Some("b"), Some("c"), None];
            let events: Vec<Claimed> = (0..24)
                .map(|n| event(keys[random.usize(..keys.len())], n + 1))
                .collect();
            let by_id = |id: Uuid| {
                events
                    .iter()
                    .find(|e| e.event_id == id)
                    .expect("ours")
                    .clone()
            };
            let mut at_broker: BTreeSet<usize> = (0..events.len()).collect();
            let mut seen: BTreeSet<usize> = BTreeSet::new();
            let mut hands = Hands::new();
            let mut steps = 0;
            loop {
                steps += 1;
                let well = steps > 150;
                assert!(steps < 2000, "it never ends");
                match if well {
                    random.u32(..3)
                } else {
                    random.u32(..6)
                } {
                    0 | 3 => {
                        let mut some: Vec<usize> = at_broker.iter().copied().collect();
                        if some.is_empty() && hands.is_empty() && well {
                            let parked = dock.count("select count(*) from outlast._parked").await;
                            if parked == 0 {
                                break;
                            }
                        }
                        random.shuffle(&mut some);
                        some.truncate(random.usize(1..=5));
                        some.retain(|n| {
                            let earlier = (0..*n).filter(|m| events[*m].key == events[*n].key);
                            events[*n].key.is_none()
                                || earlier.into_iter().all(|m| seen.contains(&m))
                        });
                        seen.extend(&some);
                        let these: Vec<&Claimed> = some.iter().map(|n| &events[*n]).collect();
                        let store = if random.bool() { &dock.one } else { &dock.two };
                        let judged = match takes_over {
                            true => store.take_over(dock.consumer, &these, super::LEASE).await,
                            false => {
                                store
                                    .claim_delivered(dock.consumer, &these, super::LEASE)
                                    .await
                            }
                        };
                        for one in judged.expect("judges") {
                            let n = events
                                .iter()
                                .position(|e| e.event_id == one.event_id)
                                .expect("ours");
                            match one.verdict {
                                Verdict::Run(token) => {
                                    let e = by_id(one.event_id);
                                    if takes_over {
                                        acked(&mut at_broker, &events, &e, &mut random);
                                    }
                                    hands.entry(token).or_default().push(e);
                                }
                                Verdict::Done | Verdict::Parked => _ = at_broker.remove(&n),
                                Verdict::Other => panic!("it is its own"),
                                Verdict::Defer(_) | Verdict::Paused(_) => {}
                            }
                        }
                    }
                    1 => {
                        // The next of some token is sealed; its ack may be lost.
                        let Some(token) = pick(&hands, &mut random) else {
                            continue;
                        };
                        let e = hands.get_mut(&token).expect("picked").remove(0);
                        dock.seal(token, &[&e]).await;
                        acked(&mut at_broker, &events, &e, &mut random);
                        ended(&dock, &mut hands, token).await;
                    }
                    2 => {
                        // Whoever sweeps ends what the dead had.
                        let swept = dock.two.reclaim(dock.consumer, 1, super::LEASE).await;
                        assert!(swept.expect("sweeps").events.is_empty());
                        for one in dock.retry().await {
                            if !well && random.bool() {
                                let failed =
                                    sql::fail(&dock.client, one.token, one.event_id, "throttled")
                                        .await;
                                failed.expect("fails");
                            } else {
                                sql::seal(&dock.client, one.token, &[one.event_id])
                                    .await
                                    .expect("seals");
                            }
                            sql::finish(&dock.client, &[one.token]).await.expect("ends");
                        }
                    }
                    4 => {
                        let Some(token) = pick(&hands, &mut random) else {
                            continue;
                        };
                        let left = hands.get_mut(&token).expect("picked");
                        let e = left.remove(0);
                        let mut copies = vec![&e];
                        if ordered && e.key.is_some() {
                            copies.extend(left.iter());
                        }
                        let failure = Failure::throttled(std::time::Duration::ZERO);
                        let failed = dock
                            .one
                            .fail_delivered(token, &copies, &failure, false)
                            .await;
                        failed.expect("hands over");
                        for copy in copies.iter().copied().cloned().collect::<Vec<_>>() {
                            acked(&mut at_broker, &events, &copy, &mut random);
                        }
                        if ordered && e.key.is_some() {
                            hands.insert(token, Vec::new());
                        }
                        ended(&dock, &mut hands, token).await;
                    }
                    _ => {
                        // Everybody dies.
                        dock.lapse().await;
                        hands.clear();
                    }
                }
                if steps % 10 == 0 {
                    dock.must_be_sound().await;
                }
            }
            dock.must_be_empty().await;
            assert_eq!(dock.done().await, events.len() as i64);
            if ordered {
                let sql = "select event_id from outlast._processed_event order by at";
                let rows = dock.client.query(sql, &[]).await.expect("asks");
                let done: Vec<Claimed> = rows.iter().map(|row| by_id(row.get(0))).collect();
                for key in ["a", "b", "c"] {
                    let places: Vec<i64> = done
                        .iter()
                        .filter(|e| e.key.as_deref() == Some(key))
                        .map(|e| e.log_id)
                        .collect();
                    assert!(places.is_sorted(), "{key}: {places:?}");
                }
            }
        }
    }
}

fn pick(hands: &Hands, random: &mut fastrand::Rng) -> Option<Uuid> {
    let tokens: Vec<_> = hands.keys().copied().collect();
    (!tokens.is_empty()).then(|| tokens[random.usize(..tokens.len())])
}

/// What is durable is acked, and one ack of three is lost.
fn acked(
    at_broker: &mut BTreeSet<usize>,
    events: &[Claimed],
    e: &Claimed,
    random: &mut fastrand::Rng,
) {
    let n = events
        .iter()
        .position(|one| one.event_id == e.event_id)
        .expect("ours");
    if random.u32(..3) > 0 {
        at_broker.remove(&n);
    }
}

async fn ended(dock: &Dock, hands: &mut Hands, token: Uuid) {
    if hands.get(&token).is_some_and(Vec::is_empty) {
        hands.remove(&token);
        dock.finish(token).await;
    }
}
