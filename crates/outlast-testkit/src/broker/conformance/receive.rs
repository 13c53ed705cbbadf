//! Receiving: whose a message is, and for how long.

use std::{collections::HashSet, time::Duration};

use outlast_core::broker::{Acked, Delivered, Message, Subscribed, Subscription, Topology, Why};
use tokio::time::{Instant, timeout};

use super::stage::{GRACE, PATIENCE, Stage, message, messages, read, settle, take};

const MOMENT: Duration = Duration::from_millis(300);

/// Takes until so many have come, and settles none.
async fn take_all(stage: &Stage, reader: &mut dyn Subscribed, count: usize) -> Vec<Delivered> {
    let (mut all, end) = (Vec::new(), Instant::now() + stage.can.patience);
    while all.len() < count {
        assert!(Instant::now() < end, "{} of {count} came", all.len());
        let most = count - all.len();
        all.extend(take(reader, most, Duration::from_secs(2)).await);
    }
    all
}

async fn other(stage: &Stage, subscription: &Subscription) -> Box<dyn Subscribed> {
    let subscribed = stage.other.subscribe(subscription, PATIENCE).await;
    subscribed.unwrap_or_else(|why| panic!("a second subscriber: {why}"))
}

async fn scene(stage: &Stage, within: Duration, count: usize) -> (Subscription, Vec<Message>) {
    let topic = stage.topic("a").await;
    let subscription = stage.subscription_of(&topic, within).await;
    let sent = messages(&topic, None, count);
    stage.confirmed(&sent).await;
    (subscription, sent)
}

pub(super) async fn never_more_are_taken_than_were_asked_for(stage: &Stage) {
    const ALL: usize = 20;
    let (subscription, _) = scene(stage, Duration::from_secs(60), ALL).await;
    let mut first = stage.subscribe(&subscription).await;
    let ours = take(&mut *first, 3, PATIENCE).await;
    assert!(!ours.is_empty(), "nothing came");
    // What waited in memory would not come to the other, for a minute.
    let mut second = other(stage, &subscription).await;
    let theirs = take_all(stage, &mut *second, ALL - ours.len()).await;
    assert_eq!(ours.len() + theirs.len(), ALL);
}

pub(super) async fn next_waits_as_long_as_told_and_wakes_for_the_first_message(stage: &Stage) {
    let (subscription, _) = scene(stage, Duration::from_secs(60), 0).await;
    let mut reader = stage.subscribe(&subscription).await;
    let asked = Instant::now();
    assert!(
        take(&mut *reader, 5, MOMENT).await.is_empty(),
        "nobody sent anything"
    );
    assert!(
        asked.elapsed() >= MOMENT.mul_f32(0.8),
        "it returned after {:?}",
        asked.elapsed()
    );
    let late = [message(&subscription.topic, "late")];
    let sending = async {
        // While the other side waits.
        tokio::time::sleep(MOMENT).await;
        stage.confirmed(&late).await;
        Instant::now()
    };
    let (came, sent) = tokio::join!(reader.next(5, PATIENCE), sending);
    let came = came.expect("next");
    assert_eq!(came.len(), 1, "one was sent");
    let waited = sent.elapsed();
    assert!(
        waited < Duration::from_secs(3),
        "it came {waited:?} after it was confirmed"
    );
}

pub(super) async fn what_is_not_settled_comes_again_after_its_time(stage: &Stage) {
    let within = stage.can.ack_within;
    let (subscription, sent) = scene(stage, within, 1).await;
    let mut reader = stage.subscribe(&subscription).await;
    let first = take_all(stage, &mut *reader, 1).await.remove(0);
    let taken = Instant::now();
    assert_eq!(read(&first).envelope.id, sent[0].envelope.id);
    let number = first.number;
    // As if the process had died.
    drop(first);
    let second = take_all(stage, &mut *reader, 1).await.remove(0);
    let after = taken.elapsed();
    assert!(
        after >= within.mul_f32(0.7),
        "it came again after {after:?} of {within:?}"
    );
    assert_eq!(read(&second).envelope.id, sent[0].envelope.id);
    if let (Some(first), Some(second)) = (number, second.number) {
        assert!(second > first, "delivery {first}, and then {second}");
    }
}

