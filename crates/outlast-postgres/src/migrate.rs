//! Bringing the schema of a database up to this program: numbered migrations, then the functions.
//!
//! Each migration is one transaction under an advisory lock and a `lock_timeout`, so two runs at once are safe, a run
//! that was killed goes on where it stopped, and nobody waits long behind it. Functions are the current text, applied
//! again whenever it changed, never by a program that is older than the schema.

use tokio_postgres::{Client, types::Type};

use crate::{Error, schema::Schema};

mod files;
mod step;

pub use files::{FUNCTIONS, MIGRATIONS, Migration};
use step::{Step, digest, record, record_functions};

/// What a database has and what this program would do to it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Plan {
    /// The highest migration that the database has; 0 when it has none.
    pub found: u32,
    /// The highest migration that this program knows.
    pub known: u32,
    /// What `run` would apply, in order.
    pub pending: Vec<&'static Migration>,
    /// Whether the texts of the SQL functions differ from this program's.
    pub functions_differ: bool,
}

impl Plan {
    /// Nothing to do.
    pub fn is_current(&self) -> bool {
        self.pending.is_empty() && !self.functions_differ
    }
}

/// What [`run`] did.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Migrated {
    /// The schema's version before.
    pub from: u32,
    /// The schema's version now.
    pub to: u32,
    /// Whether function texts were applied.
    pub functions: bool,
    /// Statements that an administrator of the server has still to run, because this login may not: they make the roles.
    /// Run the migration again after them. Until then the schema is its owner's alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub for_an_administrator: Vec<String>,
}

/// The migrations of one schema. The functions of this module are those of the default one.
///
/// ```no_run
/// # async fn f(client: &mut tokio_postgres::Client) -> Result<(), outlast_postgres::Error> {
/// use outlast_postgres::{migrate, schema::Schema};
/// migrate::of(Schema::named("billing")?).run(client, |step| println!("applied {step}")).await?;
/// # Ok(()) }
/// ```
pub fn of(schema: Schema) -> Migrations {
    Migrations { schema }
}

/// What brings one schema up to this program.
#[derive(Clone, Copy, Debug)]
pub struct Migrations {
    schema: Schema,
}

/// As [`Migrations::plan`], for the schema `outlast`.
pub async fn plan(client: &Client) -> Result<Plan, Error> {
    of(Schema::DEFAULT).plan(client).await
}

/// As [`Migrations::run`], for the schema `outlast`.
pub async fn run(client: &mut Client, report: impl FnMut(&str)) -> Result<Migrated, Error> {
    of(Schema::DEFAULT).run(client, report).await
}

/// As [`Migrations::sql`], for the schema `outlast`.
pub fn sql() -> String {
    of(Schema::DEFAULT).sql()
}

/// As [`Migrations::check`], for the schema `outlast`.
pub async fn check(client: &Client) -> Result<(), Error> {
    of(Schema::DEFAULT).check(client).await
}

impl Migrations {
    /// Reads what the database has. Changes nothing.
    pub async fn plan(self, client: &Client) -> Result<Plan, Error> {
        let known = MIGRATIONS[MIGRATIONS.len() - 1].version;
        let found = self.version(client).await?;
        let pending = MIGRATIONS.iter().filter(|m| m.version > found).collect();
        let applied: Option<String> = if found == 0 {
            None
        } else {
            let ask = self.schema.text("select digest from outlast._functions");
            let rows = client.query_typed(&ask, &[]).await?;
            rows.first().map(|row| row.get(0))
        };
        let functions_differ = found <= known && applied.as_deref() != Some(digest().as_str());
        Ok(Plan {
            found,
            known,
            pending,
            functions_differ,
        })
    }

    /// Applies what is pending; each step is durable when it is reported. Safe to run twice at once and to kill.
    ///
    /// The roles of the schema and their rights are looked after each time, as far as this login may.
    ///
    /// # Errors
    /// [`Error::NewerSchema`] when a newer program migrated this database; nothing is changed then. [`Error::NotAllowed`]
    /// when this login neither owns the schema nor may make it. [`Error::Database`] when a lock could not be had within a
    /// minute: the steps before it stay, the next run goes on from there.
    pub async fn run(
        self,
        client: &mut Client,
        mut report: impl FnMut(&str),
    ) -> Result<Migrated, Error> {
        self.usable(client).await?;
        let from = self.version(client).await?;
        let known = MIGRATIONS[MIGRATIONS.len() - 1].version;
        if from > known {
            return Err(Error::NewerSchema { found: from, known });
        }
        for migration in MIGRATIONS {
            let step = Step::Migration(migration);
            if step.apply(client, self.schema).await?.applied {
                report(&format!("{:04} {}", migration.version, migration.name));
            }
        }
        let functions = Step::Functions.apply(client, self.schema).await?;
        if functions.applied {
            report("functions");
        }
        Ok(Migrated {
            from,
            to: known,
            functions: functions.applied,
            for_an_administrator: functions.left,
        })
    }

