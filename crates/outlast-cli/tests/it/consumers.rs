//! `outlast consumers`: another name, an end, a type less, other lanes; and who is not run.

use crate::{database, execute, outlast};

#[tokio::test]
async fn a_consumer_is_renamed_and_its_old_name_is_shown_and_refused() {
    let (database, client) = database().await;
    let url = database.url();
    execute(&client, "select outlast.register('geo', '{a}')").await;
    outlast(url, &["consumers", "rename", "geo", "places"])
        .await
        .fine()
        .says("geo is called places now");
    outlast(url, &["consumers", "show", "places"])
        .await
        .fine()
        .says("was called geo");
    outlast(url, &["consumers", "pause", "geo", "--reason", "why"])
        .await
        .with(2)
        .says("places")
        .says("OUT-0022");
    outlast(url, &["consumers", "rename", "nobody", "other"])
        .await
        .with(2)
        .says("OUT-0007");
}

#[tokio::test]
async fn to_retire_a_consumer_one_is_told_what_is_given_up_and_has_to_say_yes() {
    let (database, client) = database().await;
    let url = database.url();
    execute(&client, "select outlast.register('geo', '{a}')").await;
    execute(
        &client,
        "select outlast.emit_all('a', array(select '{}' from generate_series(1, 12)))",
    )
    .await;
    let retire = ["consumers", "retire", "geo", "--reason", "replaced"];
    outlast(url, &retire)
        .await
        .with(2)
        .says("12 events that wait in the log")
        .says("it keeps ")
        .says("add --yes");
    outlast(url, &["consumers", "show", "geo"])
        .await
        .fine()
        .says("active");
    let told = outlast(url, &[&retire[..], &["--yes", "--json"]].concat())
        .await
        .fine()
        .json();
    assert_eq!(
        (&told[0]["waiting"], &told[0]["retired"]),
        (&12.into(), &true.into())
    );
    outlast(url, &["consumers", "show", "geo"])
        .await
        .fine()
        .says("retired: replaced");
    outlast(url, &[&retire[..], &["--yes"]].concat())
        .await
        .with(2)
        .says("is retired");
    outlast(url, &["audit", "ls"])
        .await
        .fine()
        .says("consumer.retired");
}

#[tokio::test]
async fn a_type_is_removed_and_lanes_are_changed_by_hand_only() {
    let (database, client) = database().await;
    let url = database.url();
    execute(
        &client,
        "select outlast.register('seats', '{a,b.*}', ordered => true, lanes => 4)",
    )
    .await;
    let remove = [
        "consumers",
        "remove-type",
        "seats",
        "b.*",
        "--reason",
        "no handler",
    ];
    outlast(url, &remove).await.with(2).says("add --yes");
    outlast(url, &[&remove[..], &["--yes"]].concat())
        .await
        .fine()
        .says("seats takes no b.* any more");
    outlast(url, &["consumers", "lanes", "seats", "6", "--no-wait"])
        .await
        .fine()
        .says("6 lanes");
    outlast(url, &["consumers", "lanes", "seats", "0"])
        .await
        .with(2);
}

#[tokio::test]
async fn the_list_says_which_consumer_nobody_runs_and_what_it_holds() {
    let (database, client) = database().await;
    let url = database.url();
    execute(&client, "select outlast.register('geo', '{a}')").await;
    outlast(url, &["consumers", "ls"]).await.fine();
    execute(
        &client,
        "update outlast._batch set claimed_at = claimed_at - interval '7 days'",
    )
    .await;
    execute(&client, "select outlast.emit('a', '{}')").await;
    outlast(url, &["consumers", "ls"])
        .await
        .fine()
        .says("nobody has run `geo` for 7 days; it holds ");
}