pub(super) async fn what_is_released_comes_again_and_not_before_its_delay(stage: &Stage) {
    let (subscription, sent) = scene(stage, Duration::from_secs(60), 1).await;
    let mut reader = stage.subscribe(&subscription).await;
    let first = take_all(stage, &mut *reader, 1).await.remove(0);
    let delay = Duration::from_secs(1);
    let released = Instant::now();
    first.settle.release(delay).await;
    let again = take_all(stage, &mut *reader, 1).await.remove(0);
    let after = released.elapsed();
    assert!(
        after >= delay.mul_f32(0.9),
        "it came again after {after:?} of {delay:?}"
    );
    assert_eq!(read(&again).envelope.id, sent[0].envelope.id);
    // And without a delay at once, not after the minute that it could be ours.
    let released = Instant::now();
    again.settle.release(Duration::ZERO).await;
    take_all(stage, &mut *reader, 1).await;
    assert!(released.elapsed() < Duration::from_secs(15));
}

pub(super) async fn what_is_extended_stays_ours_and_acked_never_comes_again(stage: &Stage) {
    let within = stage.can.ack_within;
    let (subscription, _) = scene(stage, within, 1).await;
    let mut reader = stage.subscribe(&subscription).await;
    let ours = take_all(stage, &mut *reader, 1).await.remove(0);
    let mut second = other(stage, &subscription).await;
    let taken = Instant::now();
    while taken.elapsed() < within * 2 {
        ours.settle.extend(within).await;
        let theirs = take(&mut *second, 1, within / 2).await;
        assert!(
            theirs.is_empty(),
            "the other was given it after {:?}",
            taken.elapsed()
        );
    }
    let acked = timeout(PATIENCE + GRACE, ours.settle.ack(PATIENCE)).await;
    let acked = acked.expect("an ack returns in its time");
    assert!(matches!(acked, Acked::Confirmed | Acked::Sent), "{acked:?}");
    let again = take(&mut *second, 1, within.mul_f32(1.5)).await;
    assert!(again.is_empty(), "it was acked: {again:?}");
}

/// Of several that are out the last one is acked first: the others stay what they are.
pub(super) async fn an_ack_settles_its_own_delivery_and_none_before_it(stage: &Stage) {
    let (subscription, _) = scene(stage, Duration::from_secs(60), 3).await;
    let mut reader = stage.subscribe(&subscription).await;
    let mut ours = take_all(stage, &mut *reader, 3).await;
    let last = settle(ours.pop().expect("three came")).await.envelope.id;
    let left: HashSet<_> = ours.iter().map(|one| read(one).envelope.id).collect();
    for one in ours {
        one.settle.release(Duration::ZERO).await;
    }
    let again = take_all(stage, &mut *reader, 2).await;
    let again: HashSet<_> = again.iter().map(|one| read(one).envelope.id).collect();
    assert_eq!(again, left, "and {last} was acked");
}

pub(super) async fn two_subscribers_share_the_work(stage: &Stage) {
    const ALL: usize = 40;
    let (subscription, _) = scene(stage, Duration::from_secs(60), ALL).await;
    let (mut one, mut two) = (
        stage.subscribe(&subscription).await,
        other(stage, &subscription).await,
    );
    let (mut of_one, mut of_two) = (HashSet::new(), HashSet::new());
    let end = Instant::now() + stage.can.patience;
    while of_one.len() + of_two.len() < ALL {
        assert!(
            Instant::now() < end,
            "{} and {} came",
            of_one.len(),
            of_two.len()
        );
        for delivered in take(&mut *one, 4, Duration::from_secs(2)).await {
            of_one.insert(settle(delivered).await.envelope.id);
        }
        for delivered in take(&mut *two, 4, Duration::from_secs(2)).await {
            of_two.insert(settle(delivered).await.envelope.id);
        }
    }
    assert!(of_one.is_disjoint(&of_two), "both were given the same");
    assert!(
        !of_one.is_empty() && !of_two.is_empty(),
        "one of them had nothing to do"
    );
}

pub(super) async fn after_a_drain_what_was_given_can_be_settled_and_the_rest_goes_to_others(
    stage: &Stage,
) {
    let (subscription, sent) = scene(stage, Duration::from_secs(60), 3).await;
    let mut first = stage.subscribe(&subscription).await;
    let ours = take_all(stage, &mut *first, 1).await.remove(0);
    timeout(PATIENCE + GRACE, first.drain(PATIENCE))
        .await
        .expect("a drain returns in its time");
    let ours = settle(ours).await;
    let mut second = other(stage, &subscription).await;
    let mut rest = HashSet::new();
    for delivered in take_all(stage, &mut *second, 2).await {
        rest.insert(settle(delivered).await.envelope.id);
    }
    rest.insert(ours.envelope.id);
    assert_eq!(rest, sent.iter().map(|one| one.envelope.id).collect());
}

