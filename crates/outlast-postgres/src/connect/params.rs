//! Connection parameters: libpq's two spellings, as a list of keys and values.
//!
//! What tokio-postgres knows is handed to it; what only we know (TLS, service and password files) is taken out first.
//! A parameter is never ignored if that would make a connection less safe than it asks for.

use std::collections::BTreeMap;
use tokio_postgres::Config;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Params(BTreeMap<&'static str, String>);

/// What becomes of a parameter.
#[derive(Clone, Copy)]
enum Fate {
    /// Kept under this name.
    Keep(&'static str),
    /// Harmless here: it tunes something that we do not have, or belongs to another driver that shares the URL.
    Ignore,
    /// Would promise what is not kept.
    Refuse(&'static str),
}

fn fate(key: &str) -> Option<Fate> {
    const KEEP: [&str; 23] = [
        "user",
        "password",
        "passfile",
        "dbname",
        "host",
        "hostaddr",
        "port",
        "options",
        "application_name",
        "service",
        "sslmode",
        "sslrootcert",
        "sslcert",
        "sslkey",
        "sslnegotiation",
        "connect_timeout",
        "tcp_user_timeout",
        "keepalives",
        "keepalives_idle",
        "keepalives_interval",
        "target_session_attrs",
        "channel_binding",
        "load_balance_hosts",
    ];
    if let Some(known) = KEEP.into_iter().find(|known| *known == key) {
        return Some(Fate::Keep(known));
    }
    Some(match key {
        "keepalives_count" | "keepalives_retries" => Fate::Keep("keepalives_retries"),
        "fallback_application_name"
        | "client_encoding"
        | "sslcompression"
        | "sslsni"
        | "sslcertmode"
        | "gssencmode"
        | "krbsrvname"
        | "gsslib"
        | "gssdelegation"
        | "ssl_max_protocol_version" => Fate::Ignore,
        "statement-cache-capacity"
        | "pgbouncer"
        | "schema"
        | "connection_limit"
        | "pool_timeout"
        | "pool_size" => Fate::Ignore,
        "sslcrl" | "sslcrldir" => Fate::Refuse("certificate revocation lists are not checked here"),
        "sslpassword" => Fate::Refuse("give an unencrypted key, readable by this user only"),
        "ssl_min_protocol_version" => {
            Fate::Refuse("at least TLS 1.2 is spoken always; no other minimum can be set")
        }
        "requirepeer" | "require_auth" | "requiressl" => {
            Fate::Refuse("use sslmode=verify-full, which is supported")
        }
        "replication" => Fate::Refuse("a replication connection cannot be used"),
        _ => return None,
    })
}

impl Params {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        match text.split_once("://") {
            Some(("postgres" | "postgresql", rest)) => Self::from_url(rest),
            Some((scheme, _))
                if scheme.ends_with("postgresql") || scheme.starts_with("postgres") =>
            {
                Err(format!(
                    "`{scheme}://` is another driver's URL: write postgresql://"
                ))
            }
            Some((scheme, _)) if !scheme.contains(['=', ' ']) => {
                Err(format!("`{scheme}://` is not a PostgreSQL URL"))
            }
            _ => Self::from_pairs(text),
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    pub(super) fn take(&mut self, key: &str) -> Option<String> {
        self.0.remove(key)
    }

    /// Sets what is not set yet: what comes first, wins.
    pub(super) fn or_set(&mut self, key: &'static str, value: impl Into<String>) {
        self.0.entry(key).or_insert_with(|| value.into());
    }

    /// Takes one parameter as a user writes it. An empty value is as if it were not there, as in libpq.
    pub(super) fn set(&mut self, key: &str, value: String) -> Result<(), String> {
        match fate(key) {
            Some(Fate::Keep(name)) if !value.is_empty() => _ = self.0.insert(name, value),
            Some(Fate::Keep(_) | Fate::Ignore) => {}
            Some(Fate::Refuse(why)) => return Err(format!("connection parameter `{key}`: {why}")),
            None => {
                return Err(format!(
                    "unknown connection parameter `{key}`{}",
                    suggestion(key)
                ));
            }
        }
        Ok(())
    }

    fn from_url(rest: &str) -> Result<Self, String> {
        let mut params = Self::default();
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, dbname) = rest.split_once('/').unwrap_or((rest, ""));
        // A password may hold an `@` that nobody encoded; a host cannot.
        let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        params.set("user", decode("user", user)?)?;
        params.set("password", decode("password", password)?)?;
        params.hosts(hosts)?;
        params.set("dbname", decode("dbname", dbname)?)?;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair
                .split_once('=')
                .ok_or_else(|| format!("connection parameter `{pair}` has no value"))?;
            let (key, value) = (decode("a parameter's name", key)?, decode(key, value)?);
            match (key.as_str(), value.as_str()) {
                // As libpq does for URLs that were made for JDBC.
                ("ssl", "true") => params.set("sslmode", "require".into())?,
                _ => params.set(&key, value)?,
            }
        }
        Ok(params)
    }

    /// `host:port,[v6]:port,…`; libpq keeps hosts and ports as two lists with commas.
    fn hosts(&mut self, text: &str) -> Result<(), String> {
        let (mut hosts, mut ports) = (Vec::new(), Vec::new());
        for one in text.split(',') {
            let (host, port) = match one.strip_prefix('[') {
                Some(v6) => {
                    let (host, port) = v6
                        .split_once(']')
                        .ok_or("an IPv6 address without its closing bracket")?;
                    (host, port.strip_prefix(':').unwrap_or_default())
                }
                None => one.rsplit_once(':').unwrap_or((one, "")),
            };
            hosts.push(decode("host", host)?);
            ports.push(decode("port", port)?);
        }
        self.set(
            "host",
            if hosts.iter().all(String::is_empty) {
                String::new()
            } else {
                hosts.join(",")
            },
        )?;
        self.set(
            "port",
            if ports.iter().all(String::is_empty) {
                String::new()
            } else {
                ports.join(",")
            },
        )
    }

    /// `key = 'value' …`, with backslash escapes.
    fn from_pairs(text: &str) -> Result<Self, String> {
        let mut params = Self::default();
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let (key, after) = rest
                .split_once('=')
                .ok_or("a connection string is a URL or `key=value …`")?;
            let (value, after) = value(after.trim_start())?;
            params.set(key.trim(), value)?;
            rest = after.trim_start();
        }
        Ok(params)
    }

    /// What tokio-postgres knows, in its own hands.
    pub(super) fn to_config(&self) -> Result<Config, String> {
        let mut pairs = String::new();
        for (key, value) in &self.0 {
            let value = value.replace('\\', r"\\").replace('\'', r"\'");
            pairs.push_str(&format!("{key}='{value}' "));
        }
        // Its error may quote the value, which may be the password: only the parameter's name is told.
        pairs.parse().map_err(|error: tokio_postgres::Error| {
            let why = std::error::Error::source(&error).map(ToString::to_string);
            why.unwrap_or_else(|| error.to_string())
        })
    }
}

/// One value of the `key=value` form, and what follows it.
fn value(text: &str) -> Result<(String, &str), String> {
    let quoted = text.starts_with('\'');
    let mut value = String::new();
    let mut chars = text.char_indices().skip(usize::from(quoted));
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => value.extend(chars.next().map(|(_, c)| c)),
            '\'' if quoted => return Ok((value, &text[at + 1..])),
            c if !quoted && c.is_whitespace() => return Ok((value, &text[at..])),
            c => value.push(c),
        }
    }
    if quoted {
        Err("a quoted value without its closing quote".into())
    } else {
        Ok((value, ""))
    }
}

