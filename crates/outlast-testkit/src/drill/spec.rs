//! One consumer of a drill's worker, in one word of a command line.

use std::{fmt, str::FromStr};

use super::pools::{Driver, Isolation};

/// One consumer of a drill worker.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Its name.
    pub name: String,
    /// How it handles.
    pub form: Form,
    /// Of its transactions.
    pub isolation: Isolation,
    /// Of its pool.
    pub driver: Driver,
    /// Keeps the order of each key.
    pub ordered: bool,
}

/// How a consumer handles its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `on`: outside effects.
    Outside,
    /// `on_tx`.
    Tx,
    /// `on_batch`.
    Batch,
    /// `on`, with a transaction of its own that `Attempt::seal` completes and commits.
    Seal,
    /// `on_tx`, and writes children of the event.
    FanOut,
    /// `on_tx` of such children.
    Child,
}

impl Form {
    /// Its word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Outside => "on",
            Self::Tx => "on_tx",
            Self::Batch => "on_batch",
            Self::Seal => "seal",
            Self::FanOut => "fan-out",
            Self::Child => "child",
        }
    }

    const ALL: [Self; 6] = [
        Self::Outside,
        Self::Tx,
        Self::Batch,
        Self::Seal,
        Self::FanOut,
        Self::Child,
    ];
}

impl Spec {
    /// In READ COMMITTED, through deadpool.
    pub fn new(name: &str, form: Form) -> Self {
        Self {
            name: name.to_owned(),
            form,
            isolation: Isolation::Committed,
            driver: Driver::Deadpool,
            ordered: false,
        }
    }

    /// The same, but it keeps the order of each key.
    pub fn ordered(self) -> Self {
        Self {
            ordered: true,
            ..self
        }
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (form, level, driver) = (self.form, self.isolation, self.driver);
        let (form, level, driver) = (form.as_str(), level.as_str(), driver.as_str());
        write!(f, "{}={form},{level},{driver}", self.name)?;
        f.write_str(if self.ordered { ",ordered" } else { "" })
    }
}

impl FromStr for Spec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, rest) = text.split_once('=').ok_or("name=form is missing")?;
        let mut words = rest.split(',');
        let form = words.next().unwrap_or_default();
        let form = Form::ALL.into_iter().find(|known| known.as_str() == form);
        let form = form.ok_or("the form is on, on_tx, on_batch, seal, fan-out or child")?;
        let mut spec = Self::new(name, form);
        for word in words {
            if word == "ordered" {
                spec.ordered = true;
                continue;
            }
            match word.parse() {
                Ok(driver) => spec.driver = driver,
                Err(_) => spec.isolation = word.parse()?,
            }
        }
        Ok(spec)
    }
}
