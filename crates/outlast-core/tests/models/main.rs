//! Models: what crosses several transactions, tried in every order that there is.
//!
//! Each model is the rule with its real steps, small amounts, and properties that must hold in every state; and it has
//! broken twins, each of which lacks one idea and must be found out. Where core has the rule, the model calls it.
//! `./run prove models` runs them with larger amounts.

mod account;
mod command;
mod entity;
mod job;
mod lease;
mod parked;
mod window;

use std::{fmt::Debug, hash::Hash, thread};

use stateright::{Checker, Expectation, HasDiscoveries, Model};

/// The model holds: every property in every state. Answers how many states there are.
fn holds<M>(model: M) -> usize
where
    M: Model + Send + Sync + 'static,
    M::State: Debug + Hash + Clone + PartialEq + Send + Sync,
    M::Action: Debug + Clone + PartialEq,
{
    let checked = check(model, HasDiscoveries::AnyFailures);
    for (name, path) in checked.discoveries() {
        if checked.model().property(name).expectation != Expectation::Sometimes {
            panic!("broken: {name}\n{}", told(&path.into_actions()));
        }
    }
    // What must be possible, was.
    checked.assert_properties();
    println!("{} states", checked.unique_state_count());
    checked.unique_state_count()
}

/// The twin is found out, by this property.
fn breaks<M>(twin: M, property: &'static str)
where
    M: Model + Send + Sync + 'static,
    M::State: Debug + Hash + Clone + PartialEq + Send + Sync,
    M::Action: Debug + Clone + PartialEq,
{
    // Of several that break, each thread may find another first.
    let checked = check(twin, HasDiscoveries::AnyOf([property].into()));
    let found = checked.discoveries().remove(property);
    let Some(path) = found else {
        let others: Vec<_> = checked.discoveries().into_keys().collect();
        panic!("not found out: {property}, but {others:?}");
    };
    println!("{property}:\n{}", told(&path.into_actions()));
}

fn check<M>(model: M, until: HasDiscoveries) -> impl Checker<M>
where
    M: Model + Send + Sync + 'static,
    M::State: Debug + Hash + Clone + PartialEq + Send + Sync,
    M::Action: Debug + Clone + PartialEq,
{
    let threads = thread::available_parallelism().map_or(1, usize::from);
    model
        .checker()
        .threads(threads)
        .finish_when(until)
        .spawn_bfs()
        .join()
}

fn told(actions: &[impl Debug]) -> String {
    let lines = actions.iter().map(|action| format!("  {action:?}"));
    lines.collect::<Vec<_>>().join("\n")
}
