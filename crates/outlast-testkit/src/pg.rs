//! A database of its own for each test, on a private server that the tests of a run share.
//!
//! Which server: the one that `OUTLAST_TEST_PG` names (the program `with-postgres`, which `./run test` uses, starts one
//! for the whole run and sets it), else one that this process starts for itself and that ends with it. Durable settings
//! are on in both cases: a test may kill what it likes. A test that stops or kills the *server* takes a
//! [`Cluster`] of its own instead ([`cluster`] gives it the same settings).
//!
//! Transaction ids and snapshots are the server's, not the database's: a transaction that one test leaves open holds
//! back what another sees as finished. A test whose point that is takes its own cluster too.

use std::fmt::Display;
use std::hash::{DefaultHasher, Hasher};
use std::{env, thread};

use outlast_postgres::cluster::{Builder, Cluster};
use outlast_postgres::connect::{self, Target};
use outlast_postgres::migrate;
use tokio::sync::OnceCell;
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

use crate::pooler;

/// Names a running server for the tests: a connection string of a superuser, any database.
pub const SERVER: &str = "OUTLAST_TEST_PG";

/// Held while a template is made: any number that nobody else uses.
const TEMPLATE_LOCK: i64 = 0x6f75_746c_6b69_7401;

/// A temporary server with room for many tests at once, and for two-phase commit.
pub fn cluster() -> Builder {
    Cluster::temporary()
        .set("max_connections", "300")
        .set("max_prepared_transactions", "50")
}

/// A database that is removed when the test is done with it.
#[derive(Debug)]
pub struct Database {
    name: String,
    url: String,
    direct: String,
    server: String,
}

impl Database {
    /// Its connection string; through a [`pooler`] where all of the run goes through one.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its connection string, to the server itself.
    pub fn direct_url(&self) -> &str {
        &self.direct
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its connection string for another login.
    pub fn url_as(&self, login: &str, password: &str) -> String {
        let (base, query) = self.url.split_once('?').unwrap_or((&self.url, ""));
        let (scheme, rest) = base.split_once("://").unwrap_or(("postgres", base));
        let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
        let kept = query.split('&').filter(|part| {
            !part.is_empty() && !part.starts_with("user=") && !part.starts_with("password=")
        });
        let kept: String = kept.map(|part| format!("{part}&")).collect();
        format!("{scheme}://{rest}?{kept}user={login}&password={password}")
    }

    /// A new login of this server with these rights besides, such as `in role outlast_engine`; its connection string.
    ///
    /// # Panics
    /// If the server refuses it.
    pub async fn login(&self, rights: &str) -> String {
        let name = format!("login_{}", Uuid::new_v4().simple());
        let client = self.connect().await;
        run(
            &client,
            &format!("create role {name} login password 'secret' {rights}"),
        )
        .await;
        self.url_as(&name, "secret")
    }

    /// A new connection to the server itself, for the test's own eyes.
    ///
    /// # Panics
    /// If the server refuses it.
    pub async fn connect(&self) -> Client {
        client(&self.direct).await
    }
}

/// An empty database.
///
/// # Panics
/// If there is no server to make it on.
pub async fn empty() -> Database {
    create(&server().await, "template1").await
}

/// A copy of the database that `migrate` made from an empty one; it gets the connection string.
///
/// It runs once for each `name` and server, whichever test comes first; a copy takes a tenth of a second. If the first
/// one fails or is killed half-way, the next one starts over.
///
/// # Panics
/// If there is no server, or `migrate` fails.
pub async fn migrated<E: Display>(
    name: &str,
    migrate: impl AsyncFnOnce(String) -> Result<(), E>,
) -> Database {
    let server = server().await;
    let template = format!("template_{name}");
    let admin = client(&server).await;
    // Of the session: let go when the connection ends, also by our death.
    admin
        .execute("select pg_advisory_lock($1)", &[&TEMPLATE_LOCK])
        .await
        .expect("locks for the template");
    let known = admin
        .query_opt(
            "select datistemplate from pg_database where datname = $1",
            &[&template],
        )
        .await;
    let finished = known
        .expect("looks for the template")
        .map(|row| row.get::<_, bool>(0));
    if finished != Some(true) {
        run(
            &admin,
            &format!("drop database if exists {} with (force)", quote(&template)),
        )
        .await;
        run(&admin, &format!("create database {}", quote(&template))).await;
        if let Err(error) = migrate(url_of(&server, &template)).await {
            panic!("the template {name} could not be made: {error}");
        }
        // Nobody may connect any more: a template in use cannot be copied.
        run(
            &admin,
            &format!(
                "alter database {} is_template true allow_connections false",
                quote(&template)
            ),
        )
        .await;
    }
    drop(admin);
    create(&server, &template).await
}

/// A database with Outlast in it, as this program migrates it.
///
/// # Panics
/// As [`migrated`].
pub async fn outlast() -> Database {
    // A server that outlives the run may have the template of another version of this program.
    let mut digest = DefaultHasher::new();
    digest.write(migrate::sql().as_bytes());
    let database = migrated(
        &format!("outlast_{:x}", digest.finish()),
        async |url: String| {
            let (mut client, _driver) = connect::connect(&Target::parse(&url)?).await?;
            migrate::run(&mut client, |_| ()).await.map(drop)
        },
    )
    .await;
    // A copy knows that it is one, and workers refuse it: here it is meant to be an original.
    run(
        &database.connect().await,
        "update outlast._house set database_oid = (select oid from pg_database where datname = current_database())",
    )
    .await;
    database
}

impl Drop for Database {
    /// Its prepared transactions go too: they would hold back every other test's snapshots.
    fn drop(&mut self) {
        let (url, server, name) = (self.direct.clone(), self.server.clone(), self.name.clone());
        // A thread: the test's own runtime may be the one that is waiting for us.
        let dropper = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(remove(&url, &server, &name))
        });
        // A test that stopped the server, or never had one, has nothing to remove.
        let _ = dropper.join();
    }
}

