//! Publishing: what an outcome means.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::join_all;
use outlast_core::broker::{LogPlace, Message, Published, Why};
use uuid::Uuid;

use super::stage::{Stage, ids, message, messages};

pub(super) async fn what_is_confirmed_arrives_with_the_same_attributes_and_bytes(stage: &Stage) {
    let topic = stage.topic("a").await;
    let subscription = stage.subscription(&topic).await;
    let bodies: [Bytes; 6] = [
        Bytes::new(),
        Bytes::from_static(b"\0"),
        Bytes::from_iter(0..=255),
        Bytes::from_static(b"\xff\xfe\xed\xa0\x80"),
        Bytes::from_static(b"\r\n\r\nNATS/1.0 503\r\n"),
        Bytes::from(vec![7; 100_000]),
    ];
    let mut sent: Vec<_> = bodies
        .into_iter()
        .map(|body| message(&topic, body))
        .collect();
    for one in &mut sent {
        odd(one);
    }
    // And one that has only what every event has.
    sent.push(message(&topic, "plain"));
    stage.confirmed(&sent).await;
    let read = stage.read(&subscription, &sent).await;
    for one in &sent {
        let came = read.iter().find(|read| read.envelope.id == one.envelope.id);
        let came = came.expect("all of them were read");
        assert_eq!(came.envelope, *one.envelope);
        assert_eq!(came.body, one.body);
        for route in one.attributes.iter() {
            assert!(
                came.attributes.contains(route),
                "{route:?} is not in {:?}",
                came.attributes
            );
        }
    }
}

/// Gives a message everything that an event can have, as odd as it can be.
fn odd(message: &mut Message) {
    let mut envelope = (*message.envelope).clone();
    envelope.version = u16::MAX;
    envelope.tenant = "Zürich \n\"1%\" 測試 🦀".into();
    envelope.key = Some("a b/%41\u{202e}".into());
    envelope.key_seq = Some(i64::MAX);
    envelope.aggregate_version = Some(i64::MIN);
    envelope.source = Some("outlast".into());
    envelope.subject = Some(String::new());
    envelope.actor = Some("\0\r\n\u{7f}".into());
    envelope.correlation_id = Some(Uuid::from_u128(8));
    envelope.causation_id = Some(Uuid::from_u128(9));
    envelope.traceparent = Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into());
    envelope.headers = BTreeMap::from([
        ("Nats-Rollup".into(), "all".into()),
        ("googclient_schemaencoding".into(), "JSON".into()),
        ("X-Key: odd".into(), "v\tü".into()),
        ("x-key".into(), String::new()),
    ]);
    envelope.content_type = "application/json; charset=\"utf-8\"".into();
    envelope.codec_key = Some("k/1".into());
    let log = "prod:eu".into();
    envelope.log = Some(LogPlace { log, id: 42 });
    message.envelope = Arc::new(envelope);
    message.attributes = Arc::new([("region".into(), "eu west".into())]);
    message.ordering_key = Some("Zürich 1".into());
}

pub(super) async fn a_message_over_the_limit_is_refused_and_fails_alone(stage: &Stage) {
    let topic = stage.topic("a").await;
    let subscription = stage.subscription(&topic).await;
    let big = message(&topic, vec![b'x'; stage.broker.limits().message_bytes + 1]);
    let why = stage.broker.validate(&big);
    assert!(why.is_err(), "validate takes {} bytes", big.size());
    let good = messages(&topic, None, 2);
    let call = [good[0].clone(), big.clone(), good[1].clone()];
    let said = stage.publish(&call).await;
    assert!(said[0].is_confirmed() && said[2].is_confirmed(), "{said:?}");
    assert!(refused(&said[1]), "{:?}", said[1]);
    let read = stage.read_all(&subscription).await;
    assert_eq!(
        ids(&read),
        [good[0].envelope.id, good[1].envelope.id].into()
    );
}

/// What is wrong with the message itself, and nothing else, quarantines it.
fn refused(said: &Published) -> bool {
    matches!(said, Published::NotSent(not) if not.why == Why::Message)
}

