//! `outlast config`: what is set, and where it comes from.

use std::collections::{BTreeMap, BTreeSet};

use clap::{Args, Subcommand};
use outlast_postgres::{
    Error, account, connect, migrate,
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
    let (known, accounts) = match in_force(effective).await {
        Ok(both) => both,
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
    let settings = known.into_iter().map(one);
    let accounts = bounded(effective, &accounts);
    let accounts = accounts.map(|(name, value, origin)| entry(&name, value, origin));
    settings.chain(accounts).collect()
}

type Accounts = BTreeMap<String, account::InForce>;

/// The accounts that the database bounds, or the file would.
fn bounded(
    effective: &Effective,
    now: &Accounts,
) -> impl Iterator<Item = (String, Option<String>, String)> {
    let wanted = effective.cluster().map(|section| section.values.accounts());
    let names: BTreeSet<&String> = now
        .keys()
        .chain(wanted.into_iter().flat_map(BTreeMap::keys))
        .collect();
    let one = move |name: &String| {
        let (is, file) = (now.get(name), wanted.map(|wanted| wanted.get(name)));
        let mut origin = is.map_or("default".to_owned(), |is| {
            format!("applied {}", text::time(&is.since))
        });
        if let Some(file) = file.filter(|file| *file != is.map(|is| &is.account)) {
            let says = file.map_or("nothing of it".to_owned(), account::Account::shown);
            origin.push_str(&format!(
                "; the file says {says}: `outlast apply` makes it so"
            ));
        }
        let value = is.map(|is| is.account.shown());
        (format!("account.{name}"), value, origin)
    };
    names.into_iter().map(one).collect::<Vec<_>>().into_iter()
}

async fn in_force(effective: &Effective) -> Result<(Vec<InForce>, Accounts), String> {
    let target = effective
        .target()
        .map_err(|_| "no database is named".to_owned())?;
    let read = async {
        let target = target.application_name("outlast-cli");
        let (client, _driver) = connect::connect(&target).await?;
        migrate::of(target.in_schema()).check(&client).await?;
        let schema = target.in_schema();
        let settings = setting::in_force(&client, schema).await?;
        Ok((settings, account::in_force(&client, schema).await?))
    };
    read.await.map_err(|error: Error| error.to_string())
}
