//! `outlast retention`: what is kept, what keeps it, and a pass by hand.

use crate::{database, execute, number, outlast};

#[tokio::test]
async fn a_slot_is_explained_until_a_pass_by_hand_empties_it() {
    let (database, client) = database().await;
    let url = database.url();
    outlast(url, &["retention", "explain"])
        .await
        .fine()
        .says("nothing is held");
    execute(
        &client,
        "create sequence clock_offset minvalue 0 start 0;
         grant select on sequence clock_offset to public;     -- our functions run as their owner
         create or replace function outlast.clock() returns timestamptz language sql volatile as $$
           select clock_timestamp() + make_interval(days => coalesce(pg_sequence_last_value('public.clock_offset'), 0)::int) $$",
    )
    .await;
    execute(&client, "select outlast.register('mailer', '{a}')").await;
    execute(
        &client,
        "select outlast.emit('a', '{}') from generate_series(1, 20)",
    )
    .await;
    let slot = number(&client, "select slot::bigint from outlast._event limit 1")
        .await
        .to_string();
    let explain = async || {
        outlast(url, &["retention", "explain", "log", &slot, "--json"])
            .await
            .fine()
            .json()
    };
    assert_eq!(explain().await[0]["held_by"][0]["kind"], "window");
    execute(&client, "select setval('clock_offset', 2)").await;
    let held = explain().await;
    assert_eq!(held[0]["held_by"][0]["about"], "mailer", "{held:#?}");
    outlast(url, &["retention", "explain"])
        .await
        .fine()
        .says("mailer")
        .says("has not passed event 20");

    execute(
        &client,
        "select count(*) from outlast.claim('event', 'mailer', 20)",
    )
    .await;
    let seal = "select outlast._seal(l.token, array(select event_id from outlast._event)) from outlast._lease l";
    execute(&client, seal).await;
    execute(
        &client,
        "select outlast._finish(array(select token from outlast._lease))",
    )
    .await;
    outlast(url, &["retention", "run"])
        .await
        .fine()
        .says("mailer: 20 completions of log ids 1 to 20 are bits now")
        .says("20 completions folded, 0 slots emptied");
    let plan = outlast(url, &["retention", "plan", "--json"])
        .await
        .fine()
        .json();
    let bits = plan
        .iter()
        .find(|line| line["room"] == "inbox, bits")
        .expect("a line of bits");
    assert_eq!(
        (&bits["consumer"], &bits["rows"]),
        (&"mailer".into(), &20.into())
    );
    outlast(url, &["retention", "plan"])
        .await
        .fine()
        .says("at rest, if events go on at this rate");

    let ripe = "update outlast._ring_slot set passed_at = outlast.clock() - interval '9 days',
                removable_at = outlast.clock() - interval '2 hours' where ring = 'log'";
    execute(&client, ripe).await;
    let ran = outlast(url, &["retention", "run", "--json", "--hold", "10000"])
        .await
        .fine()
        .json();
    assert_eq!(ran[0]["emptied"][0], format!("log {slot}"), "{ran:#?}");
    assert_eq!(
        number(&client, "select count(*) from outlast.event").await,
        0
    );
    outlast(url, &["retention", "explain", "log", &slot])
        .await
        .fine()
        .says("nothing");
    outlast(url, &["verify"]).await.fine().says("hold");
}

#[tokio::test]
async fn nothing_is_removed_while_the_settings_contradict_each_other() {
    let (database, client) = database().await;
    let short = "insert into outlast._setting (name, value) values ('retention.inbox', '5d')";
    execute(&client, short).await;
    outlast(database.url(), &["retention", "run"])
        .await
        .with(2)
        .says("retention.inbox = 5d is shorter than 24d")
        .says("nothing is removed");
}
