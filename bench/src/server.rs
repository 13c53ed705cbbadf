//! The server that is measured: private, durable, the same for all rounds.

use anyhow::Result;
use outlast_postgres::{
    cluster::Cluster,
    connect::{self, Target},
    migrate,
};
use tokio_postgres::Client;

pub struct Server {
    cluster: Cluster,
}

pub struct Database {
    pub url: String,
    pub target: Target,
    pub sql: Client,
}

impl Server {
    pub async fn start() -> Result<Self> {
        let cluster = Cluster::temporary()
            .set("max_connections", "300")
            .set("shared_buffers", "512MB")
            .set("max_wal_size", "4GB")
            .start()
            .await?;
        Ok(Self { cluster })
    }

    /// The same for contestants of every kind: it tells when a transaction was committed, and can count statements.
    pub async fn start_for_peers() -> Result<Self> {
        let wish = || {
            Cluster::temporary()
                .set("max_connections", "300")
                .set("shared_buffers", "512MB")
                .set("max_wal_size", "4GB")
                .set("track_commit_timestamp", "on")
        };
        // Off unless a database asks for it: it is not for free.
        let counting = wish()
            .set("shared_preload_libraries", "pg_stat_statements")
            .set("pg_stat_statements.track", "none")
            .set("pg_stat_statements.max", "10000")
            .set("compute_query_id", "off");
        let cluster = match counting.start().await {
            Ok(cluster) => cluster,
            // Not every installation has the contributed modules.
            Err(_) => wish().start().await?,
        };
        Ok(Self { cluster })
    }

    /// The date, as results say it.
    pub async fn today(&self) -> Result<String> {
        let (admin, _driver) =
            connect::connect(&Target::parse(&self.cluster.socket_url("postgres"))?).await?;
        let today = admin.query_one("select current_date::text", &[]).await?;
        Ok(format!("date: {}", today.get::<_, &str>(0)))
    }

    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    pub fn version(&self) -> &str {
        self.cluster.installation().version()
    }

    /// Removes a database that is not needed any more: a large one fills the disk.
    pub async fn drop(&self, name: &str) -> Result<()> {
        let (admin, _driver) =
            connect::connect(&Target::parse(&self.cluster.socket_url("postgres"))?).await?;
        admin
            .batch_execute(&format!("drop database if exists {name} with (force)"))
            .await?;
        Ok(())
    }

    /// The postmaster.
    pub fn pid(&self) -> u32 {
        self.cluster.pid()
    }

    /// A new database with the schema and a business table.
    pub async fn database(&self, name: &str) -> Result<Database> {
        let (admin, _driver) =
            connect::connect(&Target::parse(&self.cluster.socket_url("postgres"))?).await?;
        admin
            .batch_execute(&format!("drop database if exists {name} with (force)"))
            .await?;
        admin
            .batch_execute(&format!("create database {name}"))
            .await?;
        let url = self.cluster.socket_url(name);
        let target = Target::parse(&url)?;
        let (mut sql, _driver) = connect::connect(&target).await?;
        migrate::run(&mut sql, |_| {}).await?;
        sql.batch_execute("create table business (id bigint generated always as identity primary key, note text not null)").await?;
        sql.batch_execute("checkpoint").await?;
        Ok(Database { url, target, sql })
    }
}

impl Database {
    pub async fn connect(&self) -> Result<Client> {
        Ok(connect::connect(&self.target).await?.0)
    }

    pub async fn number(&self, sql: &str) -> Result<i64> {
        Ok(self.sql.query_one(sql, &[]).await?.get(0))
    }

    /// # Errors
    /// When the product finds something wrong in its own tables.
    pub async fn must_be_sound(&self) -> Result<()> {
        let broken = self
            .number("select coalesce(sum(violations), 0)::bigint from outlast._verify()")
            .await?;
        anyhow::ensure!(broken == 0, "{broken} violations");
        Ok(())
    }

    /// A backlog of this many events of about 200 bytes, as emitting would have left it.
    pub async fn backlog(&self, events: i64, keys: i64) -> Result<()> {
        self.sql
            .execute(
                "insert into outlast._event (slot, schema_version, id, xid, event_id, emitted_at, type, tenant, key, content_type, payload)
                 select outlast._log_slot(t), 1, nextval('outlast._event_id'), pg_current_xact_id(), outlast._v7(t), t, 'load', '',
                        case when $2::bigint > 0 then 'k' || g % $2 end, 'application/json', convert_to('{\"n\":' || g || ',\"note\":\"' || repeat('x', 180) || '\"}', 'UTF8')
                 from (select g, outlast.clock() as t from generate_series(1, $1::bigint) g) s",
                &[&events, &keys],
            )
            .await?;
        self.sql.batch_execute("checkpoint").await?;
        Ok(())
    }
}