/// An ordered subscription of a topic.
async fn in_order(stage: &Stage) -> Subscription {
    let topic = stage.topic("a").await;
    let mut subscription = Subscription::new(format!("{topic}-reader"), &topic);
    subscription.ordered = true;
    stage
        .create(&Topology::Subscription(subscription.clone()))
        .await;
    subscription
}

pub(super) async fn of_a_key_in_order_nothing_is_given_while_an_earlier_one_is_out(stage: &Stage) {
    let subscription = in_order(stage).await;
    let sent = messages(&subscription.topic, Some("a"), 3);
    stage.confirmed(&sent).await;
    let (mut one, mut two) = (
        stage.subscribe(&subscription).await,
        other(stage, &subscription).await,
    );
    let first = take_all(stage, &mut *one, 1).await.remove(0);
    assert_eq!(read(&first).envelope.id, sent[0].envelope.id);
    let theirs = take(&mut *two, 10, MOMENT).await;
    assert!(theirs.is_empty(), "the first is out: {theirs:?}");
    // Given back it comes again, before the others; and so on, in turns, each when the one before is settled.
    first.settle.release(Duration::ZERO).await;
    for (n, sent) in sent.iter().enumerate() {
        let (reader, idle) = match n % 2 {
            0 => (&mut two, &mut one),
            _ => (&mut one, &mut two),
        };
        let next = take_all(stage, &mut **reader, 1).await.remove(0);
        assert_eq!(read(&next).envelope.id, sent.envelope.id, "the {n}th");
        let beside = take(&mut **idle, 10, MOMENT).await;
        assert!(beside.is_empty(), "the {n}th is out: {beside:?}");
        settle(next).await;
    }
}

pub(super) async fn what_keeps_no_order_is_not_read_as_if_it_did(stage: &Stage) {
    let topic = stage.topic("a").await;
    let mut subscription = stage.subscription(&topic).await;
    stage.subscribe(&subscription).await.drain(PATIENCE).await;
    subscription.ordered = true;
    for broker in [&stage.broker, &stage.other] {
        let read = broker.subscribe(&subscription, PATIENCE).await;
        let refused = read.err().expect("it keeps no order");
        assert_eq!(refused.why, Why::Configuration, "{refused}");
    }
}

pub(super) async fn what_was_given_up_on_is_found_dead_with_its_envelope(stage: &Stage) {
    let most = stage
        .can
        .deliveries
        .expect("the case says that it needs it");
    let topic = stage.topic("a").await;
    let subscription = stage.subscription_of(&topic, stage.can.ack_within).await;
    let sent = message(&topic, &b"\0poison\xff"[..]);
    let good = message(&topic, "good");
    stage.confirmed(&[sent.clone(), good.clone()]).await;
    let mut reader = stage.subscribe(&subscription).await;
    let (mut deliveries, end) = (0, Instant::now() + stage.can.patience * 2);
    let dead = loop {
        assert!(
            Instant::now() < end,
            "after {deliveries} of {most} deliveries it is not dead"
        );
        for delivered in take(&mut *reader, 5, MOMENT).await {
            if read(&delivered).envelope.id == good.envelope.id {
                settle(delivered).await;
                continue;
            }
            deliveries += 1;
            assert!(
                deliveries <= most,
                "delivery {deliveries}, and it dies after {most}"
            );
            delivered.settle.release(Duration::ZERO).await;
        }
        let dead = stage.broker.dead(&subscription, 10, PATIENCE).await;
        let mut dead = dead.unwrap_or_else(|why| panic!("dead: {why}"));
        if let Some(one) = dead.pop() {
            assert!(
                dead.is_empty(),
                "one is dead, and more were given: {dead:?}"
            );
            break one;
        }
    };
    assert_eq!(deliveries, most, "deliveries before it was given up on");
    let was = settle(dead).await;
    assert_eq!(
        (was.envelope, was.body),
        ((*sent.envelope).clone(), sent.body)
    );
    let left = stage
        .broker
        .dead(&subscription, 10, PATIENCE)
        .await
        .expect("dead");
    assert!(left.is_empty(), "it was taken over: {left:?}");
}
