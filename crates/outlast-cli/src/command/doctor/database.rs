//! The database: schema, whose it is, roles, pooler, and the settings of the server that promises hang on.

use std::time::{SystemTime, UNIX_EPOCH};

use outlast_core::broker::Severity::{self, Bad, Good, Unverified, Warning};
use outlast_postgres::{connect, migrate};

use super::{Found, Shown, unread};
use crate::{
    database::Database,
    out::text,
    problem::{Answer, Tried},
    settings::Effective,
};

const OF: &str = "database";
/// A snapshot that is older holds back what maintenance may remove.
const OLD_SECONDS: i64 = 3600;

fn found(severity: Severity, about: &str, says: impl Into<String>, mend: &str) -> Found {
    Found::new(severity, OF, about, says, mend)
}

/// Answers whether the schema is one that the rest can be read from.
pub(super) async fn look(
    database: &Database,
    effective: &Effective,
    all: &mut Shown,
) -> Answer<bool> {
    let schema = database.schema();
    let fits = migrate::of(schema)
        .check(database.client())
        .await
        .tried("look at the schema");
    let fits = match fits {
        Ok(()) => {
            all.show([found(
                Good,
                "schema",
                format!("{schema} fits this program"),
                "",
            )])?;
            true
        }
        Err(problem) => {
            let mend = "outlast migrate plan, then outlast migrate";
            all.show([found(Bad, "schema", problem.message(), mend)])?;
            false
        }
    };
    match unread(server(database).await, OF, "server") {
        Ok(some) => all.show(some)?,
        Err(one) => all.show([one])?,
    }
    all.show([pooled(effective).await])?;
    if !fits {
        return Ok(false);
    }
    match unread(house(database, effective).await, OF, "installation") {
        Ok(some) => all.show(some)?,
        Err(one) => all.show([one])?,
    }
    match unread(roles(database).await, OF, "roles") {
        Ok(one) | Err(one) => all.show([one])?,
    }
    match unread(settings(database).await, OF, "settings of the cluster") {
        Ok(some) => all.show(some)?,
        Err(one) => all.show([one])?,
    }
    match unread(outboxes(database).await, OF, "outboxes") {
        Ok(some) => all.show(some)?,
        Err(one) => all.show([one])?,
    }
    Ok(true)
}

/// Tables of other systems that a relay reads. Whether its login may do so it finds out itself.
async fn outboxes(database: &Database) -> Answer<Vec<Found>> {
    let sql = "select o.name, p.problem from outlast.outbox o
        left join lateral outlast._outbox_problems(o.name, false) p (problem) on true order by 1, 2";
    let rows = database.rows("look at the outboxes", sql, &[]).await?;
    let one = |row: &tokio_postgres::Row| {
        let about = format!("outbox {}", row.get::<_, &str>(0));
        match row.get::<_, Option<String>>(1) {
            None => found(Good, &about, "its table is as it was said", ""),
            Some(problem) => found(
                Bad,
                &about,
                problem,
                "nothing of it is published: docs/existing-outbox.md",
            ),
        }
    };
    Ok(rows.iter().map(one).collect())
}

