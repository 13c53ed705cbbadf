use super::{tls::Mode, *};
use std::path::Path;

fn read(url: &str) -> Target {
    read_in(url, &[], None)
}

fn read_in(url: &str, vars: &[(&str, &str)], home: Option<&Path>) -> Target {
    Target::read(url, &Surroundings::new(vars, home))
        .unwrap_or_else(|error| panic!("{url}: {error}"))
}

fn refuse(url: &str) -> String {
    match Target::read(url, &Surroundings::new(&[], None)) {
        Err(Error::Config(why)) => why,
        other => panic!("{url}: {other:?}"),
    }
}

#[test]
fn urls_as_providers_print_them_are_read() {
    let table = [
        ("postgres://localhost", "localhost:5432/", Mode::Prefer),
        (
            "postgresql://localhost/shop",
            "localhost:5432/shop",
            Mode::Prefer,
        ),
        (
            "postgresql://app@localhost:5433/shop",
            "app@localhost:5433/shop",
            Mode::Prefer,
        ),
        (
            "postgres://u:p@ec2-1-2-3-4.compute-1.amazonaws.com:5432/d1",
            "u@ec2-1-2-3-4.compute-1.amazonaws.com:5432/d1",
            Mode::Prefer,
        ),
        (
            "postgresql://alex:AbC@ep-cool-1.us-east-2.aws.neon.tech/db?sslmode=require&channel_binding=require",
            "alex@ep-cool-1.us-east-2.aws.neon.tech:5432/db",
            Mode::Require,
        ),
        (
            "postgresql://alex:x@ep.neon.tech/db?options=endpoint%3Dep-cool&sslmode=verify-full",
            "alex@ep.neon.tech:5432/db",
            Mode::VerifyFull,
        ),
        (
            "postgresql://postgres.ref:p@aws-0-eu.pooler.supabase.com:6543/postgres?pgbouncer=true&connection_limit=1",
            "postgres.ref@aws-0-eu.pooler.supabase.com:6543/postgres",
            Mode::Prefer,
        ),
        (
            "postgres://u:p@db.rds.amazonaws.com/d?sslmode=verify-full&sslrootcert=/etc/ssl/rds.pem",
            "u@db.rds.amazonaws.com:5432/d",
            Mode::VerifyFull,
        ),
        (
            "postgres://u:p@db.rds.amazonaws.com/d?sslmode=require&sslrootcert=/etc/ssl/rds.pem",
            "u@db.rds.amazonaws.com:5432/d",
            Mode::VerifyCa,
        ),
        (
            "postgres://user%40server:p@server.postgres.database.azure.com/d?ssl=true",
            "user@server@server.postgres.database.azure.com:5432/d",
            Mode::Require,
        ),
        (
            "postgresql://u:p@/d?host=/cloudsql/project:region:instance",
            "u@/cloudsql/project:region:instance:5432/d",
            Mode::Prefer,
        ),
        (
            "postgresql://u@%2Fvar%2Frun%2Fpostgresql/d",
            "u@/var/run/postgresql:5432/d",
            Mode::Prefer,
        ),
        (
            "postgres://u:p@[2001:db8::1]:5433/d?sslmode=disable",
            "u@2001:db8::1:5433/d",
            Mode::Disable,
        ),
        (
            "postgres://u@a:1,b:2,c/d?target_session_attrs=read-write",
            "u@a:1,b:2,c:5432/d",
            Mode::Prefer,
        ),
        (
            "postgres://u@h/d?statement-cache-capacity=0",
            "u@h:5432/d",
            Mode::Prefer,
        ),
        (
            "host=h port=1 user=u dbname=d sslmode=verify-ca",
            "u@h:1/d",
            Mode::VerifyCa,
        ),
        (
            r"host=h user='o\'brien' dbname = 'my db'",
            "o'brien@h:5432/my db",
            Mode::Prefer,
        ),
        ("postgres://h/d@b", "h:5432/d@b", Mode::Prefer),
        (
            "postgres://u@h/d?sslrootcert=system",
            "u@h:5432/d",
            Mode::VerifyFull,
        ),
    ];
    for (url, shown, mode) in table {
        let target = read(url);
        assert_eq!(
            (target.to_string().as_str(), target.tls.mode),
            (shown, mode),
            "{url}"
        );
    }
}

