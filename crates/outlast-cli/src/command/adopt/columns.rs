//! The table itself, and what of it means what: rights, keys, and whether the types fit.

use outlast_core::broker::Severity::{self, Bad, Good, Warning};

use super::{
    look::{Look, read},
    mapping::Expression,
    statement,
};
use crate::{command::doctor::found::Found, exit::Exit, out::text, problem::Answer};

fn of_table(
    severity: Severity,
    about: &str,
    found: impl Into<String>,
    mend: impl Into<String>,
) -> Found {
    Found::new(severity, "table", about, found, mend)
}

impl Look<'_> {
    /// What its catalog says.
    pub(super) fn of_table(&self) -> Vec<Found> {
        let table = self.table;
        let mut all = vec![match table.is_table {
            true => of_table(Good, "table", &table.sql, ""),
            false => of_table(
                Bad,
                "table",
                format!("{} is no table", table.sql),
                "name the table that the view reads",
            ),
        }];
        if !table.reads {
            all.push(of_table(
                Bad,
                "rights",
                "this login may not read it",
                format!("grant select on {} to LOGIN", table.sql),
            ));
        }
        if !table.takes {
            let mend = format!(
                "whoever moves it needs them: grant select, update, delete on {} to LOGIN",
                table.sql
            );
            all.push(of_table(
                Warning,
                "rights",
                "this login may not lock and delete its rows",
                mend,
            ));
        }
        if !table.enqueues {
            let role = self.database.schema().role("emitter");
            let mend = format!("whoever moves it needs that: grant {role} to LOGIN");
            all.push(of_table(
                Warning,
                "rights",
                "this login may not enqueue",
                mend,
            ));
        }
        if table.hidden {
            let mend =
                "rows that are not seen do not move: use a login that the policies do not bind";
            all.push(of_table(
                Bad,
                "row-level security",
                "it binds this login",
                mend,
            ));
        }
        if table.key.is_empty() {
            let mend = format!(
                "alter table {} add column outlast_id bigint generated always as identity primary key",
                table.sql
            );
            all.push(of_table(
                Bad,
                "primary key",
                "it has none, so that no row can be told from another",
                mend,
            ));
        } else {
            all.push(of_table(Good, "primary key", table.key.join(", "), ""));
        }
        if !table.referrers.is_empty() {
            let mend = "a row that moves is deleted here: see what becomes of theirs, or drop the constraint first";
            all.push(of_table(
                Warning,
                "foreign keys",
                format!("of {} point to it", table.referrers.join(", ")),
                mend,
            ));
        }
        all
    }

    /// What of it means what, and whether its type fits.
    pub(super) async fn of_columns(&mut self) -> Answer<Vec<Found>> {
        let mapping = self.mapping;
        let mut all = Vec::new();
        for (about, one, kind) in [
            ("name", &mapping.name, Kind::Text),
            ("payload", &mapping.payload, Kind::Json),
            ("key", &mapping.key, Kind::Text),
            ("tenant", &mapping.tenant, Kind::Text),
            ("at", &mapping.at, Kind::Time),
            ("priority", &mapping.priority, Kind::Number),
            ("waiting", &mapping.waiting, Kind::Truth),
            ("running", &mapping.running, Kind::Truth),
        ] {
            all.push(match one {
                Some(one) => self.of_column(about, one, kind).await?,
                None => absent(about),
            });
        }
        Ok(all)
    }

    async fn of_column(&mut self, about: &str, one: &Expression, kind: Kind) -> Answer<Found> {
        let found = |severity, found: String, mend: String| {
            Found::new(severity, "columns", about, found, mend)
        };
        let sql = statement::type_of(self.table, one);
        let shown = text::line(&one.sql);
        Ok(match read(self.database.client_mut(), &sql, &[]).await {
            Ok(rows) => {
                let called: String = rows[0].get(0);
                let (severity, mend) = kind.takes(&called, &one.sql, about);
                found(
                    severity,
                    format!("{shown} ({called}), {}", one.origin.says()),
                    mend,
                )
            }
            Err(problem) if problem.exit == Exit::Connect => return Err(problem),
            Err(problem) => found(
                Bad,
                format!("{shown}: {}", problem.message()),
                format!("give another expression with --{about}"),
            ),
        })
    }
}

/// Of what type it must be.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Json,
    Time,
    Number,
    Truth,
}

impl Kind {
    fn takes(self, called: &str, sql: &str, about: &str) -> (Severity, String) {
        let fits: &[&str] = match self {
            Self::Text => return (Good, String::new()),
            Self::Json => &["json", "jsonb", "text", "character varying"],
            Self::Time => &["timestamp with time zone"],
            Self::Number => &["smallint", "integer", "bigint", "numeric"],
            Self::Truth => &["boolean"],
        };
        if fits.contains(&called) {
            return (Good, String::new());
        }
        match (self, called) {
            (Self::Json, "bytea") => (Bad, format!("--payload \"convert_from({sql}, 'UTF8')\"")),
            (Self::Time, "timestamp without time zone") => {
                let mend = format!(
                    "it would count in the time zone of the session: --at \"{sql} at time zone 'UTC'\""
                );
                (Bad, mend)
            }
            (Self::Time, "integer" | "bigint" | "numeric" | "double precision") => (
                Bad,
                format!("seconds since 1970? --at \"to_timestamp({sql})\""),
            ),
            _ => (Bad, format!("it must be {}: --{about}", fits.join(", "))),
        }
    }
}

/// What it means that the table does not say something.
fn absent(about: &str) -> Found {
    let (severity, found, mend) = match about {
        "name" => (
            Bad,
            "no column says it",
            "--name COLUMN, or --name \"'send_mail'\" where all are of one kind",
        ),
        "payload" => (
            Bad,
            "no column says it",
            "--payload COLUMN, or one made of columns: --payload \"jsonb_build_object('id', id)\"",
        ),
        "key" => (Bad, "none, and no primary key", "--key COLUMN"),
        "tenant" => (Good, "'' for all", ""),
        "at" => (Good, "all may run at once", ""),
        "priority" => (Good, "0 for all", ""),
        "waiting" => (
            Warning,
            "every row counts as one that has to run",
            "if the table keeps those that have: --waiting 'done_at is null'",
        ),
        _ => (
            Warning,
            "nothing says which rows the old runner has in hand",
            "such a row would run twice: stop the old runner first, or --running 'locked_at is not null'",
        ),
    };
    Found::new(severity, "columns", about, found, mend)
}