pub(super) async fn the_largest_that_is_taken_arrives(stage: &Stage) {
    let topic = stage.topic("a").await;
    let subscription = stage.subscription(&topic).await;
    let fits = |size: usize| {
        stage
            .broker
            .validate(&message(&topic, vec![b'x'; size]))
            .is_ok()
    };
    let (mut fit, mut not) = (0, stage.broker.limits().message_bytes + 1);
    while not - fit > 1 {
        let middle = fit.midpoint(not);
        if fits(middle) {
            fit = middle;
        } else {
            not = middle;
        }
    }
    assert!(fit > 10_000, "a body of {fit} bytes is the largest");
    let sent = [message(&topic, vec![b'x'; fit])];
    stage.confirmed(&sent).await;
    let read = stage.read(&subscription, &sent).await;
    assert!(
        read[0].body == sent[0].body,
        "{fit} bytes came back changed"
    );
}

pub(super) async fn an_attribute_is_refused_alone_or_arrives_as_it_was(stage: &Stage) {
    let topic = stage.topic("a").await;
    let subscription = stage.subscription(&topic).await;
    let long = "v".repeat(200_000);
    let odd = [
        ("", "empty name"),
        ("empty", ""),
        (" spaced ", " v "),
        ("a:b", "c"),
        ("crlf", "a\r\nNats-Rollup: all"),
        ("cr\r\nlf", "a"),
        ("nul", "a\0b"),
        ("ümlaut", "ü"),
        ("Nats-Msg-Id", "1"),
        ("nats-rollup", "all"),
        ("googclient_x", "1"),
        ("long", &long),
        ("ce-id", "not ours"),
    ];
    let mut refusals = 0;
    for (name, value) in odd {
        let mut one = message(&topic, "odd");
        one.attributes = Arc::new([(name.into(), value.into())]);
        let good = message(&topic, "good");
        let valid = stage.broker.validate(&one);
        let said = stage.publish(&[one.clone(), good.clone()]).await;
        assert!(said[1].is_confirmed(), "beside {name:?}: {:?}", said[1]);
        if valid.is_err() {
            assert!(
                refused(&said[0]),
                "validate refuses {name:?}, and publish says {:?}",
                said[0]
            );
            refusals += 1;
            continue;
        }
        assert!(
            said[0].is_confirmed(),
            "validate takes {name:?}, and publish says {:?}",
            said[0]
        );
        let read = stage.read(&subscription, &[one.clone(), good]).await;
        let came = read.iter().find(|read| read.envelope.id == one.envelope.id);
        let came = came.expect("all of them were read");
        let whole = came
            .attributes
            .contains(&(name.to_owned(), value.to_owned()));
        assert!(whole, "{name:?} came as {:?}", came.attributes);
    }
    assert!(refusals > 0, "no broker takes every attribute");
}

pub(super) async fn an_unknown_topic_is_missing_and_others_are_not_affected(stage: &Stage) {
    let topic = stage.topic("a").await;
    let subscription = stage.subscription(&topic).await;
    let nowhere = message(&stage.name("nowhere"), "lost");
    let good = messages(&topic, None, 2);
    let said = stage
        .publish(&[good[0].clone(), nowhere, good[1].clone()])
        .await;
    assert!(said[0].is_confirmed() && said[2].is_confirmed(), "{said:?}");
    let missing = matches!(&said[1], Published::NotSent(not) if not.why == Why::Missing);
    assert!(missing, "{:?}", said[1]);
    stage.read(&subscription, &good).await;
}

