//! Which entity a command is about: its name and key, or its id.

use clap::Args;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::{
    args::Global,
    database::{Database, Given},
    exit::Exit,
    out::text,
    problem::{Answer, Problem},
    work::Work,
};

#[derive(Debug, Args)]
pub(super) struct Which {
    /// Its name; without a key its id, as `outlast incidents ls` tells it
    #[arg(value_name = "NAME|ID")]
    name: String,
    /// Its key
    key: Option<String>,
    /// Its tenant
    #[arg(long, default_value = "")]
    tenant: String,
}

/// By which of the two it is meant.
#[derive(Clone, Copy)]
pub(super) struct Meant<'a> {
    id: Option<Uuid>,
    name: Option<&'a str>,
    key: Option<&'a str>,
    tenant: &'a str,
}

impl<'a> Meant<'a> {
    /// For the statements that find it: its id, name, key and tenant.
    pub(super) fn given(&self) -> [Given<'_>; 4] {
        [
            (&self.id, Type::UUID),
            (&self.name, Type::TEXT),
            (&self.key, Type::TEXT),
            (&self.tenant, Type::TEXT),
        ]
    }
}

impl Which {
    /// For a sentence.
    pub(super) fn shown(&self) -> String {
        match &self.key {
            Some(key) => text::line(&format!("{} {key}", self.name)),
            None => text::line(&self.name),
        }
    }

    pub(super) fn meant(&self) -> Answer<Meant<'_>> {
        if let Some(key) = &self.key {
            return Ok(Meant {
                id: None,
                name: Some(&self.name),
                key: Some(key),
                tenant: &self.tenant,
            });
        }
        let id = self.name.parse().map_err(|_| {
            let what = format!("find entity {}", self.shown());
            Problem::new(Exit::Usage, what, "that is no id").next("give its name and its key")
        })?;
        Ok(Meant {
            id: Some(id),
            name: None,
            key: None,
            tenant: &self.tenant,
        })
    }

    /// The id of one that is known. `verb`: what is done with it.
    pub(super) async fn known(&self, global: &Global, verb: &str) -> Answer<(Uuid, String)> {
        let meant = self.meant()?;
        let what = format!("{verb} {}", self.shown());
        let database = Database::to_read(global).await?;
        let sql = include_str!("../../../sql/entity/which.sql");
        let rows = database.rows(&what, sql, &meant.given()).await?;
        match rows.first().map(|row| row.get::<_, Option<Uuid>>("id")) {
            Some(Some(id)) => Ok((id, what)),
            Some(None) => Err(Problem::new(
                Exit::Found,
                what,
                "nobody has taken its marks yet: no worker reconciles entities",
            )
            .next("start one; it has nothing to decide before that")),
            None => Err(Work::Entity.absent(what)),
        }
    }
}
