//! A migrated database for one test, and the means to break its functions on purpose.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use outlast_postgres::migrate;
use tokio_postgres::{Client, Config, NoTls};

/// How long anything that must happen may take on a loaded machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct House {
    name: String,
}

impl House {
    pub(crate) async fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "proof_{}_{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let admin = connect("postgres").await;
        admin
            .batch_execute(&format!("drop database if exists {name} with (force)"))
            .await
            .expect("drops");
        admin
            .batch_execute(&format!("create database {name}"))
            .await
            .expect("creates");
        let house = Self { name };
        migrate::run(&mut house.connect().await, |_| ())
            .await
            .expect("the schema applies");
        house
    }

    pub(crate) async fn connect(&self) -> Client {
        connect(&self.name).await
    }

    /// A connection to another database of the same server.
    pub(crate) async fn elsewhere(&self) -> Client {
        connect("postgres").await
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
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

impl Drop for House {
    /// Its prepared transactions go too: they would hold back every other test's snapshots.
    fn drop(&mut self) {
        let name = self.name.clone();
        // A thread, because the test's own runtime may be the one that waits for us.
        let dropper = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async {
                let client = connect(&name).await;
                let rows = client.query(
                    "select gid from pg_prepared_xacts where database = current_database()",
                    &[],
                );
                for row in rows.await.expect("lists prepared transactions") {
                    let gid: String = row.get(0);
                    client
                        .batch_execute(&format!("rollback prepared '{gid}'"))
                        .await
                        .expect("rolls back");
                }
                drop(client);
                let admin = connect("postgres").await;
                admin
                    .batch_execute(&format!("drop database {name} with (force)"))
                    .await
                    .expect("drops");
            });
        });
        let _ = dropper.join();
    }
}

async fn connect(database: &str) -> Client {
    let mut config = Config::new();
    config
        .host_path("/tmp/pgdev")
        .port(54999)
        .user("postgres")
        .dbname(database);
    let (client, connection) = config.connect(NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

/// The current text of one function, from its `create` to its end.
fn text_of(function: &str) -> &'static str {
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
