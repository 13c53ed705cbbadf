//! `outlast commands discard`: a person does without what was told of commands that nobody has given.

use clap::{ArgGroup, Args, builder::NonEmptyStringValueParser};
use serde::Serialize;
use tokio_postgres::types::Type;

use crate::{args::Global, database::Database, exit::Exit, out::text, problem::Answer};

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("which").required(true).args(["key", "all"])))]
#[command(after_help = "\
A provider has told the end of a command that is not there: `outlast incidents ls` shows it after seven
days. Either the command is still to be given (the same name, tenant and key: it ends with what was told),
or it was none of ours.

Examples:
  outlast commands discard charge_card booking/7/deposit --reason 'a charge of the other shop'
  outlast commands discard charge_card --all --reason 'their test system told us, too'")]
pub(super) struct Discard {
    /// The name of the command
    name: String,
    /// Its key
    key: Option<String>,
    /// All of this name and tenant that are incidents, 10,000 at a time
    #[arg(long)]
    all: bool,
    /// The tenant
    #[arg(long, default_value = "")]
    tenant: String,
    /// Why it is none of ours
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    reason: String,
    /// Who says it; without it the database's user
    #[arg(long, value_name = "WHO")]
    actor: Option<String>,
}

#[derive(Serialize)]
struct Discarded<'a> {
    name: &'a str,
    key: Option<&'a str>,
    tenant: &'a str,
    discarded: i32,
}

impl Discard {
    pub(super) async fn run(&self, global: &Global) -> Answer {
        let out = global.out();
        let name = text::line(&self.name);
        let database = Database::to_write(global).await?;
        let sql = include_str!("../../../sql/command/discard.sql");
        let given = [
            (&self.name as _, Type::TEXT),
            (&self.key as _, Type::TEXT),
            (&self.reason as _, Type::TEXT),
            (&self.tenant as _, Type::TEXT),
            (&self.actor as _, Type::TEXT),
        ];
        let rows = database
            .rows(format!("discard what was told of {name}"), sql, &given)
            .await?;
        let discarded = rows.first().map_or(0, |row| row.get("discarded"));
        if out.json {
            let (name, key, tenant) = (&*self.name, self.key.as_deref(), &*self.tenant);
            out.object(&Discarded {
                name,
                key,
                tenant,
                discarded,
            })?;
        } else {
            let what = text::count(discarded, "settlement", "settlements");
            out.say(&format!("{what} of {name} discarded"))?;
        }
        Ok(if discarded == 0 {
            Exit::Found
        } else {
            Exit::Done
        })
    }
}
