//! The account: what the clients saw against what the tables and the provider hold. Links nothing of the product, reads
//! nothing of its tables.
//!
//! A request that was answered with success must be there; one that was refused must not. One without an answer, or with
//! an error of the server, may or may not be: its business row decides, and everything else must agree with that row.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::journal::{Entry, Intent};

/// Everything that is known from outside.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) journal: Vec<Entry>,
    /// Business rows.
    pub(crate) bookings: Vec<Booked>,
    pub(crate) deliveries: Vec<String>,
    /// What the consumers did.
    pub(crate) ledger: Vec<Posted>,
    pub(crate) mails: Vec<Mail>,
    pub(crate) archive: Vec<Archived>,
}

#[derive(Clone, Debug)]
pub(crate) struct Booked {
    pub(crate) id: i64,
    pub(crate) request: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Posted {
    pub(crate) booking: i64,
    pub(crate) event: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Mail {
    pub(crate) booking: i64,
    pub(crate) event: String,
    /// The provider knew the event already and sent nothing.
    pub(crate) repeat: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Archived {
    pub(crate) event: String,
    pub(crate) key: String,
    pub(crate) sha256: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Account {
    committed: usize,
    rolled_back: usize,
    handled: Handled,
    redelivered: usize,
    lost: usize,
    phantom: usize,
    completed_twice: usize,
    digests_equal: bool,
    /// Each difference, in words.
    #[serde(skip)]
    problems: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct Handled {
    ledger: usize,
    mailer: usize,
    archive: usize,
}

/// What was committed: its key, and what its payload's digest must be.
type Committed = HashMap<String, String>;

impl Account {
    pub(crate) fn of(facts: &Facts) -> Self {
        let mut account = Self {
            digests_equal: true,
            ..Self::default()
        };
        let committed = account.committed(facts);
        account.answers(facts);

        let bookings: HashSet<_> = facts
            .bookings
            .iter()
            .map(|booked| booking_key(booked.id))
            .collect();
        let everything: HashSet<_> = committed.keys().cloned().collect();
        let posted = facts
            .ledger
            .iter()
            .map(|posted| booking_key(posted.booking));
        account.handled.ledger = account.compare("ledger", &bookings, posted);
        let sent = facts
            .mails
            .iter()
            .filter(|mail| !mail.repeat)
            .map(|mail| booking_key(mail.booking));
        account.handled.mailer = account.compare("mailer", &bookings, sent);
        let archived = facts.archive.iter().map(|archived| archived.key.clone());
        account.handled.archive = account.compare("archive", &everything, archived);

        account.redelivered = facts.mails.iter().filter(|mail| mail.repeat).count();
        account.digests(facts, &committed);
        account.identities(facts);
        account
    }

    pub(crate) fn is_right(&self) -> bool {
        self.committed > 0
            && self.digests_equal
            && [self.lost, self.phantom, self.completed_twice] == [0, 0, 0]
    }

    /// Business rows, each of which somebody must have asked for.
    fn committed(&mut self, facts: &Facts) -> Committed {
        let asked: HashMap<_, _> = facts
            .journal
            .iter()
            .filter_map(|entry| match entry {
                Entry::Sent { request, intent } => Some((request.as_str(), intent)),
                Entry::Answered { .. } => None,
            })
            .collect();
        let mut committed = Committed::new();
        for Booked { id, request } in &facts.bookings {
            match asked.get(request.as_str()) {
                Some(Intent::Book { guest, total }) => {
                    committed.insert(booking_key(*id), booking_digest(*id, guest, total));
                }
                _ => self.phantom(format!("booking {id}: nobody asked for {request}")),
            }
        }
        for id in &facts.deliveries {
            match asked.get(id.as_str()) {
                Some(Intent::Deliver { sha256 }) => {
                    committed.insert(delivery_key(id), sha256.clone());
                }
                _ => self.phantom(format!("delivery {id}: nobody sent it")),
            }
        }
        self.committed = committed.len();
        self.rolled_back = asked.len().saturating_sub(committed.len());
        committed
    }

    /// A success must be there, a refusal must not.
    fn answers(&mut self, facts: &Facts) {
        let booked = facts.bookings.iter().map(|booked| booked.request.as_str());
        let there: HashSet<_> = booked
            .chain(facts.deliveries.iter().map(String::as_str))
            .collect();
        for entry in &facts.journal {
            let Entry::Answered {
                request,
                status: Some(status),
            } = entry
            else {
                continue;
            };
            match (status, there.contains(request.as_str())) {
                (200..300, false) => self.lost(format!(
                    "request {request}: answered {status} and not there"
                )),
                (400..500, true) => {
                    self.phantom(format!("request {request}: answered {status} and there"));
                }
                _ => {}
            }
        }
    }

    /// What one consumer did against what it should; how much of that it did.
    fn compare(
        &mut self,
        consumer: &str,
        expected: &HashSet<String>,
        seen: impl Iterator<Item = String>,
    ) -> usize {
        let mut times: HashMap<String, usize> = HashMap::new();
        for key in seen {
            *times.entry(key).or_default() += 1;
        }
        for (key, times) in &times {
            if !expected.contains(key) {
                self.phantom(format!("{consumer}: {key} was never committed"));
            } else if *times > 1 {
                self.completed_twice += 1;
                self.problems
                    .push(format!("{consumer}: {key} is there {times} times"));
            }
        }
        let (handled, missing): (Vec<_>, Vec<_>) =
            expected.iter().partition(|key| times.contains_key(*key));
        for key in missing {
            self.lost(format!("{consumer}: {key} was not handled"));
        }
        handled.len()
    }

    fn digests(&mut self, facts: &Facts, committed: &Committed) {
        for Archived { key, sha256, .. } in &facts.archive {
            if committed
                .get(key)
                .is_some_and(|expected| expected != sha256)
            {
                self.digests_equal = false;
                self.problems
                    .push(format!("archive: {key} has other bytes than were emitted"));
            }
        }
    }

    /// One booking, one event: all three consumers must have been given the same id.
    fn identities(&mut self, facts: &Facts) {
        let known: HashMap<_, _> = facts
            .archive
            .iter()
            .map(|a| (a.key.as_str(), a.event.as_str()))
            .collect();
        let posted = facts
            .ledger
            .iter()
            .map(|posted| ("ledger", posted.booking, &posted.event));
        let sent = facts
            .mails
            .iter()
            .map(|mail| ("mailer", mail.booking, &mail.event));
        for (consumer, booking, event) in posted.chain(sent) {
            if known
                .get(booking_key(booking).as_str())
                .is_some_and(|known| known != event)
            {
                self.phantom(format!(
                    "{consumer}: booking {booking} came with another event id, {event}"
                ));
            }
        }
    }

    fn lost(&mut self, problem: String) {
        self.lost += 1;
        self.problems.push(problem);
    }

    fn phantom(&mut self, problem: String) {
        self.phantom += 1;
        self.problems.push(problem);
    }

    /// One line.
    pub(crate) fn json(&self, broker: Option<&str>, seconds: f64) -> serde_json::Result<String> {
        #[derive(Serialize)]
        struct Line<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            broker: Option<&'a str>,
            #[serde(flatten)]
            account: &'a Account,
            seconds: f64,
        }
        let seconds = (seconds * 10.0).round() / 10.0;
        serde_json::to_string(&Line {
            broker,
            account: self,
            seconds,
        })
    }

    /// For people.
    pub(crate) fn text(&self, facts: &Facts, seconds: f64) -> String {
        let Handled {
            ledger,
            mailer,
            archive,
        } = self.handled;
        let (bookings, deliveries) = (facts.bookings.len(), facts.deliveries.len());
        let mut lines = vec![
            format!("requests         {:>6}", self.committed + self.rolled_back),
            format!(
                "  committed      {:>6}   {bookings} bookings, {deliveries} webhooks",
                self.committed
            ),
            format!(
                "  rolled back    {:>6}   refused, given up by the client, or cut off",
                self.rolled_back
            ),
            format!("handled by ledger {ledger:>5}   in one transaction with the completion"),
            format!("           mailer {mailer:>5}   through a provider with its own books"),
            format!("          archive {archive:>5}   in batches, every type"),
            format!(
                "delivered again  {:>6}   to the provider, who knew the key",
                self.redelivered
            ),
            format!("lost             {:>6}", self.lost),
            format!("phantom          {:>6}", self.phantom),
            format!("completed twice  {:>6}", self.completed_twice),
            format!(
                "digests equal    {:>6}",
                if self.digests_equal { "yes" } else { "NO" }
            ),
            format!("seconds          {seconds:>6.1}"),
        ];
        const SHOWN: usize = 20;
        lines.extend(
            self.problems
                .iter()
                .take(SHOWN)
                .map(|problem| format!("  ! {problem}")),
        );
        if self.problems.len() > SHOWN {
            lines.push(format!("  ! and {} more", self.problems.len() - SHOWN));
        }
        lines.push(format!(
            "The account is {}.",
            if self.is_right() { "right" } else { "OFF" }
        ));
        lines.join("\n") + "\n"
    }
}

fn booking_key(id: i64) -> String {
    format!("booking/{id}")
}

fn delivery_key(id: &str) -> String {
    format!("delivery/{id}")
}

/// What the service must have emitted, to the byte.
fn booking_digest(id: i64, guest: &str, total: &str) -> String {
    let [guest, total] = [guest, total].map(|text| serde_json::Value::from(text).to_string());
    hex(&Sha256::digest(format!(
        r#"{{"booking":{id},"guest":{guest},"total":{total}}}"#
    )))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
#[path = "account_tests.rs"]
mod tests;
