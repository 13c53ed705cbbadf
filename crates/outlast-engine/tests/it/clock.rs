//! Whose clock decides: the database's, for everybody. Processes only measure how long something takes.

use std::{fs, path::Path};

/// Where a process looks at the time of day, and why it may.
const MAY: [(&str, &str); 2] = [
    (
        "outlast-postgres/src/event/check.rs",
        "an id of the caller's own is refused before the statement; the statement decides",
    ),
    (
        "outlast-postgres/src/job.rs",
        "a time ten years away is refused before the statement, with a day to spare; the statement decides",
    ),
];

fn sources(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path
            .extension()
            .is_some_and(|kind| kind == "rs" || kind == "sql")
        {
            let text = fs::read_to_string(&path).unwrap();
            found.push((path.display().to_string(), text));
        }
    }
}

// CL-43: a fast clock saw live leases as lapsed, a slow one fired late. `./run prove E8 --only clocks` runs processes
// whose clocks differ by hours.
#[test]
fn the_time_of_day_of_a_process_decides_nothing() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut all = Vec::new();
    for part in [
        "core/src",
        "engine/src",
        "postgres/src",
        "postgres/functions",
    ] {
        sources(&crates.join(format!("outlast-{part}")), &mut all);
    }
    assert!(all.len() > 50, "{} files", all.len());
    for (path, text) in all {
        let tests = text.find("#[cfg(test)]").unwrap_or(text.len());
        let looks = text[..tests].lines().filter(|line| {
            let code = line.split("//").next().unwrap_or_default();
            let code = code.split("--").next().unwrap_or_default();
            code.contains("SystemTime::now")
                || code.contains(" now()")
                || code.contains("current_timestamp")
        });
        let looks: Vec<_> = looks.collect();
        let may = MAY.iter().any(|(end, _)| path.ends_with(end));
        assert!(may || looks.is_empty(), "{path}: {looks:?}");
    }
}
