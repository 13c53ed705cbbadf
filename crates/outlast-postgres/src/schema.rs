//! The schema's name, and how it gets into the statements.
//!
//! Every SQL text of ours is written for the schema `outlast`, which is a placeholder as well as the default. Under
//! another name the texts are rewritten: functions, views and constraints once, when they are installed; the statements
//! of a program once for each schema that it uses. Under the default name nothing is rewritten and nothing is looked up.

use crate::Error;
use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{Mutex, OnceLock, PoisonError, RwLock},
};

/// What every text is written for.
const PLACEHOLDER: &str = "outlast";
/// So that `<name>_emitter` is short enough for a name of PostgreSQL, and a channel and a leaf of a ring too.
const LONGEST: usize = 40;
/// Names besides the schema's own that begin with it: roles and the channel of wake-ups.
const BESIDE: [&str; 5] = ["_owner", "_emitter", "_engine", "_reader", "_wake"];
/// What stands before a name that is a setting's (`outlast.begun`) and not an object's.
const SETTINGS: [&str; 4] = [
    "current_setting('",
    "set_config('",
    "set local ",
    "set session ",
];

/// The name of a schema of Outlast. Two of them in one database are two installations that share nothing.
///
/// ```
/// use outlast_postgres::schema::Schema;
/// let billing = Schema::named("billing")?;
/// assert_eq!(billing.text("select outlast.clock()"), "select billing.clock()");
/// assert!(Schema::named("Billing; drop table x").is_err());
/// # Ok::<(), outlast_postgres::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Schema {
    name: &'static str,
}

impl Default for Schema {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schema({})", self.name)
    }
}

impl Schema {
    /// `outlast`.
    pub const DEFAULT: Self = Self { name: PLACEHOLDER };

    /// A schema of this name. The name is kept until the process ends: give it names of a configuration, not of requests.
    ///
    /// # Errors
    /// [`Error::Config`] unless it is 1 to 40 of `a-z 0-9 _`, begins with a letter, and is none of PostgreSQL's own.
    pub fn named(name: &str) -> Result<Self, Error> {
        static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
        if let Some(why) = wrong(name) {
            let shown = outlast_core::text::clean(name, 60);
            return Err(Error::Config(format!("schema `{shown}` {why}")));
        }
        if name == PLACEHOLDER {
            return Ok(Self::DEFAULT);
        }
        let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
        let name = names.get(name).copied().unwrap_or_else(|| {
            let kept: &'static str = Box::leak(name.into());
            names.insert(kept);
            kept
        });
        Ok(Self { name })
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// The name of one of its roles: `owner`, `emitter`, `engine`, `reader`.
    pub fn role(self, what: &str) -> String {
        format!("{}_{what}", self.name)
    }

    /// A text of ours, written for this schema.
    pub fn text(self, sql: &str) -> Cow<'_, str> {
        if self == Self::DEFAULT {
            Cow::Borrowed(sql)
        } else {
            Cow::Owned(rewrite(sql, self.name))
        }
    }

    /// A statement of ours, written for this schema: once, and then kept. A program has as many statements as its code,
    /// so what is kept is bounded.
    pub fn statement(self, sql: &'static str) -> &'static str {
        type Kept = HashMap<(Schema, usize, usize), &'static str>;
        static KEPT: OnceLock<RwLock<Kept>> = OnceLock::new();
        if self == Self::DEFAULT {
            return sql;
        }
        // By its place: a text that is there as long as the program never makes room for another one.
        let key = (self, sql.as_ptr() as usize, sql.len());
        let kept = KEPT.get_or_init(RwLock::default);
        if let Some(sql) = kept
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key)
        {
            return sql;
        }
        let mut kept = kept.write().unwrap_or_else(PoisonError::into_inner);
        kept.entry(key)
            .or_insert_with(|| Box::leak(rewrite(sql, self.name).into_boxed_str()))
    }
}

/// What is wrong with a name, if anything is.
fn wrong(name: &str) -> Option<&'static str> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    if name.is_empty()
        || name.len() > LONGEST
        || !name.bytes().all(plain)
        || !name.as_bytes()[0].is_ascii_lowercase()
    {
        Some("is not 1 to 40 of a-z 0-9 _, beginning with a letter")
    } else if name.starts_with("pg_") || name == "information_schema" {
        Some("is PostgreSQL's own")
    } else if name == "public" {
        Some("is where everybody puts things: give Outlast one of its own")
    } else {
        None
    }
}

