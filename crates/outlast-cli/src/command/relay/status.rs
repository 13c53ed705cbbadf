//! `outlast relay status`.

use clap::Args;
use outlast_postgres::{outbox::CONSUMER as OUTBOX, relay::LANES};
use serde::Serialize;
use tokio_postgres::{Row, types::Type};

use super::outboxes;
use crate::{
    args::Global,
    database::Database,
    exit::Exit,
    out::{Table, text},
    problem::{Answer, Problem},
};

#[derive(Debug, Args)]
#[command(after_help = "\
BEHIND counts ids of the log after the route's place, of all event types. PARKED are tried again by themselves; those
in quarantine can never be sent, or were tried as often as they may: outlast parked ls --consumer relay/ROUTE.
Routes are made by outlast apply: [cluster.route.NAME] in its file.

Outboxes are tables of other systems ([cluster.outbox.NAME], docs/existing-outbox.md). WAITING counts their rows, up to
100,000, and OLDEST is the oldest of those; with `?` this login may not read the table.")]
pub(super) struct Status {
    /// Only this route, or this outbox: outbox/NAME
    route: Option<String>,
}

#[derive(Serialize)]
struct Route<'a> {
    name: &'a str,
    broker: &'a str,
    topic: &'a str,
    types: Vec<String>,
    ordered: bool,
    state: &'a str,
    reason: Option<&'a str>,
    ids_behind: i64,
    in_flight: i64,
    retrying: i64,
    behind: i64,
    quarantined: i64,
    outages: i64,
    outage: Option<&'a str>,
    lanes: Option<i32>,
    /// While the number of lanes is being changed: what it will be.
    lanes_wanted: Option<i32>,
    rewind: Option<Rewind>,
}

#[derive(Serialize)]
struct Rewind {
    round: i32,
    events: i64,
    sent: i64,
    refused: i64,
}

impl<'a> Route<'a> {
    fn from_row(row: &'a Row) -> Self {
        Self {
            name: row.get("name"),
            broker: row.get("broker"),
            topic: row.get("topic"),
            types: row.get("types"),
            ordered: row.get("ordered"),
            state: row.get("state"),
            reason: row.get("reason"),
            ids_behind: row.get("ids_behind"),
            in_flight: row.get("in_flight"),
            retrying: row.get("retrying"),
            behind: row.get("behind"),
            quarantined: row.get("quarantined"),
            outages: row.get("outages"),
            outage: row.get("outage"),
            lanes: row.get("lanes"),
            lanes_wanted: row.get("lanes_wanted"),
            rewind: row.get::<_, Option<i32>>("rewind").map(|round| Rewind {
                round,
                events: row.get("rewind_events"),
                sent: row.get("rewind_sent"),
                refused: row.get("rewind_refused"),
            }),
        }
    }

    /// Where it was registered with more lanes than a relay makes: what to do.
    fn many_lanes(&self) -> Option<String> {
        let has = self.lanes.filter(|lanes| *lanes > LANES)?;
        let name = text::line(self.name);
        Some(match self.lanes_wanted {
            Some(wanted) => format!("{name}: {has} lanes, on the way to {wanted}"),
            None => format!(
                "{name}: {has} lanes; with {LANES} its batches are larger: outlast consumers lanes relay/{name} {LANES}"
            ),
        })
    }

    /// What it is doing, and why it is not.
    fn state(&self) -> String {
        if let Some(rewind) = &self.rewind {
            return format!(
                "rewinding {} of {}",
                rewind.sent + rewind.refused,
                rewind.events
            );
        }
        match (self.outages > 0, self.outage, self.reason) {
            (true, why, _) => format!("outage: {}", text::line(why.unwrap_or("it fails"))),
            (_, _, Some(why)) => format!("{}: {}", self.state, text::line(why)),
            _ => self.state.to_owned(),
        }
    }
}

impl Status {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        let out = global.out();
        let database = Database::to_read(global).await?;
        let route = self.route.as_deref();
        if let Some(outbox) = route.and_then(|name| name.strip_prefix(OUTBOX)) {
            return match outboxes::show(out, &database, Some(outbox)).await? {
                0 => Err(none(outbox, "outbox")),
                _ => Ok(Exit::Done),
            };
        }
        let sql = include_str!("../../../sql/relay/status.sql");
        let rows = database
            .rows("look at the routes", sql, &[(&route, Type::TEXT)])
            .await?;
        if let (Some(route), true) = (route, rows.is_empty()) {
            return Err(none(route, "route"));
        }
        let routes = rows.iter().map(Route::from_row);
        if out.json {
            out.objects(routes)?;
            if route.is_none() {
                outboxes::show(out, &database, None).await?;
            }
            return Ok(Exit::Done);
        }
        const HEADINGS: [&str; 7] = [
            "ROUTE",
            "BROKER",
            "TOPIC",
            "BEHIND",
            "IN FLIGHT",
            "PARKED",
            "STATE",
        ];
        let mut table = Table::new(HEADINGS)
            .right(["BEHIND", "IN FLIGHT", "PARKED"])
            .whole(["ROUTE"]);
        let mut notes = Vec::new();
        for one in routes {
            notes.extend(one.many_lanes());
            let quarantined = match one.quarantined {
                0 => String::new(),
                n => format!(" + {n} in quarantine"),
            };
            table.row([
                one.name,
                one.broker,
                one.topic,
                &one.ids_behind.to_string(),
                &one.in_flight.to_string(),
                &format!("{}{quarantined}", one.retrying + one.behind),
                &one.state(),
            ]);
        }
        if !rows.is_empty() {
            out.table(&table)?;
        }
        for note in notes {
            out.say(&note)?;
        }
        let outboxes = match route {
            None => outboxes::show(out, &database, None).await?,
            Some(_) => 0,
        };
        if rows.is_empty() && outboxes == 0 {
            out.say(
                "there is no route: [cluster.route.NAME] in the file of `outlast apply` makes one",
            )?;
        }
        Ok(Exit::Done)
    }
}

fn none(name: &str, kind: &str) -> Problem {
    let what = format!("look at {kind} {}", text::line(name));
    let next = format!("`outlast relay status` lists the {kind}s that there are");
    Problem::new(Exit::Found, what, format!("there is no such {kind}")).next(next)
}