#[test]
fn passwords_keep_every_character_and_are_never_shown() {
    for (url, password) in [
        ("postgres://u:p%40ss%2Fw%3Ard@h/d", "p@ss/w:rd"),
        ("postgres://u:p@ss@h/d", "p@ss"),
        ("postgres://u:a:b@h/d", "a:b"),
        (r"host=h user=u password='it\'s \\ here'", r"it's \ here"),
        ("postgres://u@h/d?password=100%25", "100%"),
    ] {
        let target = read(url);
        assert_eq!(
            target.config().get_password(),
            Some(password.as_bytes()),
            "{url}"
        );
        assert!(
            !format!("{target} {target:?}").contains(password),
            "{target:?}"
        );
    }
}

#[test]
fn what_is_wrong_is_named_without_the_password() {
    let table = [
        ("mysql://h/d", "`mysql://` is not a PostgreSQL URL"),
        (
            "postgresql+psycopg2://h/d",
            "`postgresql+psycopg2://` is another driver's URL: write postgresql://",
        ),
        (
            "jdbc:postgresql://h/d",
            "`jdbc:postgresql://` is another driver's URL: write postgresql://",
        ),
        ("shop", "a connection string is a URL or `key=value …`"),
        (
            "postgres://u:secret@h/d?sslmod=require",
            "unknown connection parameter `sslmod`",
        ),
        (
            "postgres://h/d?database=x",
            "unknown connection parameter `database`: did you mean `dbname`?",
        ),
        (
            "postgres://h/d?ssl_ca=x",
            "unknown connection parameter `ssl_ca`: did you mean `sslrootcert`?",
        ),
        (
            "postgres://h/d?sslmode=verify",
            "sslmode `verify` is not disable, allow, prefer, require, verify-ca or verify-full",
        ),
        (
            "postgres://h/d?sslmode=require&sslrootcert=system",
            "sslrootcert=system needs sslmode=verify-full: anybody can get a certificate from there",
        ),
        (
            "postgres://h/d?sslcrl=x",
            "connection parameter `sslcrl`: certificate revocation lists are not checked here",
        ),
        (
            "postgres://h/d?target_session_attrs=standby",
            "target_session_attrs: Outlast works on the primary only",
        ),
        (
            "postgres://u:se%cret@h/d",
            "password: a `%` that is not followed by two hex digits; write `%25` for the sign itself",
        ),
        ("postgres://u:%00@h/d", "password: a NUL character"),
        ("host=h user='x", "a quoted value without its closing quote"),
        (
            "postgres://u:secret@h:port/d",
            "invalid value for option `port`",
        ),
        (
            "postgres://u:secret@h/d?connect_timeout=soon",
            "invalid value for option `connect_timeout`",
        ),
    ];
    for (url, expected) in table {
        assert_eq!(refuse(url), expected, "{url}");
    }
}

#[test]
fn what_the_url_leaves_open_comes_from_the_environment() {
    let vars = [
        ("PGHOST", "env-host"),
        ("PGPORT", "7"),
        ("PGUSER", "env-user"),
        ("PGDATABASE", "env-db"),
        ("PGPASSWORD", "env-password"),
        ("PGSSLMODE", "verify-full"),
        ("PGAPPNAME", "billing"),
        ("USER", "os-user"),
    ];
    let target = read_in("postgres://u@h/", &vars, None);
    assert_eq!(
        (target.to_string().as_str(), target.tls.mode),
        ("u@h:7/env-db", Mode::VerifyFull)
    );
    assert_eq!(target.config().get_password(), Some(&b"env-password"[..]));
    assert_eq!(target.config().get_application_name(), Some("billing"));
    let target = Target::from_surroundings(&Surroundings::new(&vars, None)).unwrap();
    assert_eq!(target.to_string(), "env-user@env-host:7/env-db");
    assert_eq!(
        read_in("postgres://h/d", &[("USER", "os-user")], None).to_string(),
        "os-user@h:5432/d"
    );
}

#[test]
fn our_own_variable_wins_over_the_applications_and_both_name_themselves_when_wrong() {
    let of = |vars: &[(&str, &str)]| Target::from_surroundings(&Surroundings::new(vars, None));
    let both = [
        ("DATABASE_URL", "postgres://u@app/d"),
        ("OUTLAST_DATABASE_URL", "postgres://u@ours/d"),
    ];
    assert_eq!(of(&both).unwrap().to_string(), "u@ours:5432/d");
    assert_eq!(of(&both[..1]).unwrap().to_string(), "u@app:5432/d");
    let wrong = of(&[("DATABASE_URL", "mysql://h")])
        .unwrap_err()
        .to_string();
    assert_eq!(
        wrong,
        "configuration: DATABASE_URL: `mysql://` is not a PostgreSQL URL (OUT-0008)"
    );
    assert!(
        of(&[])
            .unwrap_err()
            .to_string()
            .contains("set OUTLAST_DATABASE_URL or DATABASE_URL")
    );
}

