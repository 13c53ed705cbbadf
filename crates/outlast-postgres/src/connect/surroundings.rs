//! What a process finds around it: `PG…` variables, service file, password file, sockets.
//!
//! Given as a value, so that a test can give its own.

use super::params::Params;
use std::path::{Path, PathBuf};

type Lookup = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

pub(super) struct Surroundings {
    vars: Lookup,
    home: Option<PathBuf>,
    sockets: Vec<PathBuf>,
}

impl Surroundings {
    pub(super) fn of_this_process() -> Self {
        let vars = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let sockets = ["/var/run/postgresql", "/run/postgresql", "/tmp"]
            .map(PathBuf::from)
            .to_vec();
        Self {
            vars: Box::new(vars),
            home: std::env::home_dir(),
            sockets,
        }
    }

    #[cfg(test)]
    pub(super) fn new(vars: &[(&str, &str)], home: Option<&Path>) -> Self {
        let vars: Vec<_> = vars
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let vars = move |name: &str| {
            vars.iter()
                .find(|(known, _)| known == name)
                .map(|(_, value)| value.clone())
        };
        Self {
            vars: Box::new(vars),
            home: home.map(Path::to_owned),
            sockets: Vec::new(),
        }
    }

    pub(super) fn var(&self, name: &str) -> Option<String> {
        (self.vars)(name)
    }

    pub(super) fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    /// Fills in what the connection string left open, in libpq's order.
    pub(super) fn complete(&self, params: &mut Params) -> Result<(), String> {
        if let Some(service) = params.take("service").or_else(|| self.var("PGSERVICE")) {
            self.service(&service, params)?;
        }
        const VARS: [(&str, &str); 19] = [
            ("PGHOST", "host"),
            ("PGHOSTADDR", "hostaddr"),
            ("PGPORT", "port"),
            ("PGDATABASE", "dbname"),
            ("PGUSER", "user"),
            ("PGPASSWORD", "password"),
            ("PGPASSFILE", "passfile"),
            ("PGOPTIONS", "options"),
            ("PGAPPNAME", "application_name"),
            ("PGSSLMODE", "sslmode"),
            ("PGSSLROOTCERT", "sslrootcert"),
            ("PGSSLCERT", "sslcert"),
            ("PGSSLKEY", "sslkey"),
            ("PGSSLNEGOTIATION", "sslnegotiation"),
            ("PGCONNECT_TIMEOUT", "connect_timeout"),
            ("PGTARGETSESSIONATTRS", "target_session_attrs"),
            ("PGCHANNELBINDING", "channel_binding"),
            ("PGLOADBALANCEHOSTS", "load_balance_hosts"),
            ("PGREQUIREAUTH", "require_auth"),
        ];
        for (var, key) in VARS {
            match self.var(var) {
                Some(value) if !params.has(key) => params
                    .set(key, value)
                    .map_err(|why| format!("{var}: {why}"))?,
                _ => {}
            }
        }
        if !params.has("host") && !params.has("hostaddr") {
            params.or_set("host", self.nearest(params.get("port").unwrap_or("5432")));
        }
        if let Some(user) = self.var("USER").or_else(|| self.var("LOGNAME")) {
            params.or_set("user", user);
        }
        // libpq knows more roles of a server; what matters here is that it takes writes.
        if params.get("target_session_attrs") == Some("primary") {
            params.take("target_session_attrs");
            params.or_set("target_session_attrs", "read-write");
        }
        if matches!(
            params.get("target_session_attrs"),
            Some("standby" | "prefer-standby")
        ) {
            return Err("target_session_attrs: Outlast works on the primary only".into());
        }
        let passfile = params.take("passfile").map(PathBuf::from);
        if !params.has("password") {
            self.password(passfile, params);
        }
        Ok(())
    }

    /// The folder of a local server's socket, else this machine.
    fn nearest(&self, port: &str) -> String {
        let socket = format!(".s.PGSQL.{port}");
        let folder = self
            .sockets
            .iter()
            .find(|folder| folder.join(&socket).exists());
        folder.map_or_else(|| "localhost".into(), |folder| folder.display().to_string())
    }

    /// `[name]` and `key=value` lines of `~/.pg_service.conf` or of the system's file.
    fn service(&self, name: &str, params: &mut Params) -> Result<(), String> {
        let own = self.var("PGSERVICEFILE").map(PathBuf::from);
        let own = own.or_else(|| self.home.as_ref().map(|home| home.join(".pg_service.conf")));
        let system = self
            .var("PGSYSCONFDIR")
            .map(|folder| Path::new(&folder).join("pg_service.conf"));
        for file in [own, system].into_iter().flatten() {
            let Ok(text) = std::fs::read_to_string(&file) else {
                continue;
            };
            let mut inside = false;
            let mut found = false;
            for line in text
                .lines()
                .map(str::trim)
                .filter(|line| !line.is_empty() && !line.starts_with('#'))
            {
                if let Some(section) = line
                    .strip_prefix('[')
                    .and_then(|line| line.strip_suffix(']'))
                {
                    inside = section == name;
                    found |= inside;
                } else if inside {
                    let wrong = || format!("{}: `{line}` is not key=value", file.display());
                    let (key, value) = line.split_once('=').ok_or_else(wrong)?;
                    if !params.has(key.trim()) {
                        params.set(key.trim(), value.trim().to_owned())?;
                    }
                }
            }
            if found {
                return Ok(());
            }
        }
        Err(format!(
            "service `{name}` is not defined in any service file"
        ))
    }

    /// `host:port:database:user:password` lines; the first that fits. A file that others may read is not used.
    fn password(&self, passfile: Option<PathBuf>, params: &mut Params) {
        let Some(file) = passfile.or_else(|| self.home.as_ref().map(|home| home.join(".pgpass")))
        else {
            return;
        };
        let Ok(text) = std::fs::read_to_string(&file) else {
            return;
        };
        if is_open(&file) {
            tracing::warn!(
                "password file {} can be read by others and is not used: chmod 600",
                file.display()
            );
            return;
        }
        let host = params
            .get("host")
            .or(params.get("hostaddr"))
            .unwrap_or_default();
        // A server on its socket is called localhost here.
        let host = if host.starts_with('/') {
            "localhost"
        } else {
            host
        };
        let user = params.get("user").unwrap_or_default();
        let wanted = [
            host,
            params.get("port").unwrap_or("5432"),
            params.get("dbname").unwrap_or(user),
            user,
        ];
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let fields = fields(line);
            let [given @ .., password] = fields.as_slice() else {
                continue;
            };
            if given.len() == wanted.len()
                && given
                    .iter()
                    .zip(wanted)
                    .all(|(given, wanted)| given == "*" || given == wanted)
            {
                params.or_set("password", password.clone());
                return;
            }
        }
    }
}

/// Five fields with colons between them; a backslash keeps the next character.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            ':' if fields.len() < 5 => fields.push(String::new()),
            '\\' => fields
                .last_mut()
                .into_iter()
                .for_each(|field| field.extend(chars.next())),
            c => fields
                .last_mut()
                .into_iter()
                .for_each(|field| field.push(c)),
        }
    }
    fields
}

#[cfg(unix)]
fn is_open(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(file).is_ok_and(|about| about.permissions().mode() & 0o077 != 0)
}

#[cfg(not(unix))]
fn is_open(_: &Path) -> bool {
    false
}