async fn server(database: &Database) -> Answer<Vec<Found>> {
    let sql = include_str!("../../../sql/doctor/server.sql");
    let rows = database.rows("look at the server", sql, &[]).await?;
    let row = &rows[0];
    let text = |name: &str| row.get::<_, String>(name);
    let mut all = vec![found(
        Good,
        "server",
        format!("PostgreSQL {}", text("version")),
        "",
    )];
    if row.get("standby") {
        let mend = "Outlast works on the primary only: with several hosts in the URL, add target_session_attrs=read-write";
        all.push(found(Bad, "server", "this one is a standby", mend));
    }
    let commit = text("synchronous_commit");
    all.push(match &*commit {
        "off" => found(
            Warning,
            "synchronous_commit",
            "off for this login",
            "an emit that was answered may be lost in a crash, with the rows of its transaction: alter role LOGIN set synchronous_commit = on",
        ),
        _ => found(Good, "synchronous_commit", commit, ""),
    });
    for (setting, why) in [
        (
            "fsync",
            "a crash of the machine destroys the database: alter system set fsync = on",
        ),
        (
            "full_page_writes",
            "a crash of the machine may tear pages: alter system set full_page_writes = on",
        ),
    ] {
        match &*text(setting) {
            "on" => all.push(found(Good, setting, "on", "")),
            other => all.push(found(Bad, setting, other, why)),
        }
    }
    match &*text("autovacuum") {
        "on" => all.push(found(Good, "autovacuum", "on", "")),
        other => {
            let mend = "leases and progress are inserted and deleted all the time, and nobody clears up: alter system set autovacuum = on";
            all.push(found(Bad, "autovacuum", other, mend));
        }
    }
    all.extend(snapshots(row));
    all.push(clock(row.get("now")));
    Ok(all)
}

/// Who holds back what maintenance and vacuum may remove.
fn snapshots(row: &tokio_postgres::Row) -> Vec<Found> {
    let mut all = Vec::new();
    let age: Option<i64> = row.get("oldest_seconds");
    match age.filter(|age| *age > OLD_SECONDS) {
        Some(age) => {
            let pid = row.get::<_, Option<i32>>("oldest_pid").unwrap_or_default();
            let says = format!("the oldest is {} old (pid {pid})", text::duration(age));
            let mend = format!(
                "nothing that it may still see is removed, of the whole server: select pg_terminate_backend({pid})"
            );
            all.push(found(Warning, "snapshots", says, &mend));
        }
        None if row.get::<_, i64>("hidden") > 0 => {
            let mend = "grant pg_read_all_stats to LOGIN";
            all.push(found(
                Unverified,
                "snapshots",
                "those of other logins cannot be seen",
                mend,
            ));
        }
        None => all.push(found(Good, "snapshots", "none is old", "")),
    }
    if let Some(age) = row
        .get::<_, Option<i64>>("prepared_seconds")
        .filter(|age| *age > OLD_SECONDS)
    {
        let says = format!("the oldest is {} old", text::duration(age));
        let mend = "it holds its locks and snapshot until somebody ends it: select * from pg_prepared_xacts";
        all.push(found(Warning, "prepared transactions", says, mend));
    }
    if let Some(slots) = row.get::<_, Option<String>>("slots") {
        let mend =
            "an unused slot holds back what may be removed: select pg_drop_replication_slot(NAME)";
        all.push(found(
            Warning,
            "replication slots",
            format!("unused: {slots}"),
            mend,
        ));
    }
    all
}

/// Ours decides nothing; a large difference makes logs hard to read, and tokens of brokers invalid.
fn clock(theirs: f64) -> Found {
    let ours = SystemTime::now().duration_since(UNIX_EPOCH);
    let differs = ours.map_or(f64::MAX, |ours| (ours.as_secs_f64() - theirs).abs());
    let says = format!("{differs:.1} s from this machine's");
    match differs > 60.0 {
        true => {
            let mend = "leases go by the server's alone, but logs do not fit together and credentials may be refused: set the clocks";
            found(Warning, "clock", says, mend)
        }
        false => found(Good, "clock", says, ""),
    }
}

async fn pooled(effective: &Effective) -> Found {
    let asked = async {
        let target = effective.target()?.application_name("outlast-doctor");
        connect::is_pooled(&target).await.tried("connect twice")
    };
    match asked.await {
        Ok(false) => found(
            Good,
            "connection",
            "straight to the server: LISTEN works",
            "",
        ),
        Ok(true) => found(
            Warning,
            "connection",
            "through a transaction pooler",
            connect::POOLED,
        ),
        Err(problem) => found(
            Unverified,
            "connection",
            problem.message(),
            "a worker needs several",
        ),
    }
}