#[test]
fn a_service_file_stands_between_the_url_and_the_environment() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(
        home.path().join(".pg_service.conf"),
        "# ours\n[other]\nhost=no\n\n[shop]\nhost=service-host\nport=9\nsslmode=require\n",
    )
    .unwrap();
    let vars = [
        ("PGHOST", "env-host"),
        ("PGSERVICE", "shop"),
        ("PGUSER", "u"),
    ];
    let target = read_in("postgres://:10/d", &vars, Some(home.path()));
    assert_eq!(
        (target.to_string().as_str(), target.tls.mode),
        ("u@service-host:10/d", Mode::Require)
    );
    let why = Target::read("service=none", &Surroundings::new(&[], Some(home.path())))
        .unwrap_err()
        .to_string();
    assert!(why.contains("service `none` is not defined"), "{why}");
}

#[cfg(unix)]
#[test]
fn the_password_file_is_used_only_if_nobody_else_can_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join(".pgpass");
    std::fs::write(
        &file,
        "# c\nother:*:*:*:no\nh:5432:d:u:a\\:b\\\\c\nlocalhost:*:*:*:by-socket\n*:*:*:*:any\n",
    )
    .unwrap();
    let password = |url: &str| {
        read_in(url, &[], Some(home.path()))
            .config()
            .get_password()
            .map(<[u8]>::to_vec)
    };
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(password("postgres://u@h/d"), None);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(password("postgres://u@h/d"), Some(br"a:b\c".to_vec()));
    assert_eq!(
        password("postgres://u@%2Frun/d"),
        Some(b"by-socket".to_vec())
    );
    assert_eq!(password("postgres://u@else/d"), Some(b"any".to_vec()));
    assert_eq!(password("postgres://u:own@h/d"), Some(b"own".to_vec()));
}

#[test]
fn a_dead_network_is_noticed_in_half_a_minute_unless_the_url_says_otherwise() {
    let config = read("postgres://u@h/d").config().clone();
    assert_eq!(
        config.get_tcp_user_timeout(),
        Some(&Duration::from_secs(30))
    );
    assert_eq!(
        config.get_keepalives_idle() + config.get_keepalives_interval().unwrap() * 2,
        Duration::from_secs(30)
    );
    assert_eq!(config.get_connect_timeout(), Some(&Duration::from_secs(10)));
    let config = read("postgres://u@h/d?keepalives_idle=60&keepalives_count=5&connect_timeout=3")
        .config()
        .clone();
    assert_eq!(
        (
            config.get_keepalives_idle(),
            config.get_keepalives_retries()
        ),
        (Duration::from_secs(60), Some(5))
    );
    assert_eq!(config.get_connect_timeout(), Some(&Duration::from_secs(3)));
}

#[test]
fn a_name_in_the_connection_string_wins_over_the_programs_own() {
    let named = |url: &str| {
        let target = read(url).application_name_or("outlast worker");
        target.config().get_application_name().map(str::to_owned)
    };
    assert_eq!(named("postgres://u@h/d").as_deref(), Some("outlast worker"));
    assert_eq!(
        named("postgres://u@h/d?application_name=billing").as_deref(),
        Some("billing")
    );
}

#[test]
fn a_socket_has_no_tls_whatever_is_asked() {
    let target = read("postgres://u@%2Frun/d?sslmode=require");
    assert_eq!(
        target.config().get_ssl_mode(),
        tokio_postgres::config::SslMode::Disable
    );
    let target = read("postgres://u@h/d?sslmode=verify-full");
    assert_eq!(
        target.config().get_ssl_mode(),
        tokio_postgres::config::SslMode::Require
    );
}

#[test]
fn certificates_that_cannot_be_read_are_named() {
    let target = read("postgres://u@h/d?sslmode=verify-full&sslrootcert=/nowhere/root.pem");
    let why = pool(&target, 1).err().unwrap().to_string();
    assert!(why.contains("/nowhere/root.pem"), "{why}");
    let file = tempfile::NamedTempFile::new().unwrap();
    let url = format!(
        "postgres://u@h/d?sslmode=verify-ca&sslrootcert={}",
        file.path().display()
    );
    assert!(
        pool(&read(&url), 1)
            .err()
            .unwrap()
            .to_string()
            .contains("no certificate in it")
    );
}
