//! Per key, in its order, with failures and several processes.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use outlast_core::{
    Failure,
    broker::{Broker, Ensure, Topology},
};
use outlast_engine::Attempt;
use outlast_testkit::{broker::Memory, wait_for};
use tokio::sync::{Semaphore, mpsc};

use super::Post;
use crate::given::{Ping, SOON, Told, next};

/// What was done, in this order; each seventh fails twice.
#[derive(Clone, Default)]
struct App {
    done: Arc<Mutex<Vec<(String, i64)>>>,
}

async fn seventh_fails(app: App, ping: Attempt<Ping>) -> Result<(), Failure> {
    if ping.n % 7 == 3 && ping.number() < 3 {
        return Err(Failure::retry("the seventh"));
    }
    let key = ping.key().unwrap_or("").to_owned();
    app.done.lock().unwrap().push((key, ping.n));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_key_is_done_in_its_order_and_a_failed_event_delays_only_its_own() {
    let post = Post::new().await;
    let app = App::default();
    let consumer = || post.mailer().ordered().concurrency(4).on(seventh_fails);
    let one = post.given.start(app.clone(), consumer());
    let two = post.given.start(app.clone(), consumer());
    let keys = ["a", "b", "c", "d", "e"];
    let pings: Vec<_> = (0..100)
        .map(|n| Post::ping(n, Some(keys[n as usize % keys.len()])))
        .collect();
    for (n, ping) in pings.iter().enumerate() {
        post.send(n as i64, ping).await;
        if n % 10 == 0 {
            post.send(n as i64, ping).await;
        }
    }
    post.done(100).await;
    one.stop().await.unwrap();
    two.stop().await.unwrap();
    let mut by_key: HashMap<String, Vec<i64>> = HashMap::new();
    for (key, n) in app.done.lock().unwrap().iter() {
        by_key.entry(key.clone()).or_default().push(*n);
    }
    assert_eq!(by_key.len(), keys.len());
    for (key, mut done) in by_key {
        assert!(done.is_sorted(), "{key}: {done:?}");
        done.dedup();
        assert_eq!(done.len(), 20, "{key}");
    }
    let parked = "select (select count(*) from outlast._parked) + (select count(*) from outlast._parked_key)";
    assert_eq!(post.given.count(parked).await, 0);
}

async fn tell(told: Told, ping: Attempt<Ping>) -> Result<(), Failure> {
    let _ = told.send(ping.n);
    Ok(())
}

/// Goal: an event does not run before an earlier one of its key that another process was given and has not claimed yet.
/// Method: the test is that process. A broker that gives out the second one meanwhile shows what would happen: nobody who asks the
/// database can know that there is an earlier one.
#[tokio::test(flavor = "multi_thread")]
async fn what_another_process_was_given_and_has_not_claimed_is_not_overtaken() {
    for keeps_order in [false, true] {
        let broker = Memory::new().with_deliveries(1000);
        let post = Post::of(match keeps_order {
            true => broker,
            false => broker.without_order(),
        })
        .await;
        let mut subscription = post.subscription.clone();
        subscription.ordered = true;
        subscription.ack_within = SOON;
        let wanted = Topology::Subscription(subscription.clone());
        post.broker
            .ensure(&wanted, Ensure::Create, SOON)
            .await
            .unwrap();
        for n in [1, 2] {
            post.send(n, &Post::ping(n, Some("k"))).await;
        }
        let mut other = post.broker.subscribe(&subscription, SOON).await.unwrap();
        let first = other.next(1, SOON).await.unwrap().remove(0);

        let (told, mut hears) = mpsc::unbounded_channel();
        let worker = post.given.start(told, post.mailer().ordered().on(tell));
        worker.registered(&post.given).await;
        let mut heard = Vec::new();
        if !keeps_order {
            heard.push(next(&mut hears).await);
        }
        first.settle.release(std::time::Duration::ZERO).await;
        while heard.len() < 2 {
            heard.push(next(&mut hears).await);
        }
        assert_eq!(heard.is_sorted(), keeps_order, "{heard:?}");
        post.done(2).await;
        worker.stop().await.unwrap();
    }
}

/// Made by somebody else, or before the consumer became an ordered one.
#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_that_keeps_no_order_is_not_read_by_an_ordered_consumer() {
    let post = Post::new().await;
    let unordered = Topology::Subscription(post.subscription.clone());
    let made = post.broker.ensure(&unordered, Ensure::Create, SOON).await;
    made.unwrap();
    let send = async || {
        for n in 0..10 {
            post.send(n, &Post::ping(n, Some("k"))).await;
        }
    };
    send().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let worker = post.given.start(told, post.mailer().ordered().on(tell));
    wait_for("two refusals", SOON, async || {
        (post.broker.refused() >= 2).then_some(())
    })
    .await;
    post.unsettled(10).await;
    assert!(hears.try_recv().is_err(), "it was read");
    // As soon as it is made anew it is read.
    post.broker.delete("orders");
    let topic = Topology::topic("orders", true);
    post.broker
        .ensure(&topic, Ensure::Create, SOON)
        .await
        .unwrap();
    send().await;
    for n in 0..10 {
        assert_eq!(next(&mut hears).await, n);
    }
    post.done(10).await;
    worker.stop().await.unwrap();
}

#[derive(Clone)]
struct Gated {
    told: Told,
    gate: Arc<Semaphore>,
}

/// Those below ten wait until the gate is open.
async fn waits_below_ten(app: Gated, ping: Attempt<Ping>) -> Result<(), Failure> {
    let _ = app.told.send(ping.n);
    if ping.n < 10 {
        let _open = app.gate.acquire().await;
    }
    Ok(())
}

/// A broker that gives out one message at a time, whatever its key: a worker does not keep it until it is done.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_in_work_holds_up_no_other_key_where_one_message_at_a_time_is_out() {
    let post = Post::of(Memory::new().one_by_one().without_dedup()).await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let app = Gated {
        told,
        gate: gate.clone(),
    };
    let consumer = || post.mailer().ordered().concurrency(3).on(waits_below_ten);
    let dying = post.given.start(app.clone(), consumer());
    let pings = [(1, "a"), (11, "b"), (2, "a"), (12, "b"), (13, "c")];
    let pings = pings.map(|(n, key)| (n, Post::ping(n, Some(key))));
    for (n, ping) in &pings {
        post.send(*n, ping).await;
        post.send(*n, ping).await;
    }
    let mut heard = Vec::new();
    for _ in 0..4 {
        heard.push(next(&mut hears).await);
    }
    heard.sort_unstable();
    assert_eq!(heard, [1, 11, 12, 13], "2 waits behind 1");
    // The broker has nothing any more; whoever dies now has left a whole copy.
    post.settled().await;
    drop(dying);
    gate.add_permits(1);
    let well = post.given.start(app, consumer());
    for n in [1, 2] {
        assert_eq!(next(&mut hears).await, n);
    }
    post.done(5).await;
    well.stop().await.unwrap();
    post.given.verified().await;
}
