//! `outlast consumers ls`.

use serde::Serialize;
use tokio_postgres::{Row, types::Type};

use crate::{
    args::Global,
    database::Database,
    exit::Exit,
    out::{Table, text},
    problem::Answer,
};

/// A worker that runs moves on within seconds.
const NEGLECTED: i64 = 600;

#[derive(Serialize)]
pub(super) struct Listed<'a> {
    pub(super) name: &'a str,
    pub(super) state: &'a str,
    pub(super) reason: Option<&'a str>,
    pub(super) owner: Option<&'a str>,
    pub(super) types: Vec<&'a str>,
    pub(super) ordered: bool,
    pub(super) lanes: i32,
    pub(super) start: &'a str,
    pub(super) attempts: i32,
    pub(super) tenants: Option<Vec<&'a str>>,
    pub(super) sources: Option<Vec<&'a str>>,
    pub(super) lanes_wanted: Option<i32>,
    pub(super) side_lanes: i32,
    pub(super) former_names: Vec<&'a str>,
    pub(super) bytes_held: i64,
    pub(super) moved_seconds_ago: Option<i64>,
    pub(super) ids_behind: i64,
    pub(super) in_flight: i64,
    pub(super) batches: i64,
    pub(super) retrying: i64,
    pub(super) quarantined: i64,
    pub(super) waiting_version: i64,
    pub(super) blocked_keys: i64,
    pub(super) behind: i64,
    pub(super) outages: i64,
    pub(super) outage: Option<&'a str>,
    pub(super) oldest_parked_seconds: Option<i64>,
    pub(super) created_at: &'a str,
}

impl<'a> Listed<'a> {
    pub(super) fn from_row(row: &'a Row) -> Self {
        Self {
            name: row.get("name"),
            state: row.get("state"),
            reason: row.get("reason"),
            owner: row.get("owner"),
            types: row.get::<_, Option<Vec<&str>>>("types").unwrap_or_default(),
            ordered: row.get("ordered"),
            lanes: row.get("lanes"),
            start: row.get("start"),
            attempts: row.get("attempts"),
            tenants: row.get("tenants"),
            sources: row.get("sources"),
            lanes_wanted: row.get("lanes_wanted"),
            side_lanes: row.get("side_lanes"),
            former_names: row
                .get::<_, Option<Vec<&str>>>("former_names")
                .unwrap_or_default(),
            bytes_held: row.get("bytes_held"),
            moved_seconds_ago: row.get("moved_seconds_ago"),
            ids_behind: row.get("ids_behind"),
            in_flight: row.get("in_flight"),
            batches: row.get("batches"),
            retrying: row.get("retrying"),
            quarantined: row.get("quarantined"),
            waiting_version: row.get("waiting_version"),
            blocked_keys: row.get("blocked_keys"),
            behind: row.get("behind"),
            outages: row.get("outages"),
            outage: row.get("outage"),
            oldest_parked_seconds: row.get("oldest_parked_seconds"),
            created_at: row.get("created_at"),
        }
    }

    /// Nobody has run it for a while, and there is something behind its place: how long, and what it holds.
    pub(super) fn neglected(&self) -> Option<String> {
        let seconds = self.moved_seconds_ago?;
        let idle = self.state == "active" && self.ids_behind > 0 && self.in_flight == 0;
        (idle && seconds >= NEGLECTED).then(|| {
            format!(
                "nobody has run `{}` for {}; it holds {}",
                text::line(self.name),
                text::duration(seconds),
                text::bytes(self.bytes_held)
            )
        })
    }

    pub(super) fn state_and_reason(&self) -> String {
        match (self.reason, self.outage) {
            (Some(reason), _) => format!("{}: {reason}", self.state),
            (None, Some(why)) => format!("{}, outage: {why}", self.state),
            (None, None) => self.state.to_owned(),
        }
    }
}

pub(super) async fn read(database: &Database, name: Option<&str>) -> Answer<Vec<Row>> {
    let sql = include_str!("../../../sql/consumer/list.sql");
    database
        .rows("list consumers", sql, &[(&name, Type::TEXT)])
        .await
}

pub(super) async fn run(global: &Global) -> Answer {
    let out = global.out();
    let database = Database::to_read(global).await?;
    let rows = read(&database, None).await?;
    let consumers: Vec<Listed<'_>> = rows.iter().map(Listed::from_row).collect();
    if out.json {
        out.objects(&consumers)?;
        return Ok(Exit::Done);
    }
    const HEADINGS: [&str; 10] = [
        "NAME",
        "STATE",
        "OWNER",
        "BEHIND",
        "IN FLIGHT",
        "RETRYING",
        "QUARANTINED",
        "WAITING",
        "KEYS",
        "TYPES",
    ];
    let mut table = Table::new(HEADINGS)
        .right([
            "BEHIND",
            "IN FLIGHT",
            "RETRYING",
            "QUARANTINED",
            "WAITING",
            "KEYS",
        ])
        .whole(["NAME"]);
    for one in &consumers {
        let numbers = [
            one.ids_behind,
            one.in_flight,
            one.retrying,
            one.quarantined,
            one.waiting_version,
            one.blocked_keys,
        ];
        let [behind, in_flight, retrying, quarantined, waiting, keys] =
            numbers.map(|n| n.to_string());
        let (state, owner, types) = (
            one.state_and_reason(),
            one.owner.unwrap_or_default(),
            one.types.join(" "),
        );
        table.row([
            one.name,
            &state,
            owner,
            &behind,
            &in_flight,
            &retrying,
            &quarantined,
            &waiting,
            &keys,
            &types,
        ]);
    }
    if table.is_empty() {
        out.say("no consumer has registered yet: a worker registers its consumers when it starts")?;
    } else {
        out.table(&table)?;
    }
    for neglected in consumers.iter().filter_map(Listed::neglected) {
        out.say(&neglected)?;
    }
    Ok(Exit::Done)
}