async fn remove(url: &str, server: &str, name: &str) -> anyhow::Result<()> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    let prepared = client
        .query(
            "select gid from pg_prepared_xacts where database = current_database()",
            &[],
        )
        .await?;
    for gid in prepared {
        let gid = gid.get::<_, String>(0).replace('\'', "''");
        client
            .batch_execute(&format!("rollback prepared '{gid}'"))
            .await?;
    }
    drop(client);
    let (admin, connection) = tokio_postgres::connect(server, NoTls).await?;
    tokio::spawn(connection);
    admin
        .batch_execute(&format!("drop database {} with (force)", quote(name)))
        .await?;
    Ok(())
}

/// The connection string of the server for this process.
async fn server() -> String {
    // Never dropped: the server sees the end of this process and removes itself.
    static OWN: OnceCell<Cluster> = OnceCell::const_new();
    if let Some(server) = env::var(SERVER).ok().filter(|server| !server.is_empty()) {
        return server;
    }
    let start = async || {
        cluster()
            .start()
            .await
            .unwrap_or_else(|error| panic!("no server for the tests: {error}"))
    };
    OWN.get_or_init(start).await.socket_url("postgres")
}

async fn create(server: &str, template: &str) -> Database {
    let name = format!("test_{}", Uuid::new_v4().simple());
    let admin = client(server).await;
    run(
        &admin,
        &format!("create database {name} template {}", quote(template)),
    )
    .await;
    let direct = url_of(server, &name);
    let pooled = env::var_os(pooler::POOLED).filter(|folder| !folder.is_empty());
    let url = pooled.map_or_else(
        || direct.clone(),
        |folder| pooler::through(folder.as_ref(), &name),
    );
    Database {
        name,
        url,
        direct,
        server: server.to_owned(),
    }
}

async fn client(url: &str) -> Client {
    let (client, connection) = match tokio_postgres::connect(url, NoTls).await {
        Ok(connected) => connected,
        Err(error) => panic!("cannot connect to {url}: {error:?}"),
    };
    tokio::spawn(connection);
    client
}

async fn run(client: &Client, sql: &str) {
    if let Err(error) = client.batch_execute(sql).await {
        panic!("{sql}: {error:?}");
    }
}

/// The same server, another database: the path of the URL.
fn url_of(server: &str, database: &str) -> String {
    let (base, query) = server
        .split_once('?')
        .map_or((server, None), |(base, query)| (base, Some(query)));
    let authority = base
        .split_once("://")
        .map_or(base, |(_, rest)| rest)
        .split('/')
        .next()
        .unwrap_or_default();
    let scheme = base
        .split_once("://")
        .map_or("postgres", |(scheme, _)| scheme);
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    format!("{scheme}://{authority}/{database}{query}")
}

fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::url_of;

    #[test]
    fn the_database_of_a_url_is_replaced_and_all_else_kept() {
        let cases = [
            (
                "postgres:///postgres?host=/tmp/x&port=5",
                "postgres:///new?host=/tmp/x&port=5",
            ),
            (
                "postgresql://a:b@127.0.0.1:5432/db",
                "postgresql://a:b@127.0.0.1:5432/new",
            ),
            ("postgres://localhost", "postgres://localhost/new"),
        ];
        for (server, expected) in cases {
            assert_eq!(url_of(server, "new"), expected);
        }
    }
}
