//! The states of the schema are those of core's table.

use outlast_core::{
    Class,
    parked::{CLASSES, State, allowed},
};
use outlast_postgres::migrate;

use super::Yard;
use crate::sql;

/// The words of the CHECK on one column of `_parked`.
async fn words(yard: &Yard, column: &str) -> Vec<String> {
    let check: String = sql::one(
        &yard.client,
        "select pg_get_constraintdef(oid) from pg_constraint
         where conrelid = 'outlast._parked'::regclass and contype = 'c' and conname = '_parked_' || $1 || '_check'",
        &[&column],
    )
    .await;
    check
        .split('\'')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn the_checks_of_the_schema_and_the_table_of_core_have_the_same_words() {
    let yard = Yard::new(1).await;
    let states = State::ALL.iter().filter(|state| !state.is_end());
    assert_eq!(
        words(&yard, "state").await,
        states.map(|state| state.as_str()).collect::<Vec<_>>()
    );
    let classes = Class::ALL.map(Class::as_str).into_iter().chain(CLASSES);
    let (mut ours, mut theirs) = (classes.collect::<Vec<_>>(), words(&yard, "class").await);
    ours.sort_unstable();
    theirs.sort_unstable();
    assert_eq!(theirs, ours);
    let most = "select column_default from information_schema.columns where table_name = '_consumer' and column_name = 'behind_most'";
    assert_eq!(
        sql::one::<String>(&yard.client, most, &[]).await,
        outlast_core::parked::BEHIND.to_string()
    );
}

/// Each function that moves parked events says so: `from: a, b; to: c`. `batch` is where an event comes from that is not
/// parked yet.
#[tokio::test]
async fn what_a_function_says_it_does_is_allowed_by_the_table_of_core() {
    let mut moves = 0;
    // Those of jobs, commands, entities and outboxes move other things.
    let parked = |file: &&str| {
        !["job", "command", "entity", "outbox"]
            .iter()
            .any(|of| file.starts_with(of))
    };
    for (file, text) in migrate::FUNCTIONS.iter().filter(|(file, _)| parked(file)) {
        for line in text
            .lines()
            .filter_map(|line| line.strip_prefix("-- from: "))
        {
            let (from, to) = line.split_once("; to: ").expect("from: ..; to: ..");
            for to in to.trim_end_matches('.').split(", ") {
                let to: State = to.parse().unwrap_or_else(|bad| panic!("{file}: {bad}"));
                let from = from.split(", ").map(|from| match from {
                    "batch" => None,
                    state => Some(
                        state
                            .parse::<State>()
                            .unwrap_or_else(|bad| panic!("{file}: {bad}")),
                    ),
                });
                assert!(
                    from.clone().any(|from| allowed(from, to)),
                    "{file}: no way to {to} in `{line}`"
                );
                moves += 1;
            }
        }
    }
    assert!(
        moves > 8,
        "the functions of parked say what they do: {moves}"
    );
}
