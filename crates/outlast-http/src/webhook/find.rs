//! Where in a request something stands: an id, a type, a time.

use serde_json::Value;

use super::{request::Seen, scheme::Text};

/// Where in a request something stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Find {
    /// In a header.
    Header(Text),
    /// In the JSON of the body (of an item, where there are several): names with dots between them.
    Body(Text),
    /// Several places in the body, with `|` between what stands there. Nothing, unless all are there.
    Joined(&'static [&'static str]),
    /// What the scheme itself has proven to be the id of this delivery ([`Scheme::Standard`](super::Scheme::Standard)).
    Delivery,
    /// In a field of the header with the signature ([`Place::Fields`](super::Place::Fields)).
    Field,
}

impl Find {
    pub(super) fn in_item(&self, seen: &Seen<'_>, item: Option<&Value>) -> Option<String> {
        match self {
            Self::Header(name) => {
                let text = seen.text(name).ok()?;
                (!text.is_empty()).then(|| text.to_owned())
            }
            Self::Body(path) => field(item?, path),
            Self::Joined(paths) => {
                let all = paths.iter().map(|path| field(item?, path));
                Some(all.collect::<Option<Vec<String>>>()?.join("|"))
            }
            Self::Field | Self::Delivery => None,
        }
    }
}

/// What stands at the end of a way with dots: a text, a number or a truth, as text.
pub(super) fn field(value: &Value, path: &str) -> Option<String> {
    match at(value, path)? {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        _ => None,
    }
}

/// The end of a way with dots.
pub(super) fn at<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.')
        .try_fold(value, |value, name| value.get(name))
}
