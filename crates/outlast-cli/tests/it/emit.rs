//! `outlast emit`: exactly the given bytes, or a reason why not.

use crate::{command, database, execute, number, outlast, run};

#[tokio::test]
async fn the_payload_is_stored_as_it_was_given() {
    let (database, client) = database().await;
    let url = database.url();
    // Digits beyond any double, spaces, a double key: all of it is content.
    let exact = "{ \"n\": 123456789012345678901234567890, \"n\": 1e400,\t\"s\": \"Zoë \\u00e9\" }";
    let emitted = outlast(
        url,
        &[
            "emit", "odd", exact, "--key", "k", "--tenant", "t", "--json",
        ],
    )
    .await
    .fine()
    .json();
    let id = emitted[0]["id"].as_str().expect("an id");
    assert_eq!(emitted[0]["new"], true);
    let row = client
        .query_one("select payload, key, tenant from outlast.event", &[])
        .await
        .expect("it is there");
    assert_eq!(row.get::<_, &[u8]>(0), exact.as_bytes());
    assert_eq!((row.get(1), row.get(2)), ("k", "t"));
    let shown = outlast(url, &["events", "show", id, "--json"])
        .await
        .fine()
        .json();
    assert_eq!(shown[0]["payload"], exact);
    let raw = outlast(url, &["events", "show", id, "--payload"])
        .await
        .fine();
    assert_eq!(raw.out, exact);
}

#[tokio::test]
async fn bytes_come_from_stdin() {
    let (database, client) = database().await;
    let mut command = command(&[
        "emit",
        "bin",
        "-",
        "--content-type",
        "application/octet-stream",
    ]);
    command.args(["--database", database.url()]);
    run(command, &[0xff, 0x00, b'\n'])
        .await
        .fine()
        .says("emitted ");
    let row = client
        .query_one("select id::text, payload from outlast.event", &[])
        .await
        .expect("it is there");
    assert_eq!(row.get::<_, &[u8]>(1), [0xff, 0x00, b'\n']);
    let shown = outlast(database.url(), &["events", "show", row.get(0)])
        .await
        .fine();
    shown.says("not UTF-8: shown in hex").says("ff000a");
}

#[tokio::test]
async fn the_same_key_again_is_the_same_event_or_a_conflict() {
    let (database, client) = database().await;
    let emit = async |payload| {
        outlast(
            database.url(),
            &["emit", "paid", payload, "--dedup", "order/7", "--json"],
        )
        .await
    };
    let first = emit("{}").await.fine().json();
    let second = emit("{}").await.fine().json();
    assert_eq!(
        (&second[0]["id"], &second[0]["new"]),
        (&first[0]["id"], &false.into())
    );
    let id = first[0]["id"].as_str().expect("an id");
    emit("{ }")
        .await
        .with(1)
        .says("accepted before with other content")
        .says(id);
    assert_eq!(
        number(&client, "select count(*) from outlast.event").await,
        1
    );
}

#[tokio::test]
async fn what_cannot_be_stored_is_refused_and_nothing_is_written() {
    let (database, client) = database().await;
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let refused: [(&[&str], &str); 7] = [
        (&["emit", "Not A Name", "{}"], "is not 1 to 100 of"),
        (
            &["emit", "a'; drop schema outlast; --", "{}"],
            "is not 1 to 100 of",
        ),
        (&["emit", "a", "{"], "is not JSON"),
        (&["emit", "a", &deep], "deeper than 100"),
        (&["emit", "a", "\"\\u0000\""], "NUL"),
        (&["emit", "a", "{}", "--version", "0"], "version 0"),
        (&["emit", "a", "{}", "--content-type", "x"], "content type"),
    ];
    for (args, why) in refused {
        outlast(database.url(), args).await.with(2).says(why);
    }
    let large = format!("\"{}\"", "x".repeat(262_144));
    for (stdin, why) in [
        (&b"\"\xff\""[..], "not UTF-8"),
        (large.as_bytes(), "over the limit of 262144"),
    ] {
        let mut command = command(&["emit", "a", "-"]);
        command.args(["--database", database.url()]);
        run(command, stdin).await.with(2).says(why);
    }
    execute(&client, "select outlast.clock()").await;
    assert_eq!(
        number(&client, "select count(*) from outlast.event").await,
        0
    );
}