/// Writes `name` wherever `outlast` is the schema, a role or the channel. Everything else that is called so stays: other
/// words, settings, file names, the product in a sentence.
fn rewrite(sql: &str, name: &str) -> String {
    let mut out = String::with_capacity(sql.len() + sql.len() / 8);
    let mut rest = sql;
    while let Some(at) = rest.find(PLACEHOLDER) {
        let (before, after) = (&rest[..at], &rest[at + PLACEHOLDER.len()..]);
        out.push_str(before);
        out.push_str(if is_schema(&out, after) {
            name
        } else {
            PLACEHOLDER
        });
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Whether the word between these two is our schema's name, or one that begins with it.
fn is_schema(before: &str, after: &str) -> bool {
    let in_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
    if before.ends_with(|c| in_word(c) || c == '.') || SETTINGS.iter().any(|s| before.ends_with(s))
    {
        return false;
    }
    let word = |rest: &str| !rest.starts_with(in_word);
    if let Some(object) = after.strip_prefix('.') {
        return object.starts_with(|c: char| c.is_ascii_lowercase() || c == '_' || c == '%')
            && !(object.starts_with("toml") && word(&object[4..]));
    }
    before.ends_with('\'') && after.starts_with('\'')
        || word(after) && before.ends_with(" schema ")
        || BESIDE
            .iter()
            .any(|end| after.strip_prefix(end).is_some_and(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_name_changes_nothing() {
        let sql = "select outlast.clock()";
        assert_eq!(Schema::named("outlast").unwrap(), Schema::DEFAULT);
        assert!(
            matches!(Schema::DEFAULT.text(sql), Cow::Borrowed(same) if std::ptr::eq(same, sql))
        );
        assert!(std::ptr::eq(Schema::DEFAULT.statement(sql), sql));
    }

    #[test]
    fn the_schema_is_rewritten_and_nothing_else_is() {
        let table = [
            (
                "select * from outlast.emit('a', '{}')",
                "select * from s.emit('a', '{}')",
            ),
            ("insert into outlast._event", "insert into s._event"),
            ("nextval('outlast._event_id')", "nextval('s._event_id')"),
            ("(outlast.clock(),outlast.clock())", "(s.clock(),s.clock())"),
            (
                "order by outlast.incident.opened_at",
                "order by s.incident.opened_at",
            ),
            (
                "then create schema outlast; end",
                "then create schema s; end",
            ),
            ("in schema outlast to", "in schema s to"),
            ("'outlast'::regnamespace", "'s'::regnamespace"),
            ("notify outlast_wake;", "notify s_wake;"),
            ("listen outlast_wake", "listen s_wake"),
            ("'outlast_owner'", "'s_owner'"),
            ("format('outlast.%I', n)", "format('s.%I', n)"),
        ];
        for (sql, expected) in table {
            assert_eq!(rewrite(sql, "s"), expected);
        }
        let kept = [
            "current_setting('outlast.begun', true)",
            "begin; set local outlast.begun = 'yes'",
            "set_config('outlast.begun', 'x', true)",
            "my_outlast.event and other.outlast.event and outlast2.event",
            "run `outlast migrate`, see outlast.toml",
            "the jobs of outlast. They outlast the crash",
            "outlast_waker, outlast_owners, outlast_dev",
            "deployment outlast is the product",
        ];
        for sql in kept {
            assert_eq!(rewrite(sql, "s"), sql);
        }
    }

    #[test]
    fn a_name_that_holds_the_placeholder_is_written_once() {
        assert_eq!(
            rewrite("outlast.a outlast.b", "outlast_two"),
            "outlast_two.a outlast_two.b"
        );
    }

    #[test]
    fn a_statement_is_rewritten_once_for_each_schema() {
        const SQL: &str = "select outlast.clock(), 'a statement of this test'";
        let (one, two) = (
            Schema::named("one_x").unwrap(),
            Schema::named("two_x").unwrap(),
        );
        let first = one.statement(SQL);
        assert_eq!(first, "select one_x.clock(), 'a statement of this test'");
        assert!(std::ptr::eq(first, one.statement(SQL)));
        assert!(std::ptr::eq(
            first,
            Schema::named("one_x").unwrap().statement(SQL)
        ));
        assert_eq!(
            two.statement(SQL),
            "select two_x.clock(), 'a statement of this test'"
        );
    }

    #[test]
    fn a_name_that_could_be_anything_else_is_refused() {
        for name in ["a", "billing", "app_2", &"x".repeat(40)] {
            assert_eq!(Schema::named(name).unwrap().name(), name);
        }
        for name in [
            "",
            "A",
            "1a",
            "_a",
            "a-b",
            "a.b",
            "a b",
            "a\"b",
            "a;b",
            "ä",
            "pg_a",
            "public",
            "information_schema",
            &"x".repeat(41),
        ] {
            let error = Schema::named(name).unwrap_err();
            assert!(matches!(error, Error::Config(_)), "{name}: {error}");
        }
    }
}
