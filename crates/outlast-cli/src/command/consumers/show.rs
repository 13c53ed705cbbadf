//! `outlast consumers show`.

use outlast_postgres::Error;
use serde::Serialize;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::ls::{Listed, read};
use crate::{
    args::Global,
    database::Database,
    exit::Exit,
    out::{Out, Table, text},
    problem::{Answer, Tried},
};

#[derive(Serialize)]
struct Lease<'a> {
    room: &'a str,
    holder: &'a str,
    reclaims: i32,
    lapsed: bool,
    seconds_left: i64,
    event_id: Option<Uuid>,
}

#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    consumer: Listed<'a>,
    leases: Vec<Lease<'a>>,
}

pub(super) async fn run(global: &Global, name: &str) -> Answer {
    let out = global.out();
    let database = Database::to_read(global).await?;
    let rows = read(&database, Some(name)).await?;
    let what = format!("show consumer {}", text::line(name));
    let Some(row) = rows.first() else {
        return Err(Error::UnknownConsumer(format!(
            "{} is not registered",
            text::line(name)
        )))
        .tried(what);
    };
    let leases = include_str!("../../../sql/consumer/leases.sql");
    let leases = database.rows(what, leases, &[(&name, Type::TEXT)]).await?;
    let leases = leases
        .iter()
        .map(|row| Lease {
            room: row.get("room"),
            holder: row.get("holder"),
            reclaims: row.get("reclaims"),
            lapsed: row.get("lapsed"),
            seconds_left: row.get("seconds_left"),
            event_id: row.get("event_id"),
        })
        .collect();
    let shown = Shown {
        consumer: Listed::from_row(row),
        leases,
    };
    if out.json {
        out.object(&shown)?;
        return Ok(Exit::Done);
    }
    print(&shown.consumer, out)?;
    if !shown.leases.is_empty() {
        out.say("")?;
        let mut table = Table::new(["LEASE", "HOLDER", "RECLAIMS", "ENDS", "EVENT"])
            .right(["RECLAIMS"])
            .whole(["HOLDER", "EVENT"]);
        for lease in &shown.leases {
            let ends = if lease.lapsed {
                "lapsed".into()
            } else {
                format!("in {} s", lease.seconds_left)
            };
            let event = lease.event_id.map(|id| id.to_string()).unwrap_or_default();
            table.row([
                lease.room,
                lease.holder,
                &lease.reclaims.to_string(),
                &ends,
                &event,
            ]);
        }
        out.table(&table)?;
    }
    Ok(Exit::Done)
}

fn print(consumer: &Listed<'_>, out: Out) -> Answer<()> {
    let order = match (consumer.ordered, consumer.lanes_wanted) {
        (false, _) => "none".into(),
        (true, None) => format!("per key, in {} lanes", consumer.lanes),
        (true, Some(wanted)) => format!("per key, in {} lanes, soon {wanted}", consumer.lanes),
    };
    let only = |names: &Option<Vec<&str>>| names.as_ref().map(|names| names.join(", "));
    let filter = match (only(&consumer.tenants), only(&consumer.sources)) {
        (None, None) => "none".into(),
        (Some(tenants), None) => format!("tenants {tenants}"),
        (None, Some(sources)) => format!("sources {sources}"),
        (Some(tenants), Some(sources)) => format!("tenants {tenants}; sources {sources}"),
    };
    let behind = format!(
        "{}, {} of the log",
        text::count(consumer.ids_behind, "id", "ids"),
        text::bytes(consumer.bytes_held)
    );
    let parked = format!(
        "{} retrying, {} quarantined, {} waiting for a newer version",
        consumer.retrying, consumer.quarantined, consumer.waiting_version
    );
    let keys = format!(
        "{} blocked, {} behind",
        text::count(consumer.blocked_keys, "key", "keys"),
        text::count(consumer.behind, "event", "events")
    );
    let outage = match consumer.outages {
        0 => "none".to_owned(),
        n => format!(
            "in {}: {}",
            text::count(n, "process", "processes"),
            consumer.outage.unwrap_or_default()
        ),
    };
    let (events, batches) = (consumer.in_flight, consumer.batches);
    let in_flight = format!(
        "{} in {}",
        text::count(events, "event", "events"),
        text::count(batches, "batch", "batches")
    );
    let lines = [
        ("name", consumer.name.to_owned()),
        ("state", consumer.state_and_reason()),
        ("owner", consumer.owner.unwrap_or("nobody").to_owned()),
        ("types", consumer.types.join(", ")),
        ("filter", filter),
        ("order", order),
        (
            "start",
            format!("{}, registered {}", consumer.start, consumer.created_at),
        ),
        ("attempts", consumer.attempts.to_string()),
        ("behind", behind),
        ("in flight", in_flight),
        ("parked", parked),
        ("keys", keys),
        ("outage", outage),
    ];
    for (name, value) in lines {
        out.say(&format!("{name:10} {}", text::line(&value)))?;
    }
    if !consumer.former_names.is_empty() {
        let names = consumer.former_names.join(", ");
        out.say(&format!("{:10} {}", "was called", text::line(&names)))?;
    }
    if let Some(neglected) = consumer.neglected() {
        out.say(&neglected)?;
    }
    Ok(())
}