    /// All of it as one SQL file, for teams whose DDL is reviewed and run by somebody else.
    pub fn sql(self) -> String {
        let mut out = String::from(
            "-- Outlast: run this file as the owner of the schema, with psql -1 -f.\n\
             -- It makes the roles if that login may; if not, an administrator does that first:\n\
             --   create role outlast_owner nologin; create role outlast_emitter nologin;\n\
             --   create role outlast_engine nologin; create role outlast_reader nologin;\n\
             --   grant outlast_owner to the login that runs this file;\n\
             -- Its last statement answers what is left to do for one.\n\n",
        );
        out.push_str(files::BOOTSTRAP);
        for migration in MIGRATIONS {
            out.push_str(&format!(
                "\n-- {:04} {}\n{}\n{}\n",
                migration.version,
                migration.name,
                migration.sql,
                record(migration)
            ));
        }
        // Bodies name each other; all of them are there at the end.
        out.push_str("\nset check_function_bodies = off;\n");
        for (name, text) in FUNCTIONS {
            out.push_str(&format!("\n-- functions/{name}.sql\n{text}\n"));
        }
        out.push_str(&record_functions());
        out.push_str("\nselect * from outlast._secure();\n");
        self.schema.text(&out).into_owned()
    }

    /// Refuses to work on a schema that this program does not fit.
    ///
    /// # Errors
    /// [`Error::NotMigrated`] when it is older than this program needs, [`Error::NewerSchema`] when a later release
    /// marked a migration as breaking for this one, [`Error::NotAllowed`] when this login has no role of the schema.
    pub async fn check(self, client: &Client) -> Result<(), Error> {
        let need = MIGRATIONS[MIGRATIONS.len() - 1].version;
        let found = self.version(client).await?;
        if found < need {
            return Err(Error::NotMigrated { found, need });
        }
        if found > need {
            let ask = self.schema.text(
                "select exists (select from outlast._migration where version > $1 and breaking)",
            );
            let need_at_least = need as i32;
            let rows = client
                .query_typed(&ask, &[(&need_at_least, Type::INT4)])
                .await?;
            if rows.first().is_some_and(|row| row.get(0)) {
                return Err(Error::NewerSchema { found, known: need });
            }
        }
        Ok(())
    }

    /// Refuses a name that would have to be written in quotes.
    async fn usable(self, client: &Client) -> Result<(), Error> {
        let reserved = "select exists (select from pg_get_keywords() where word = $1 and catcode in ('R', 'T'))";
        let name = self.schema.name();
        let rows = client.query_typed(reserved, &[(&name, Type::TEXT)]).await?;
        if rows.first().is_some_and(|row| row.get(0)) {
            return Err(Error::Config(format!(
                "schema `{name}` is a reserved word of SQL"
            )));
        }
        Ok(())
    }

    async fn version(self, client: &Client) -> Result<u32, Error> {
        let exists = "select to_regclass('outlast._migration') is not null";
        let newest = "select coalesce(max(version), 0) from outlast._migration";
        let ask = async |sql| {
            let row = client.query_typed_one(&self.schema.text(sql), &[]).await;
            row.map_err(|error| Error::from(error).in_schema(self.schema))
        };
        if !ask(exists).await?.get::<_, bool>(0) {
            return Ok(0);
        }
        Ok(u32::try_from(ask(newest).await?.get::<_, i32>(0)).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrations_are_numbered_without_gaps_and_say_in_their_header_whether_they_break() {
        for (i, m) in MIGRATIONS.iter().enumerate() {
            assert_eq!(m.version as usize, i + 1, "{}", m.name);
            let word = if m.breaking {
                "-- breaking: yes"
            } else {
                "-- breaking: no"
            };
            assert!(m.sql.contains(word), "{} must say `{word}`", m.name);
        }
    }

    #[test]
    fn the_printed_file_holds_every_migration_and_every_function() {
        let sql = sql();
        for m in MIGRATIONS {
            assert!(sql.contains(m.sql), "{}", m.name);
        }
        for (name, text) in FUNCTIONS {
            assert!(sql.contains(text), "{name}");
        }
    }
}
