//! What is known of a webhook once it has proven where it comes from.

use std::time::SystemTime;

use serde_json::Value;

use super::{
    Authenticity, Find, Greeting, Identity, Items, Preset, find, request::Seen, scheme::Proof,
};

/// A webhook that has proven where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// Which of the endpoint's secrets has signed it, or which of the public keys, counted from 0 in the order in which they were
    /// given: when an old one signs nothing any more, it can go.
    pub key: usize,
    /// When it was signed, where that is signed.
    pub signed_at: Option<SystemTime>,
    /// The signed id of this delivery, where there is one. An event that comes under the id of another delivery is forged.
    pub delivery: Option<String>,
    /// How much of the body is proven. What is not full should be read again from the provider.
    pub body_authenticity: Authenticity,
    /// The events in it; one, unless the provider sends several at once.
    pub events: Vec<Item>,
    /// What the provider asks, if it asks something instead of telling.
    pub greeting: Option<Greeting>,
}

/// One event in a webhook.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Item {
    /// The provider's id for it. None: the body's digest is its identity.
    pub id: Option<String>,
    /// Its type, in the provider's words.
    pub event_type: Option<String>,
    /// When the provider says that it happened.
    pub occurred_at: Option<SystemTime>,
}

impl Preset {
    /// The events in a request.
    pub(super) fn events(&self, seen: &Seen<'_>, proof: &Proof) -> Vec<Item> {
        let body = seen.json();
        let one = |item: Option<&Value>| self.event(seen, proof, item);
        let all = match self.items {
            Items::One => None,
            Items::Array => body.and_then(Value::as_array),
            Items::Within(name, _) => body.and_then(|body| find::at(body, name)?.as_array()),
        };
        match (all, self.items) {
            (Some(all), Items::Within(_, inner)) => {
                all.iter().map(|item| one(item.get(inner))).collect()
            }
            (Some(all), _) => all.iter().map(|item| one(Some(item))).collect(),
            (None, _) => vec![one(body)],
        }
    }

    fn event(&self, seen: &Seen<'_>, proof: &Proof, item: Option<&Value>) -> Item {
        let find = |find: &Find| match find {
            Find::Delivery => proof.delivery.clone(),
            find => find.in_item(seen, item),
        };
        let id = match &self.identity {
            Identity::Signed(place) | Identity::Unsigned(place) => find(place),
            Identity::Digest => None,
        };
        let occurred = self.occurred.as_ref();
        Item {
            id,
            event_type: self.event_type.as_ref().and_then(find),
            occurred_at: occurred.and_then(|(place, unit)| unit.read(&find(place)?)),
        }
    }
}