async fn house(database: &Database, effective: &Effective) -> Answer<Vec<Found>> {
    let sql = include_str!("../../../sql/doctor/house.sql");
    let rows = database.rows("look at the installation", sql, &[]).await?;
    let row = &rows[0];
    let optional = |name: &str| row.get::<_, Option<String>>(name);
    let mut all = Vec::new();
    let configured = effective.settings.deployment.as_deref();
    all.push(match (optional("deployment"), configured) {
        (None, _) => found(
            Bad,
            "deployment",
            "none: workers take it for a development database",
            "a copy or a restore of it would be worked on as if it were this one: outlast migrate --deployment NAME, and deployment = \"NAME\" in outlast.toml",
        ),
        (Some(name), Some(other)) if name != other => found(
            Bad,
            "deployment",
            format!("{name}, and this configuration is for {other}"),
            "no worker with this configuration works on this database: correct --database or deployment",
        ),
        (Some(name), _) => found(Good, "deployment", name, ""),
    });
    for (column, what) in [
        ("stopped", "nobody claims"),
        ("held", "what leaves the database waits"),
    ] {
        if let Some(why) = optional(column) {
            let mend = "outlast restore status, then outlast restore confirm";
            all.push(found(Bad, column, format!("{what}: {why}"), mend));
        }
    }
    if let Some(tables) = optional("unvacuumed") {
        let mend =
            "nobody clears up after leases and progress: alter table … reset (autovacuum_enabled)";
        all.push(found(
            Bad,
            "autovacuum of our tables",
            format!("off for {tables}"),
            mend,
        ));
    }
    all.push(match optional("unfixed") {
        None => found(Good, "search paths", "every function with its owner's rights has a fixed one", ""),
        Some(functions) => found(
            Bad,
            "search paths",
            format!("not fixed: {functions}"),
            "whoever may create objects could have them run with the owner's rights: outlast migrate",
        ),
    });
    if row
        .get::<_, Option<i64>>("seqcache")
        .is_some_and(|cache| cache != 1)
    {
        let mend = "claims are refused, else events would be lost: alter sequence outlast._event_id cache 1";
        all.push(found(Bad, "sequence _event_id", "it has a cache", mend));
    }
    all.push(match row.get::<_, i64>("incidents") {
        0 => found(Good, "incidents", "none", ""),
        n => {
            let says = text::count(n, "thing needs a person", "things need a person");
            found(Warning, "incidents", says, "outlast incidents ls")
        }
    });
    Ok(all)
}

async fn roles(database: &Database) -> Answer<Found> {
    let sql = include_str!("../../../sql/house/roles.sql");
    let rows = database.rows("look at the roles", sql, &[]).await?;
    let missing = rows
        .iter()
        .filter(|row| row.get::<_, &str>("state") == "missing")
        .map(|row| row.get::<_, &str>("role"));
    let missing: Vec<_> = missing.collect();
    if !missing.is_empty() {
        let mend = "outlast migrate makes them, or prints what an administrator has to run";
        return Ok(found(
            Warning,
            "roles",
            format!("missing: {}", missing.join(", ")),
            mend,
        ));
    }
    let sql = "select string_agg(r, ' ') from outlast._missing_rights() r";
    let rows = database.rows("look at the rights", sql, &[]).await?;
    Ok(match rows[0].get::<_, Option<String>>(0) {
        None => found(Good, "roles", "all there, with their rights", ""),
        Some(lacking) => found(Warning, "roles", "rights are lacking", &lacking),
    })
}

async fn settings(database: &Database) -> Answer<Vec<Found>> {
    let sql = "select s from outlast._check_settings() s";
    let rows = database
        .rows("look at the settings of the cluster", sql, &[])
        .await?;
    let about = "settings of the cluster";
    let mend = "nothing is removed while they contradict each other: correct [cluster], then outlast apply";
    let mut all: Vec<_> = rows
        .iter()
        .map(|row| found(Bad, about, row.get::<_, String>(0), mend))
        .collect();
    if all.is_empty() {
        all.push(found(Good, about, "they fit together", ""));
    }
    Ok(all)
}
