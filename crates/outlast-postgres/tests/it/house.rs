//! A migrated database for one test, and the means to break its functions on purpose.

use std::time::Duration;

use outlast_postgres::migrate;
use outlast_testkit::pg;
use tokio_postgres::Client;

/// How long anything that must happen may take on a loaded machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The database of one test.
#[derive(Debug)]
pub(crate) struct House {
    database: pg::Database,
}

impl House {
    pub(crate) async fn new() -> Self {
        let database = pg::outlast().await;
        Self { database }
    }

    pub(crate) async fn connect(&self) -> Client {
        self.database.connect().await
    }

    /// The connection string of the database.
    pub(crate) fn url(&self) -> &str {
        self.database.url()
    }

    /// The connection string of a new login with these rights besides.
    pub(crate) async fn login(&self, rights: &str) -> String {
        self.database.login(rights).await
    }

    /// Unique on the server, as the names of prepared transactions must be.
    pub(crate) fn name(&self) -> &str {
        self.database.name()
    }

    /// Replaces a function of this database by its own text with these pieces exchanged.
    ///
    /// Each piece must be there exactly once: a fault that is not planted proves nothing.
    pub(crate) async fn plant(&self, function: &str, pieces: &[(&str, &str)]) {
        let mut text = text_of(function).to_owned();
        for (old, new) in pieces {
            assert_eq!(
                text.matches(old).count(),
                1,
                "{function} must hold once: {old}"
            );
            text = text.replacen(old, new, 1);
        }
        self.connect()
            .await
            .batch_execute(&text)
            .await
            .expect("the planted function applies");
    }

    /// Makes `outlast.clock()` a clock that [`forward`] can move, for every snapshot at once.
    pub(crate) async fn movable_clock(&self) {
        let clock = "
            create sequence clock_offset minvalue 0 start 0;
            grant select on sequence clock_offset to public;     -- our functions run as their owner
            create or replace function outlast.clock() returns timestamptz language sql volatile as $$
              select clock_timestamp() + make_interval(secs => coalesce(pg_sequence_last_value('public.clock_offset'), 0)) $$";
        self.connect()
            .await
            .batch_execute(clock)
            .await
            .expect("the clock is replaced");
    }
}

/// Moves the movable clock of this connection's database.
pub(crate) async fn forward(client: &Client, seconds: i32) {
    let sql = format!(
        "select setval('public.clock_offset', coalesce(pg_sequence_last_value('public.clock_offset'), 0) + {seconds})"
    );
    client.batch_execute(&sql).await.expect("the clock moves");
}

/// The current text of one function, from its `create` to its end.
pub(crate) fn text_of(function: &str) -> &'static str {
    let head = format!("create or replace function outlast.{function}(");
    let file = migrate::FUNCTIONS
        .iter()
        .map(|(_, text)| *text)
        .find(|text| text.contains(&head));
    let file = file.unwrap_or_else(|| panic!("no function {function}"));
    let from = file.find(&head).expect("found just now");
    let len = file[from..].find("$$;").expect("a function ends with $$;") + 3;
    &file[from..from + len]
}
