//! What differs between two sets of things with names, one line for each thing that one of them says.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::Change;

/// Each thing that it says, as a person reads it.
pub(crate) fn said(one: &impl Serialize) -> BTreeMap<String, String> {
    let said = serde_json::to_value(one).unwrap_or_default();
    let mut lines = BTreeMap::new();
    for (name, value) in said.as_object().into_iter().flatten() {
        let value = match value {
            serde_json::Value::String(text) => text.clone(),
            serde_json::Value::Array(list) => {
                let list: Vec<_> = list.iter().filter_map(serde_json::Value::as_str).collect();
                list.join(", ")
            }
            serde_json::Value::Object(headers) => {
                let one = |(name, value): (&String, &serde_json::Value)| {
                    format!("{name}: {}", value.as_str().unwrap_or_default())
                };
                let headers: Vec<_> = headers.iter().map(one).collect();
                headers.join(", ")
            }
            // A rate of 50 is 50.0 there.
            serde_json::Value::Number(number) => number.as_f64().unwrap_or_default().to_string(),
            other => other.to_string(),
        };
        lines.insert(name.clone(), value);
    }
    lines
}

/// The lines in which these differ: `KIND.NAME.LINE`.
pub(crate) fn lines<T: Serialize>(
    kind: &str,
    now: &BTreeMap<String, T>,
    wanted: &BTreeMap<String, T>,
) -> Vec<Change> {
    let names: BTreeSet<&String> = now.keys().chain(wanted.keys()).collect();
    let mut changes = Vec::new();
    for name in names {
        let lines_of = |all: &BTreeMap<String, T>| all.get(name).map(said).unwrap_or_default();
        let (was, becomes) = (lines_of(now), lines_of(wanted));
        let lines: BTreeSet<&String> = was.keys().chain(becomes.keys()).collect();
        for line in lines {
            let of = |all: &BTreeMap<String, String>| all.get(line).cloned().unwrap_or_default();
            let (was, becomes) = (of(&was), of(&becomes));
            if was != becomes {
                let name = format!("{kind}.{name}.{line}");
                changes.push(Change { name, was, becomes });
            }
        }
    }
    changes
}
