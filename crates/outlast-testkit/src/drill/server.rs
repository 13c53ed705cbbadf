//! The servers of drills, and their databases: Outlast as it is migrated, and the drill's own tables.

use anyhow::{Context, Result};
use outlast_checker::facts::TABLES;
use outlast_postgres::{
    cluster::Cluster,
    connect::{self, Target},
    migrate,
};
use tokio::sync::Mutex;
use tokio_postgres::{Client, NoTls};

use crate::pg;

const TEMPLATE: &str = "template_drill";

/// A private server with a template.
#[derive(Debug)]
pub struct Server {
    cluster: Cluster,
    /// Copies of a template are made one after the other.
    copying: Mutex<()>,
}

impl Server {
    /// A new one; `settings` as in `postgresql.conf`.
    ///
    /// # Errors
    /// When there is no PostgreSQL, or it does not start.
    pub async fn start(settings: &[(&str, &str)]) -> Result<Self> {
        let builder = settings
            .iter()
            .fold(pg::cluster(), |builder, (name, value)| {
                builder.set(name, value)
            });
        let cluster = builder.start().await.context("start a server")?;
        let admin = client(&cluster.socket_url("postgres")).await?;
        admin
            .batch_execute(&format!("create database {TEMPLATE}"))
            .await?;
        let url = cluster.socket_url(TEMPLATE);
        let (mut owner, _driver) = connect::connect(&Target::parse(&url)?).await?;
        migrate::run(&mut owner, |_| ()).await?;
        owner.batch_execute(TABLES).await?;
        drop(owner);
        // A template in use cannot be copied.
        let alone = format!("alter database {TEMPLATE} allow_connections false");
        admin.batch_execute(&alone).await?;
        Ok(Self {
            cluster,
            copying: Mutex::new(()),
        })
    }

    /// A new database; answers its connection string.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn database(&self, name: &str) -> Result<String> {
        let _one = self.copying.lock().await;
        let admin = client(&self.cluster.socket_url("postgres")).await?;
        let copy = format!("create database \"{name}\" template {TEMPLATE}");
        admin.batch_execute(&copy).await?;
        let url = self.cluster.socket_url(name);
        // A worker refuses a copy, and this one is meant.
        let ours = "update outlast._house set database_oid = d.oid
                    from pg_database d where d.datname = current_database()";
        client(&url).await?.batch_execute(ours).await?;
        Ok(url)
    }

    /// The server itself, to be stopped and killed.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }
}

/// A connection of the drill's own.
pub(super) async fn client(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}
