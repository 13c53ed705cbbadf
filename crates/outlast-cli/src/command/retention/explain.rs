//! `outlast retention explain`.

use clap::{Args, ValueEnum};
use serde::Serialize;
use tokio_postgres::{Row, types::Type};

use super::size;
use crate::{
    args::Global,
    database::Database,
    exit::Exit,
    out::{Table, text},
    problem::Answer,
};

#[derive(Debug, Args)]
pub(super) struct Explain {
    /// Only this ring
    ring: Option<Ring>,
    /// Only this slot of it
    #[arg(value_parser = clap::value_parser!(i16).range(0..16))]
    slot: Option<i16>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Ring {
    /// The events
    Log,
    /// The completions
    Inbox,
}

#[derive(Serialize)]
struct Slot<'a> {
    ring: &'a str,
    slot: i16,
    bytes: i64,
    first_at: Option<&'a str>,
    last_at: Option<&'a str>,
    held_by: Vec<Hold<'a>>,
}

#[derive(Serialize)]
struct Hold<'a> {
    kind: &'a str,
    about: &'a str,
    detail: &'a str,
}

/// Rows of one slot stand together.
fn slots(rows: &[Row]) -> Vec<Slot<'_>> {
    let mut slots: Vec<Slot<'_>> = Vec::new();
    for row in rows {
        let (ring, number): (&str, i16) = (row.get("ring"), row.get("slot"));
        if slots
            .last()
            .is_none_or(|last| (last.ring, last.slot) != (ring, number))
        {
            slots.push(Slot {
                ring,
                slot: number,
                bytes: row.get("bytes"),
                first_at: row.get("first_at"),
                last_at: row.get("last_at"),
                held_by: Vec::new(),
            });
        }
        let kind: Option<&str> = row.get("kind");
        if let (Some(kind), Some(slot)) = (kind, slots.last_mut()) {
            slot.held_by.push(Hold {
                kind,
                about: row.get("about"),
                detail: row.get("detail"),
            });
        }
    }
    slots
}

impl Explain {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        let out = global.out();
        let database = Database::to_read(global).await?;
        let ring = self.ring.and_then(|ring| ring.to_possible_value());
        let ring = ring.as_ref().map(|ring| ring.get_name());
        let rows = database
            .rows(
                "explain retention",
                include_str!("../../../sql/retention/explain.sql"),
                &[(&ring, Type::TEXT), (&self.slot, Type::INT2)],
            )
            .await?;
        let slots = slots(&rows);
        if out.json {
            out.objects(&slots)?;
            return Ok(Exit::Done);
        }
        let mut table = Table::new(["SLOT", "FROM", "UNTIL", "SIZE", "HELD BY", "WHO", "WHY"])
            .right(["SIZE"])
            .whole(["SLOT", "WHO"]);
        for slot in &slots {
            let name = format!("{} {}", slot.ring, slot.slot);
            let [from, until] =
                [slot.first_at, slot.last_at].map(|at| at.map(text::time).unwrap_or_default());
            let bytes = size(slot.bytes as f64);
            if slot.held_by.is_empty() {
                table.row([&name, &from, &until, &bytes, "nothing", "", ""]);
            }
            for (i, hold) in slot.held_by.iter().enumerate() {
                let about =
                    [&name, &from, &until, &bytes].map(|s| if i == 0 { s.as_str() } else { "" });
                let [name, from, until, bytes] = about;
                table.row([name, from, until, bytes, hold.kind, hold.about, hold.detail]);
            }
        }
        if table.is_empty() {
            out.say("nothing is held: the rings are empty")?;
        } else {
            out.table(&table)?;
        }
        Ok(Exit::Done)
    }
}
