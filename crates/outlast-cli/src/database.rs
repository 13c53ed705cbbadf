//! One connection for one command.

use outlast_postgres::{
    Error,
    connect::{self, Target},
    migrate,
    schema::Schema,
};
use tokio_postgres::{
    Client, Row,
    types::{ToSql, Type},
};

use crate::{
    args::Global,
    problem::{Answer, Tried},
    settings::{Base, Effective, Set},
};

/// A connection, and the name of what is at its other end.
pub(crate) struct Database {
    client: Client,
    target: Target,
}

/// A parameter and its type: nothing is prepared, so that it works behind a pooler.
pub(crate) type Given<'a> = (&'a (dyn ToSql + Sync), Type);

impl Database {
    /// Any database that can be reached.
    pub(crate) async fn open(global: &Global) -> Answer<Self> {
        Self::at(target(global)?).await
    }

    async fn at(target: Target) -> Answer<Self> {
        let (client, _driver) = connect::connect(&target).await.tried("connect")?;
        Ok(Self { client, target })
    }

    /// One with a schema that fits this program; a standby will do.
    pub(crate) async fn to_read(global: &Global) -> Answer<Self> {
        Self::reading(target(global)?).await
    }

    /// As [`Database::to_read`], where settings say more than flags.
    pub(crate) async fn reading(target: Target) -> Answer<Self> {
        let database = Self::at(target).await?;
        migrate::of(database.schema())
            .check(&database.client)
            .await
            .tried(format!("use {database}"))?;
        Ok(database)
    }

    /// A primary with a schema that fits this program.
    pub(crate) async fn to_write(global: &Global) -> Answer<Self> {
        let database = Self::to_read(global).await?;
        database.primary().await?;
        Ok(database)
    }

    /// As [`Database::to_write`], also for a login that may emit and nothing else: it cannot ask for the schema's version.
    pub(crate) async fn to_emit(global: &Global) -> Answer<Self> {
        let database = Self::open(global).await?;
        match migrate::of(database.schema()).check(&database.client).await {
            Ok(()) | Err(Error::NotAllowed { .. }) => {}
            refused => refused.tried(format!("use {database}"))?,
        }
        database.primary().await?;
        Ok(database)
    }

    /// Refuses a standby.
    pub(crate) async fn primary(&self) -> Answer<()> {
        let what = || format!("use {self}");
        let rows = self
            .client
            .query_typed("select where pg_is_in_recovery()", &[])
            .await
            .tried(what())?;
        if !rows.is_empty() {
            Err(Error::Standby).tried(what())
        } else {
            Ok(())
        }
    }

    /// Rows of one statement.
    pub(crate) async fn rows(
        &self,
        what: impl Into<String>,
        sql: &str,
        given: &[Given<'_>],
    ) -> Answer<Vec<Row>> {
        let sql = self.schema().text(sql);
        let answer = self.client.query_typed(&sql, given).await;
        answer
            .map_err(|error| Error::from(error).in_schema(self.schema()))
            .tried(what)
    }

    /// The schema that flags, environment or file name.
    pub(crate) fn schema(&self) -> Schema {
        self.target.in_schema()
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn client_mut(&mut self) -> &mut Client {
        &mut self.client
    }
}

impl std::fmt::Display for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.target.fmt(f)
    }
}

/// The database that flags, environment or file name.
pub(crate) fn target(global: &Global) -> Answer<Target> {
    let effective = Effective::load(global, &Set::default(), &Base::default())?;
    Ok(effective.target()?.application_name("outlast-cli"))
}
