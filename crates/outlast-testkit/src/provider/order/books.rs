//! What a provider remembers: its ledger, and what follows from it.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::{Entry, Fault, Habits, Kind, What};
use crate::provider::ledger::{Book, now_ms};

/// What an order says that matters here; the rest is its own.
#[derive(Debug, Deserialize)]
pub(super) struct Wish {
    pub(super) reference: String,
    #[serde(default)]
    pub(super) account: String,
    #[serde(default)]
    refuse: bool,
    pub(super) call_back: Option<String>,
}

/// One request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) kind: Kind,
    pub(super) key: Option<String>,
    pub(super) valid_until_ms: Option<u64>,
    pub(super) wish: Wish,
    pub(super) body: Value,
    pub(super) visit: u32,
    pub(super) beside: u32,
    pub(super) fault: Option<Fault>,
}

#[derive(Debug)]
pub(super) struct Books {
    book: Book,
    /// Effects and refusals, by their numbers, from 1.
    orders: Vec<Entry>,
    /// The newest of each key.
    keys: HashMap<(Kind, String), u64>,
    references: HashMap<(Kind, String), u64>,
    visits: HashMap<(Kind, String), u32>,
    under_way: HashMap<String, u32>,
}

impl Books {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let (book, known) = Book::open::<Entry>(path)?;
        let mut books = Self {
            book,
            orders: Vec::new(),
            keys: HashMap::new(),
            references: HashMap::new(),
            visits: HashMap::new(),
            under_way: HashMap::new(),
        };
        for entry in known {
            let visits = books.visits.entry(name(&entry)).or_default();
            *visits = entry.visit + 1;
            books.remember(entry);
        }
        Ok(books)
    }

    /// A request of this order begins: the how manyth it is, and how many of its account are under way with it.
    pub(super) fn begins(&mut self, kind: Kind, wish: &Wish) -> (u32, u32) {
        let visits = self
            .visits
            .entry((kind, wish.reference.clone()))
            .or_default();
        let beside = self.under_way.entry(wish.account.clone()).or_default();
        *visits += 1;
        *beside += 1;
        (*visits - 1, *beside)
    }

    /// It ends.
    pub(super) fn ends(&mut self, account: &str) {
        if let Some(under_way) = self.under_way.get_mut(account) {
            *under_way -= 1;
        }
    }

    /// Does what the request says, once it is clear that it should: durable when it returns.
    pub(super) fn apply(&mut self, request: &Request, habits: &Habits) -> io::Result<Entry> {
        let now = now_ms() + habits.ahead_ms;
        let repeated = self.repeated(request, now, habits.window_ms);
        let next = self.orders.len() as u64 + 1;
        let (what, number) = match repeated {
            _ if request.valid_until_ms.is_some_and(|until| now > until) => (What::Expired, 0),
            Some(first) => (What::Repeat, first),
            None if request.wish.refuse => (What::Refused, next),
            None => (What::Effect, next),
        };
        self.enter(request, what, number, now)
    }

    /// A line without an effect.
    pub(super) fn enter(
        &mut self,
        request: &Request,
        what: What,
        number: u64,
        at_ms: u64,
    ) -> io::Result<Entry> {
        let entry = Entry {
            kind: request.kind,
            reference: request.wish.reference.clone(),
            key: request.key.clone(),
            account: request.wish.account.clone(),
            what,
            number,
            visit: request.visit,
            beside: request.beside,
            at_ms,
            fault: request.fault,
            body: request.body.clone(),
        };
        self.book.write(&entry)?;
        self.remember(entry.clone());
        Ok(entry)
    }

    /// The number that it gave the first time to this key, if it still knows.
    fn repeated(&self, request: &Request, now: u64, window_ms: Option<u64>) -> Option<u64> {
        let key = request
            .key
            .clone()
            .filter(|_| request.kind.honours_keys())?;
        let first = *self.keys.get(&(request.kind, key))?;
        let age = now.saturating_sub(self.order(request.kind, first)?.at_ms);
        window_ms
            .is_none_or(|window| age <= window)
            .then_some(first)
    }

    fn remember(&mut self, entry: Entry) {
        if !matches!(entry.what, What::Effect | What::Refused) {
            return;
        }
        if let Some(key) = entry.key.clone() {
            self.keys.insert((entry.kind, key), entry.number);
        }
        self.references.insert(name(&entry), entry.number);
        self.orders.push(entry);
    }

    pub(super) fn order(&self, kind: Kind, number: u64) -> Option<&Entry> {
        let at = usize::try_from(number.checked_sub(1)?).ok()?;
        self.orders.get(at).filter(|entry| entry.kind == kind)
    }

    pub(super) fn by_reference(&self, kind: Kind, reference: &str) -> Option<&Entry> {
        let number = self.references.get(&(kind, reference.to_owned()))?;
        self.order(kind, *number)
    }
}

fn name(entry: &Entry) -> (Kind, String) {
    (entry.kind, entry.reference.clone())
}
