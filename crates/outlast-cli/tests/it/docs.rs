//! The pages say what the program does.

use std::{collections::BTreeSet, fs, path::PathBuf};

use crate::{command, run};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every `OUT-0000` in a text.
fn codes(text: &str) -> BTreeSet<String> {
    let code = |part: &str| {
        part.get(..4)
            .filter(|n| n.bytes().all(|b| b.is_ascii_digit()))
            .map(|n| format!("OUT-{n}"))
    };
    text.split("OUT-").skip(1).filter_map(code).collect()
}

#[test]
fn every_code_has_a_page_and_every_page_a_code() {
    let known = codes(&read("crates/outlast-postgres/src/error.rs"));
    assert!(known.len() > 5, "{known:?}");
    let pages = fs::read_dir(root().join("docs/errors")).expect("the pages are there");
    let pages: BTreeSet<String> = pages
        .map(|page| {
            page.expect("a page")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .filter_map(|name| name.strip_suffix(".md").map(str::to_owned))
        .filter(|name| name.starts_with("OUT-"))
        .collect();
    assert_eq!(known, pages);
    let list = read("docs/errors/README.md");
    for code in &pages {
        let page = read(&format!("docs/errors/{code}.md"));
        assert!(
            page.starts_with(&format!("# {code}: ")),
            "{code}: the title"
        );
        let headings: Vec<String> = page
            .split("**")
            .skip(1)
            .step_by(2)
            .map(str::to_lowercase)
            .collect();
        for says in ["what happened", "why", "what to do"] {
            assert!(
                headings.iter().any(|heading| heading.contains(says)),
                "{code} does not say {says}: {headings:?}"
            );
        }
        assert!(
            list.contains(&format!("[{code}]({code}.md)")),
            "{code} is not in the list of pages"
        );
    }
}

#[tokio::test]
async fn the_page_lists_the_exit_codes_that_the_help_lists() {
    let help = run(command(&["--help"]), b"").await.fine();
    let page = read("docs/cli.md");
    let codes = help
        .out
        .split("Exit codes:\n")
        .nth(1)
        .expect("the list")
        .lines()
        .take_while(|line| !line.is_empty());
    let mut found = 0;
    for line in codes {
        let (code, means) = line
            .trim()
            .split_once("  ")
            .expect("a code and what it means");
        assert!(
            page.contains(&format!("| {code} | {means} |")),
            "docs/cli.md has no row for: {line}"
        );
        found += 1;
    }
    assert!(found > 5);
}

#[tokio::test]
async fn the_page_names_every_command() {
    let page = read("docs/cli.md");
    let help = run(command(&["--help"]), b"").await.fine();
    let commands = help
        .out
        .split("Commands:\n")
        .nth(1)
        .expect("the list")
        .lines()
        .take_while(|line| !line.is_empty());
    for line in commands {
        let name = line.split_whitespace().next().expect("a name");
        assert!(
            name == "help" || page.contains(&format!("outlast {name}")),
            "docs/cli.md does not name {name}"
        );
    }
}
