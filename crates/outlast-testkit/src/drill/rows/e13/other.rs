//! The other server of a drill: a copy of the first one's files, or an empty one.

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use outlast_postgres::{
    cluster::{Cluster, Stop},
    connect::{self, Target},
    migrate,
};

use super::{
    super::super::{
        server::client,
        world::{PATIENCE, World},
    },
    files, rows,
};
use crate::{pg, wait_for};

/// A private server in a folder of its own.
#[derive(Debug)]
pub(super) struct Other {
    cluster: Cluster,
    owner: (u32, u32),
}

impl Other {
    /// An empty one, which runs.
    pub(super) async fn empty() -> Result<Self> {
        let cluster = pg::cluster().start().await.context("another server")?;
        let data = fs::metadata(cluster.folder().join("data"))?;
        let owner = (data.uid(), data.gid());
        Ok(Self { cluster, owner })
    }

    /// One with the files of the world's server as they are now, which does not run yet.
    pub(super) async fn copy(world: &World) -> Result<Self> {
        let this = Self::empty().await?;
        this.cluster.stop(Stop::Immediate).await?;
        fs::remove_dir_all(this.data())?;
        files::backup(world.server.cluster(), &this.data(), this.owner).await?;
        Ok(this)
    }

    /// Reads the archive of the world's server up to a named point, then becomes a primary of its own.
    pub(super) async fn recover(&self, world: &World, point: &str) -> Result<()> {
        let archive = archive(world);
        self.write("recovery.signal", "")?;
        self.configure(&format!(
            "restore_command = 'cp {}/%f %p'\nrecovery_target_name = '{point}'\nrecovery_target_action = 'promote'\n",
            archive.display()
        ))?;
        self.cluster.start().await?;
        self.primary(world).await
    }

    /// Follows the world's server.
    pub(super) async fn follow(&self, world: &World) -> Result<()> {
        let first = world.server.cluster();
        let socket = first.socket();
        let folder = socket.parent().context("a socket lies in a folder")?;
        self.write("standby.signal", "")?;
        self.configure(&format!(
            "primary_conninfo = 'host={} port={} user=postgres'\n",
            folder.display(),
            first.port()
        ))?;
        self.cluster.start().await?;
        wait_for("the standby to follow", PATIENCE, async || {
            let streaming = "select count(*) from pg_stat_replication where state = 'streaming'";
            (world.number(streaming).await.ok()? == 1).then_some(())
        })
        .await;
        Ok(())
    }

    /// Receives nothing any more.
    pub(super) async fn lag(&self, world: &World) -> Result<()> {
        let alone = client(&self.cluster.socket_url("postgres")).await?;
        alone
            .batch_execute("alter system set primary_conninfo = ''")
            .await?;
        alone.batch_execute("select pg_reload_conf()").await?;
        wait_for("the standby to fall behind", PATIENCE, async || {
            let streaming = "select count(*) from pg_stat_replication";
            (world.number(streaming).await.ok()? == 0).then_some(())
        })
        .await;
        Ok(())
    }

    /// Becomes the primary.
    pub(super) async fn promote(&self, world: &World) -> Result<()> {
        let standby = client(&self.cluster.socket_url("postgres")).await?;
        standby.batch_execute("select pg_promote()").await?;
        self.primary(world).await
    }

    /// Just starts, as whoever it thinks it is.
    pub(super) async fn start(&self) -> Result<()> {
        Ok(self.cluster.start().await?)
    }

    async fn primary(&self, world: &World) -> Result<()> {
        let url = self.url(world);
        wait_for("the end of recovery", PATIENCE, async || {
            let asked = client(&url).await.ok()?;
            let row = asked.query_one("select pg_is_in_recovery()", &[]).await;
            (!row.ok()?.get::<_, bool>(0)).then_some(())
        })
        .await;
        Ok(())
    }

    /// The database of the world, here.
    pub(super) fn url(&self, world: &World) -> String {
        let config: tokio_postgres::Config = world.url().parse().expect("a connection string");
        self.cluster
            .socket_url(config.get_dbname().unwrap_or("postgres"))
    }

    /// A dump of the world's database, restored here. Of a server that came without pg_dump all rows, copied in one snapshot.
    pub(super) async fn restore_dump(&self, world: &World) -> Result<()> {
        let config: tokio_postgres::Config = world.url().parse()?;
        let database = config.get_dbname().context("a database")?.to_owned();
        let admin = client(&self.cluster.socket_url("postgres")).await?;
        admin
            .batch_execute(&format!("create database \"{database}\""))
            .await?;
        let first = world.server.cluster();
        if first.installation().program("pg_dump").is_file() {
            self.restore(first, &database).await?;
        } else {
            world.note("there is no pg_dump beside this server: its rows are copied");
            let to = self.cluster.socket_url(&database);
            return rows::copy(&world.client().await?, &to).await;
        }
        let target = Target::parse(&self.cluster.socket_url(&database))?;
        let (mut client, _driver) = connect::connect(&target).await?;
        migrate::run(&mut client, |_| {}).await?;
        Ok(())
    }

    async fn restore(&self, first: &Cluster, database: &str) -> Result<()> {
        let file = self.cluster.folder().join("dump");
        let mut dump = self.command(first, "pg_dump");
        dump.args(["-Fc", "-d", database, "-f"]);
        run(dump.arg(&file)).await?;
        let mut restore = self.command(&self.cluster, "pg_restore");
        // A dump has no roles: migrating makes them, and their rights, anew.
        restore.args([
            "--exit-on-error",
            "--no-owner",
            "--no-privileges",
            "-d",
            database,
        ]);
        run(restore.arg(&file)).await
    }

    fn data(&self) -> PathBuf {
        self.cluster.folder().join("data")
    }

    fn configure(&self, lines: &str) -> Result<()> {
        let file = self.data().join("postgresql.auto.conf");
        let before = fs::read_to_string(&file).unwrap_or_default();
        self.write("postgresql.auto.conf", &(before + lines))
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let file = self.data().join(name);
        fs::write(&file, text).with_context(|| file.display().to_string())?;
        Ok(chown(&file, Some(self.owner.0), Some(self.owner.1))?)
    }

    /// A program of PostgreSQL's, as the user of the servers, that connects to one of them.
    fn command(&self, to: &Cluster, program: &str) -> Command {
        let mut command = Command::new(to.installation().program(program));
        let here = fs::metadata("/proc/self").map(|me| me.uid());
        if here.is_ok_and(|uid| uid == 0) {
            command.uid(self.owner.0).gid(self.owner.1);
        }
        let socket = to.socket();
        let folder = socket.parent().unwrap_or(Path::new("/tmp"));
        command
            .current_dir(self.cluster.folder())
            .arg("-h")
            .arg(folder)
            .args(["-p", &to.port().to_string(), "-U", "postgres"]);
        command
    }
}

/// Where the world's server keeps its log for others, beside its data.
pub(super) fn archive(world: &World) -> PathBuf {
    world.server.cluster().folder().join("archive")
}

async fn run(command: &mut Command) -> Result<()> {
    let name = format!("{command:?}");
    let mut command = std::mem::replace(command, Command::new("true"));
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name}: {said}");
    Ok(())
}
