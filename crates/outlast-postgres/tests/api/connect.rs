//! Connecting: what stands in the way is told, and TLS checks what its mode promises.

use super::{PATIENCE, client, one};
use outlast_postgres::{
    Error,
    cluster::Cluster,
    connect::{self, Target},
    error::Refused,
};
use outlast_testkit::{pg, wait_for};
use tokio::net::TcpListener;

async fn connected(url: &str) -> Result<(), Error> {
    connect::connect(&Target::parse(url)?).await.map(drop)
}

async fn refused(url: &str) -> (Refused, String) {
    match connected(url).await {
        Err(error) => match &error {
            Error::Connect { why, .. } => (*why, error.to_string()),
            other => panic!("{url}: {other:?}"),
        },
        Ok(()) => panic!("{url}: connected"),
    }
}

/// Parts of the server's URL, to build others of.
fn parts(url: &str) -> (String, String) {
    let rest = url.split_once("://").expect("a URL").1;
    let (login, rest) = rest.split_once('@').expect("a login");
    let host = rest.split('/').next().expect("a host").to_owned();
    (login.to_owned(), host)
}

#[tokio::test]
async fn each_obstacle_has_its_word_and_the_password_is_in_none() {
    let cluster = outlast_testkit::pg::cluster()
        .start()
        .await
        .expect("a server");
    let (login, host) = parts(&cluster.url("postgres"));
    let user = login.split(':').next().expect("a user");
    assert!(connected(&cluster.url("postgres")).await.is_ok());

    let table = [
        (
            format!("postgres://{user}:wrong-secret@{host}/postgres"),
            Refused::Login,
        ),
        (
            format!("postgres://nobody:wrong-secret@{host}/postgres"),
            Refused::Login,
        ),
        (
            format!("postgres://{user}@{host}/postgres?passfile=/nowhere"),
            Refused::NoPassword,
        ),
        (
            format!("postgres://{login}@{host}/no_such_database"),
            Refused::NoDatabase,
        ),
        (
            format!("postgres://{login}@{host}/postgres?sslmode=require"),
            Refused::Tls,
        ),
        (
            "postgres://u:wrong-secret@127.0.0.1:1/d".to_owned(),
            Refused::NoServer,
        ),
        (
            "postgres://u:wrong-secret@no-such-host.invalid/d".to_owned(),
            Refused::NoServer,
        ),
        (
            "postgres://u:wrong-secret@%2Fnowhere/d".to_owned(),
            Refused::NoServer,
        ),
    ];
    let password = login.split(':').nth(1).expect("a password");
    for (url, expected) in table {
        let (why, text) = refused(&url).await;
        assert_eq!(why, expected, "{url}: {text}");
        assert!(
            text.starts_with("cannot connect to ") && text.ends_with(" (OUT-0001)"),
            "{text}"
        );
        assert!(
            !text.contains("wrong-secret") && !text.contains(password),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_server_that_hangs_up_is_no_server() {
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = silent.local_addr().expect("an address").port();
    let (why, text) = {
        // Accepts and closes: what a proxy without a server behind it does.
        let closing = tokio::spawn(async move {
            while let Ok((socket, _)) = silent.accept().await {
                drop(socket);
            }
        });
        let refused = refused(&format!("postgres://u:p@127.0.0.1:{port}/d")).await;
        closing.abort();
        refused
    };
    assert_eq!(why, Refused::NoServer, "{text}");
}

/// A server that stands still, or whose machine does: the kernel lets everybody in.
#[tokio::test]
async fn a_server_that_says_nothing_is_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = silent.local_addr().expect("an address").port();
    let url = format!("postgres://u:p@127.0.0.1:{port}/d?connect_timeout=1");
    let (why, text) = tokio::time::timeout(PATIENCE, refused(&url))
        .await
        .expect("gives up");
    assert_eq!(why, Refused::NoServer, "{text}");
    let target = Target::parse(&url).expect("a URL");
    let given_up = tokio::time::timeout(PATIENCE, connect::listen(&target)).await;
    assert!(given_up.expect("gives up").is_err());
}

/// Writes a file into the server's folder as the server's own user, readable by nobody else.
async fn give(client: &tokio_postgres::Client, name: &str, text: &str) {
    let lines: Vec<_> = text.lines().map(|line| format!("('{line}')")).collect();
    let sql = format!(
        "copy (values {}) to program 'umask 077; cat > {name}'",
        lines.join(",")
    );
    client.batch_execute(&sql).await.expect("writes a file");
}

async fn with_tls(certificate: &str) -> Cluster {
    let cluster = outlast_testkit::pg::cluster()
        .start()
        .await
        .expect("a server");
    let admin = client(&cluster.url("postgres")).await;
    give(&admin, "server.crt", certificate).await;
    give(&admin, "server.key", include_str!("tls/server.key")).await;
    admin
        .batch_execute("alter system set ssl = on")
        .await
        .expect("is set");
    let on = async || {
        admin.batch_execute("select pg_reload_conf()").await.ok()?;
        let fresh = connect::connect(&Target::parse(&cluster.url("postgres")).ok()?)
            .await
            .ok()?;
        (one(&fresh.0, "show ssl").await.as_deref() == Some("on")).then_some(())
    };
    wait_for("the server speaks TLS", PATIENCE, on).await;
    cluster
}

/// What comes of a connection: `encrypted`, `plain` or `refused`.
async fn encrypted(url: &str) -> &'static str {
    match connect::connect(&Target::parse(url).expect("a URL")).await {
        Ok((client, _)) => {
            let ssl = "select ssl::text from pg_stat_ssl where pid = pg_backend_pid()";
            if one(&client, ssl).await.as_deref() == Some("true") {
                "encrypted"
            } else {
                "plain"
            }
        }
        Err(Error::Connect {
            why: Refused::Tls, ..
        }) => "refused",
        Err(other) => panic!("{url}: {other:?}"),
    }
}

/// The right name, the right authority, and a year too late.
#[tokio::test]
async fn an_expired_certificate_is_refused_where_certificates_are_checked() {
    let cluster = with_tls(include_str!("tls/expired.pem")).await;
    let (login, _) = parts(&cluster.url("postgres"));
    let tls = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/api/tls");
    let port = cluster.port();
    let url = format!(
        "postgres://{login}@db.test:{port}/postgres?hostaddr=127.0.0.1&sslrootcert={tls}/authority.pem"
    );
    for (mode, expected) in [("verify-full", "refused"), ("verify-ca", "refused")] {
        let url = format!("{url}&sslmode={mode}");
        assert_eq!(encrypted(&url).await, expected, "{url}");
    }
    // Encrypts and checks nobody, as in libpq.
    let unchecked = format!("postgres://{login}@127.0.0.1:{port}/postgres?sslmode=require");
    assert_eq!(encrypted(&unchecked).await, "encrypted");
}

/// Of several hosts the first that takes writes: one that is away and one that only reads are passed over.
#[tokio::test]
async fn of_several_hosts_the_one_that_takes_writes_is_taken() {
    let db = pg::empty().await;
    let reader = pg::empty().await;
    let admin = reader.connect().await;
    let only_reads = format!(
        "alter database {} set default_transaction_read_only = on",
        reader.name()
    );
    admin.batch_execute(&only_reads).await.expect("is set");
    let cluster = pg::cluster().start().await.expect("a server");
    let (login, host) = parts(&cluster.url("postgres"));
    let url = format!("postgres://{login}@127.0.0.1:1,{host}/postgres");
    assert!(connected(&url).await.is_ok(), "the first is away");
    let writes = format!("{}&target_session_attrs=read-write", db.direct_url());
    assert!(connected(&writes).await.is_ok());
    let reads = format!("{}&target_session_attrs=read-write", reader.direct_url());
    let (why, text) = refused(&reads).await;
    assert_eq!(why, Refused::ReadOnly, "{text}");
}

/// The server's certificate names `db.test`, and an authority of ours has signed it.
#[tokio::test]
async fn each_mode_of_tls_checks_what_it_promises() {
    let cluster = with_tls(include_str!("tls/server.pem")).await;
    let (login, host) = parts(&cluster.url("postgres"));
    let port = cluster.port();
    let tls = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/api/tls");
    let by_address = format!("postgres://{login}@{host}/postgres");
    let by_name = format!("postgres://{login}@db.test:{port}/postgres?hostaddr=127.0.0.1");
    let (ours, another) = (
        format!("sslrootcert={tls}/authority.pem"),
        format!("sslrootcert={tls}/another.pem"),
    );
    let table = [
        (format!("{by_address}?sslmode=disable"), "plain"),
        (format!("{by_address}?sslmode=prefer"), "encrypted"),
        (format!("{by_address}?sslmode=require"), "encrypted"),
        (format!("{by_address}?sslmode=require&{another}"), "refused"),
        (
            format!("{by_address}?sslmode=verify-ca&{ours}"),
            "encrypted",
        ),
        (
            format!("{by_address}?sslmode=verify-ca&{another}"),
            "refused",
        ),
        (
            format!("{by_address}?sslmode=verify-full&{ours}"),
            "refused",
        ),
        (format!("{by_name}&sslmode=verify-full&{ours}"), "encrypted"),
        (
            format!("{by_name}&sslmode=verify-full&{another}"),
            "refused",
        ),
        (
            format!("{by_name}&sslmode=verify-full&sslrootcert=system"),
            "refused",
        ),
        (
            format!("{by_name}&sslmode=verify-full&{ours}&channel_binding=require"),
            "encrypted",
        ),
    ];
    for (url, expected) in table {
        assert_eq!(encrypted(&url).await, expected, "{url}");
    }
    let pool = connect::pool(
        &Target::parse(&format!("{by_name}&sslmode=verify-full&{ours}")).expect("a URL"),
        1,
    );
    let pooled = pool.expect("a pool").get().await;
    pooled
        .expect("a pooled connection over TLS")
        .batch_execute("select 1")
        .await
        .expect("works");
}

#[tokio::test]
async fn what_notify_sends_arrives_and_the_channel_ends_with_the_connection() {
    let db = super::database().await;
    let (listener, mut notifications) = connect::listen(&Target::parse(db.url()).unwrap())
        .await
        .unwrap();
    listener.batch_execute("listen news").await.unwrap();
    let sender = client(db.url()).await;
    sender
        .batch_execute("notify news, 'a'; notify news, 'b'")
        .await
        .unwrap();
    for expected in ["a", "b"] {
        let came = tokio::time::timeout(PATIENCE, notifications.recv())
            .await
            .expect("in time")
            .expect("is open");
        assert_eq!((came.channel(), came.payload()), ("news", expected));
    }
    sender
        .batch_execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() \
        and datname = current_database()",
        )
        .await
        .unwrap();
    assert!(
        tokio::time::timeout(PATIENCE, notifications.recv())
            .await
            .expect("in time")
            .is_none()
    );
}