fn decode(what: &str, text: &str) -> Result<String, String> {
    let refuse = |why: &str| format!("{what}: {why}");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let hex = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        match byte {
            b'%' => match (hex(rest.next()), hex(rest.next())) {
                (Some(high), Some(low)) => bytes.push((high * 16 + low) as u8),
                _ => {
                    return Err(refuse(
                        "a `%` that is not followed by two hex digits; write `%25` for the sign itself",
                    ));
                }
            },
            byte => bytes.push(byte),
        }
    }
    if bytes.contains(&0) {
        return Err(refuse("a NUL character"));
    }
    String::from_utf8(bytes).map_err(|_| refuse("not UTF-8"))
}

/// The known parameter that was probably meant.
fn suggestion(key: &str) -> String {
    let folded = key.to_lowercase().replace('-', "_");
    let meant = match folded.as_str() {
        "database" | "db" => "dbname",
        "username" => "user",
        "pass" => "password",
        "timeout" => "connect_timeout",
        "ssl" | "ssl_mode" => "sslmode",
        "sslca" | "ssl_ca" | "ssl_root_cert" => "sslrootcert",
        "appname" => "application_name",
        other if fate(other).is_some() => other,
        _ => return String::new(),
    };
    format!(": did you mean `{meant}`?")
}
