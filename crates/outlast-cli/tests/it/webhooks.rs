//! `outlast webhooks`: files of recorded webhooks, judged without a database.

use serde_json::Value;

use crate::{command, run};

const VECTORS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../outlast-http/tests/it/webhook/vectors.json"
);

#[tokio::test]
async fn every_recorded_webhook_is_judged_on_a_line_of_its_own_as_its_row_expects() {
    let ran = run(
        command(&["webhooks", "verify", "--vectors", VECTORS, "--json"]),
        b"",
    )
    .await;
    let lines = ran.fine().json();
    let rows: Vec<Value> = serde_json::from_slice(&std::fs::read(VECTORS).unwrap()).unwrap();
    assert_eq!(lines.len(), rows.len());
    for (line, row) in lines.iter().zip(&rows) {
        assert_eq!(line["id"], row["id"]);
        assert_eq!(line["verdict"], row["expect"], "{line}");
        if row["expect"] == "reject" {
            assert_eq!(line["reason"], row["reason"], "{line}");
        }
    }
}

#[tokio::test]
async fn an_unknown_scheme_is_refused_and_a_row_that_is_judged_otherwise_is_found() {
    let file =
        br#"[{"id":"x","scheme":"nobody","headers":[],"body":{"utf8":""},"expect":"accept"}]"#;
    let ask = ["webhooks", "verify", "--vectors", "-"];
    let ran = run(command(&[&ask[..], &["--json"]].concat()), file)
        .await
        .with(1);
    let lines = ran.json();
    assert_eq!(lines[0]["verdict"], "reject");
    assert_eq!(lines[0]["reason"], "unknown_scheme");
    run(command(&ask), file)
        .await
        .with(1)
        .says("expected otherwise")
        .says("1 webhook: 0 accepted, 1 refused, 1 otherwise than expected");
}

#[tokio::test]
async fn a_file_that_is_none_is_named_with_its_row() {
    let ask = ["webhooks", "verify", "--vectors", "-"];
    for (file, says) in [
        (&b"{"[..], "not an array of rows in JSON"),
        (b"[1]", "row 1: "),
        (
            br#"[{"id":"a","scheme":"github","headers":[],"body":{"utf8":""}},{"id":"b"}]"#,
            "row 2 (b): missing field",
        ),
        (
            br#"[{"id":"a","scheme":"github","headers":[],"body":{"base64":"%"}}]"#,
            "row 1 (a): the body is not base64",
        ),
    ] {
        let ran = run(command(&ask), file).await.with(2).says(says);
        assert_eq!(ran.out, "", "nothing of it is judged");
    }
    let missing = ["webhooks", "verify", "--vectors", "/nowhere/vectors.json"];
    run(command(&missing), b"")
        .await
        .with(7)
        .says("read /nowhere/vectors.json");
}

#[tokio::test]
async fn every_preset_has_a_row_in_the_list_and_a_page() {
    let listed = run(command(&["webhooks", "presets", "--json"]), b"")
        .await
        .fine()
        .json();
    assert!(listed.len() > 20);
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let read = |path: &str| std::fs::read_to_string(format!("{docs}/{path}")).unwrap();
    let list = read("webhooks.md");
    for preset in listed {
        let text = |name: &str| preset[name].as_str().unwrap().to_owned();
        let name = text("name");
        // Who proves nothing has nothing to explain.
        let row = match &*name {
            "none" => "| `none` |".to_owned(),
            name => format!("| [`{name}`](webhooks/{name}.md) |"),
        };
        let row = list.lines().find(|line| line.starts_with(&row));
        let row = row.unwrap_or_else(|| panic!("docs/webhooks.md has no row for {preset}"));
        for says in [text("body_authenticity"), text("identity"), text("page")] {
            assert!(row.contains(&says), "{says}: {row}");
        }
        if name != "none" {
            let page = read(&format!("webhooks/{name}.md"));
            assert!(page.contains(&format!("Preset `{name}`")), "{name}");
            assert!(page.contains(&text("page")), "{name}");
        }
    }
    run(command(&["webhooks", "presets"]), b"")
        .await
        .fine()
        .says("standard-webhooks");
}
