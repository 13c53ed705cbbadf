//! The brokers of this process: `[broker.NAME]` of the file. Routes, which are settings of the cluster, name them.
//!
//! Secrets need not stand in the file: `OUTLAST_BROKER_NAME_KEY` sets a text of one, such as
//! `OUTLAST_BROKER_NATS_PASSWORD`.

#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "pubsub")]
mod pubsub;

use std::{collections::BTreeMap, env, fmt, sync::Arc};

use outlast_core::{Broker, broker::BoxFuture};
use toml::{
    Spanned, Table, Value,
    de::{DeTable, DeValue},
};

use super::layers::line;
use crate::{
    exit::Exit,
    out::text,
    problem::{Answer, Problem},
};

/// The table of the file.
pub(crate) const SECTION: &str = "broker";
/// Before the name and the key of a text.
pub(crate) const VARIABLE: &str = "OUTLAST_BROKER_";
/// Which kinds there are.
const KINDS: &str = "kind = \"nats\" or \"pubsub\" is expected";

/// What a process has to know of one broker.
trait Known: Send + Sync {
    fn problems(&self) -> Vec<String>;

    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn Broker>, String>>;
}

/// What the file and the environment say.
#[derive(Clone, Default)]
pub(crate) struct Brokers {
    known: BTreeMap<String, Arc<dyn Known>>,
    pub(super) problems: Vec<String>,
}

impl fmt::Debug for Brokers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Settings of a broker hold secrets.
        f.debug_set().entries(self.known.keys()).finish()
    }
}

impl Brokers {
    pub(super) fn read(
        spans: &Spanned<DeTable<'_>>,
        values: &Table,
        content: &str,
        shown: &str,
    ) -> Self {
        let mut read = Self::default();
        let section = spans
            .get_ref()
            .iter()
            .find(|(key, _)| key.get_ref() == SECTION);
        let Some((key, section)) = section else {
            return read;
        };
        let at = |span: std::ops::Range<usize>| format!("{shown}:{}", line(content, span.start));
        let (DeValue::Table(places), Some(Value::Table(brokers))) =
            (section.get_ref(), values.get(SECTION))
        else {
            let origin = at(key.span());
            read.problems.push(format!(
                "broker ({origin}): tables [broker.NAME] are expected"
            ));
            return read;
        };
        for (key, _) in places {
            let name = key.get_ref().as_ref();
            let origin = at(key.span());
            let told = |why: String| format!("broker.{} ({origin}): {why}", text::line(name));
            match brokers.get(name).map(|value| known(name, value)) {
                Some(Ok(Some(known))) => {
                    let problems = known.problems();
                    read.problems.extend(problems.into_iter().map(told));
                    read.known.insert(name.to_owned(), known);
                }
                Some(Err(why)) => read.problems.push(told(why)),
                Some(Ok(None)) | None => {}
            }
        }
        read
    }

    /// Each with a connection that comes about, and comes back, by itself.
    ///
    /// # Errors
    /// When a file that one names cannot be read.
    pub(crate) async fn connect(&self) -> Answer<Vec<(String, Arc<dyn Broker>)>> {
        let mut brokers: Vec<(String, Arc<dyn Broker>)> = Vec::new();
        for (name, known) in &self.known {
            let broker = known.connect().await.map_err(|why| {
                let what = format!("use the broker {}", text::line(name));
                Problem::new(Exit::Usage, what, text::line(&why))
            })?;
            brokers.push((name.clone(), broker));
        }
        Ok(brokers)
    }
}

/// None: a kind that this program was built without. An application's own binary reads the same file, and brings its own
/// brokers.
fn known(name: &str, value: &Value) -> Result<Option<Arc<dyn Known>>, String> {
    let Value::Table(table) = value else {
        return Err("a table is expected".into());
    };
    let mut table = table.clone();
    for (key, value) in overrides(name) {
        table.insert(key, Value::String(value));
    }
    let kind = table.remove("kind");
    match kind.as_ref().and_then(Value::as_str) {
        #[cfg(feature = "nats")]
        Some("nats") => read::<outlast_nats::NatsSettings>(table).map(Some),
        #[cfg(feature = "pubsub")]
        Some("pubsub") => read::<outlast_pubsub::Options>(table).map(Some),
        #[cfg(not(all(feature = "nats", feature = "pubsub")))]
        Some("nats" | "pubsub") => Ok(None),
        _ => Err(KINDS.into()),
    }
}

#[cfg(any(feature = "nats", feature = "pubsub"))]
fn read<K: Known + serde::de::DeserializeOwned + 'static>(
    table: Table,
) -> Result<Arc<dyn Known>, String> {
    let read: Result<K, toml::de::Error> = table.try_into();
    match read {
        Ok(known) => Ok(Arc::new(known)),
        Err(why) => Err(text::line(why.message().trim()).to_string()),
    }
}

/// `OUTLAST_BROKER_NAME_KEY` by key, in lower case.
fn overrides(name: &str) -> impl Iterator<Item = (String, String)> {
    let named = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_uppercase()
        } else {
            '_'
        }
    };
    let prefix = format!("{VARIABLE}{}_", name.chars().map(named).collect::<String>());
    env::vars_os().filter_map(move |(variable, value)| {
        let key = variable.to_str()?.strip_prefix(&prefix)?.to_lowercase();
        Some((key, value.into_string().ok()?)).filter(|(_, value)| !value.is_empty())
    })
}

#[cfg(all(test, feature = "nats", feature = "pubsub"))]
mod tests {
    use super::*;
    use crate::settings::layers::parse;

    fn read(content: &str) -> Brokers {
        let (spans, values) = parse(content, "outlast.toml").expect("it is TOML");
        Brokers::read(&spans, &values, content, "outlast.toml")
    }

    #[test]
    fn a_file_says_which_brokers_there_are() {
        let brokers = read(
            "[broker.main]\nkind = \"nats\"\nurls = [\"nats://n:4222\"]\n\n[broker.cloud]\nkind = \"pubsub\"\nproject = \"my-project\"\nendpoint = \"http://127.0.0.1:1\"\n",
        );
        assert_eq!(brokers.problems, Vec::<String>::new());
        assert!(brokers.known.keys().eq(["cloud", "main"]));
    }

    #[test]
    fn every_mistake_is_told_with_its_place_and_no_secret() {
        let brokers = read(
            "[broker.a]\nkind = \"kafka\"\n[broker.b]\nkind = \"nats\"\npasword = \"geheim\"\n[broker.c]\nkind = \"pubsub\"\n",
        );
        let all = brokers.problems.join("\n");
        assert!(
            all.contains("broker.a (outlast.toml:1): kind = \"nats\" or"),
            "{all}"
        );
        assert!(
            all.contains("broker.b (outlast.toml:3): unknown field `pasword`"),
            "{all}"
        );
        assert!(all.contains("broker.c (outlast.toml:6)"), "{all}");
        assert!(!all.contains("geheim"), "{all}");
        assert!(read("broker = 1\n").problems[0].contains("tables [broker.NAME] are expected"));
    }
}
