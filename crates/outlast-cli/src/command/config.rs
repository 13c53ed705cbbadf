//! `outlast config`: what is set, and where it comes from.

use clap::{Args, Subcommand};
use outlast_postgres::{
    Error, connect, migrate,
    setting::{self, InForce},
};
use serde::Serialize;

use crate::{
    args::Global,
    exit::Exit,
    out::{Table, text},
    problem::Answer,
    settings::{Base, Effective, Set, keys},
};

#[derive(Debug, Args)]
#[command(after_help = "\
Defaults < outlast.toml < environment (OUTLAST_LEASE=30s) < flags (--set lease=30s).
What is wrong is told all at once.

Examples:
  outlast config show
  outlast config default > outlast.toml
  OUTLAST_LEASE=30s outlast config show --json")]
pub(crate) struct Config {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show every setting, its value and where it comes from; the database without its password
    ///
    /// Those of the cluster are read from the database; without one they are shown without a value.
    Show {
        #[command(flatten)]
        set: Set,
    },
    /// Print an outlast.toml with every setting as a comment
    Default,
}

#[derive(Serialize)]
struct Entry {
    name: String,
    value: Option<toml::Value>,
    origin: String,
}

impl Config {
    /// `base`: the defaults, or what the code of a user's binary says.
    pub(crate) async fn run(&self, global: &Global, base: &Base) -> Answer {
        let out = global.out();
        let Command::Show { set } = &self.command else {
            out.raw(keys::default_file().as_bytes())?;
            return Ok(Exit::Done);
        };
        let effective = Effective::load(global, set, base)?;
        let entries = effective.entries().into_iter();
        let mut entries: Vec<Entry> = entries
            .map(|(name, value, origin)| Entry {
                name,
                value,
                origin,
            })
            .collect();
        entries.extend(cluster(&effective).await);
        if out.json {
            out.objects(entries)?;
            return Ok(Exit::Done);
        }
        let mut table = Table::new(["SETTING", "VALUE", "ORIGIN"]).whole(["SETTING"]);
        for entry in entries {
            let value = entry.value.map(|value| value.to_string());
            table.row([&entry.name, &value.unwrap_or_default(), &entry.origin]);
        }
        out.table(&table)?;
        Ok(Exit::Done)
    }
}

/// What the database says; whoever asks because nothing works must get an answer too.
async fn cluster(effective: &Effective) -> Vec<Entry> {
    let entry = |name: &str, value: Option<String>, origin| Entry {
        name: format!("cluster.{name}"),
        value: value.map(toml::Value::String),
        origin,
    };
    let known = match in_force(effective).await {
        Ok(known) => known,
        Err(why) => {
            let origin = format!("not read: {}", text::line(&why));
            let one = |setting: &setting::Setting| entry(setting.name, None, origin.clone());
            return setting::all().iter().map(one).collect();
        }
    };
    let one = |now: InForce| {
        let mut origin = now.since.map_or("default".to_owned(), |since| {
            format!("applied {}", text::time(&since))
        });
        if let Some(section) = effective.cluster()
            && setting::find(&now.name).is_some()
            && section.values.get(&now.name) != now.value
        {
            let name = now.name.as_str();
            let place = section
                .origins
                .get(name)
                .map_or("the default", String::as_str);
            let other = section.values.get(name);
            origin.push_str(&format!(
                "; {place} says {other}: `outlast apply` makes it so"
            ));
        }
        entry(&now.name, Some(now.value), origin)
    };
    known.into_iter().map(one).collect()
}

async fn in_force(effective: &Effective) -> Result<Vec<InForce>, String> {
    let target = effective
        .target()
        .map_err(|_| "no database is named".to_owned())?;
    let read = async {
        let target = target.application_name("outlast-cli");
        let (client, _driver) = connect::connect(&target).await?;
        migrate::of(target.in_schema()).check(&client).await?;
        setting::in_force(&client, target.in_schema()).await
    };
    read.await.map_err(|error: Error| error.to_string())
}