pub(super) async fn a_key_keeps_its_order_within_and_across_calls(stage: &Stage) {
    const OF_EACH: usize = 20;
    let topic = stage.topic("a").await;
    let mut subscription =
        outlast_core::broker::Subscription::new(format!("{topic}-reader"), &topic);
    subscription.ordered = true;
    let wanted = outlast_core::broker::Topology::Subscription(subscription.clone());
    stage.create(&wanted).await;
    let keys = ["a", "Zürich 1", ""];
    let of_key: Vec<_> = keys
        .iter()
        .map(|key| messages(&topic, Some(key), OF_EACH))
        .collect();
    let mixed = (0..OF_EACH).flat_map(|n| of_key.iter().map(move |of| of[n].clone()));
    let mixed: Vec<_> = mixed.collect();
    // Three calls, and more where a call takes one message of a key.
    for part in mixed.chunks(mixed.len().div_ceil(3)) {
        stage.confirmed(part).await;
    }
    let read = stage.read(&subscription, &mixed).await;
    for (key, sent) in keys.iter().zip(&of_key) {
        let mut came = Vec::new();
        for one in &read {
            let of_it = sent.iter().any(|sent| sent.envelope.id == one.envelope.id);
            // A second copy says nothing about order.
            if of_it && !came.contains(&one.envelope.id) {
                came.push(one.envelope.id);
            }
        }
        let sent: Vec<_> = sent.iter().map(|one| one.envelope.id).collect();
        assert_eq!(came, sent, "the order of the key {key:?}");
    }
}

pub(super) async fn nothing_of_a_key_is_sent_after_what_was_not_taken(stage: &Stage) {
    let topic = stage.topic("a").await;
    let subscription = stage.subscription(&topic).await;
    let mut call = messages(&topic, Some("a"), 4);
    call[1] = message(&topic, vec![b'x'; stage.broker.limits().message_bytes + 1]);
    call[1].ordering_key = Some("a".into());
    call.extend(messages(&topic, Some("b"), 1));
    call.extend(messages(&topic, None, 1));
    let said = stage.publish(&call).await;
    assert!(refused(&said[1]), "{:?}", said[1]);
    for behind in &said[2..4] {
        let waits = matches!(behind, Published::NotSent(not) if not.why == Why::Behind);
        assert!(waits, "{behind:?}");
    }
    for free in [&said[0], &said[4], &said[5]] {
        assert!(free.is_confirmed(), "{said:?}");
    }
    let read = ids(&stage.read_all(&subscription).await);
    assert_eq!(read, [0, 4, 5].map(|at: usize| call[at].envelope.id).into());
}

pub(super) async fn the_same_round_again_is_never_lost(stage: &Stage) {
    let topic = stage.topic("a").await;
    let subscription = stage.subscription(&topic).await;
    let mut sent = messages(&topic, None, 10);
    sent[9].ordering_key = Some("a".into());
    stage.confirmed(&sent).await;
    stage.confirmed(&sent).await;
    let read = stage.read_all(&subscription).await;
    assert_eq!(ids(&read).len(), sent.len(), "{read:?}");
    if stage.can.dedups {
        assert_eq!(read.len(), sent.len(), "copies were not dropped");
    }
}

pub(super) async fn a_higher_round_arrives_again_with_the_same_envelope(stage: &Stage) {
    let topic = stage.topic("a").await;
    let subscription = stage.subscription(&topic).await;
    let sent = messages(&topic, None, 3);
    stage.confirmed(&sent).await;
    stage.read(&subscription, &sent).await;
    for round in [1, 2] {
        let mut again = sent.clone();
        again.iter_mut().for_each(|one| one.round = round);
        stage.confirmed(&again).await;
        let read = stage.read(&subscription, &again).await;
        for one in &sent {
            let came = read.iter().find(|read| read.envelope.id == one.envelope.id);
            assert_eq!(came.map(|read| &read.envelope), Some(&*one.envelope));
        }
    }
}

pub(super) async fn many_calls_at_once_are_all_answered(stage: &Stage) {
    let topic = stage.topic("a").await;
    let subscription = stage.subscription(&topic).await;
    let calls: Vec<_> = (0..8).map(|_| messages(&topic, None, 100)).collect();
    let said = join_all(calls.iter().map(|call| stage.publish(call))).await;
    let all_confirmed = said.iter().flatten().all(Published::is_confirmed);
    assert!(all_confirmed, "{said:?}");
    stage.read(&subscription, &calls.concat()).await;
}

pub(super) async fn a_call_with_nothing_is_answered_with_nothing(stage: &Stage) {
    let said = stage.publish_within(&[], Duration::from_secs(1)).await;
    assert_eq!(said, []);
}
