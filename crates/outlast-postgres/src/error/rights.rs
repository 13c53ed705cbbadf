//! What a refusal of the server is about, and the role that would have been let in.

use super::Error;
use crate::schema::Schema;

/// The public views; a user's own tables are not ours to explain.
const VIEWS: [&str; 6] = [
    "event",
    "consumer",
    "parked",
    "incident",
    "processed",
    "lease",
];
const EMITTING: [&str; 3] = ["emit", "emit_all", "_emitted"];
const WORKING: [&str; 6] = ["claim", "complete", "fail", "fence", "renew", "register"];
/// Whether only the owner may call it: decisions of people, each with its line in the audit. The list of doors says it.
fn is_deciding(name: &str) -> bool {
    let begins = format!("('{name}',");
    let doors = include_str!("../../functions/roles.sql").lines();
    doors
        .map(str::trim_start)
        .any(|door| door.starts_with(&begins) && door.contains("'{owner}'"))
}

/// The error of a statement that was refused, if what refused it is ours. `LOGIN` is whoever asked.
pub(super) fn of_message(message: &str, schema: Schema) -> Option<Error> {
    let grant = grant(message, schema)?;
    let what = outlast_core::text::clean(message, 500);
    Some(Error::NotAllowed { what, grant })
}

fn grant(message: &str, schema: Schema) -> Option<String> {
    let granted = |role: &str| Some(format!("grant {schema}_{role} to LOGIN"));
    // Some drivers say the code before it or behind it.
    if let Some((_, denied)) = message.split_once("permission denied for ") {
        let mut words = denied.split_whitespace();
        let (kind, name) = (words.next()?, words.next()?);
        return match kind {
            "schema" if name == schema.name() => Some(format!(
                "grant {schema}_engine to LOGIN (to emit and to work; {schema}_emitter is enough to emit, {schema}_reader to look)"
            )),
            "database" => Some(format!("grant create on database {name} to LOGIN")),
            "function" if EMITTING.contains(&name) => granted("emitter"),
            "function" if WORKING.contains(&name) || name.starts_with('_') => granted("engine"),
            "function" if is_deciding(name) => granted("owner"),
            "view" if VIEWS.contains(&name) => granted("reader"),
            "table" | "sequence" if name.starts_with('_') => granted("engine"),
            _ => None,
        };
    }
    let (_, owned) = message.split_once("must be owner of ")?;
    let name = owned.split_whitespace().nth(1)?;
    let ours = name == schema.name()
        || name.starts_with('_')
        || VIEWS
            .iter()
            .chain(&EMITTING)
            .chain(&WORKING)
            .any(|known| *known == name);
    ours.then(|| granted("owner"))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_role_that_would_do() {
        let table = [
            (
                "permission denied for function emit",
                "grant outlast_emitter to LOGIN",
            ),
            (
                "permission denied for function _seal",
                "grant outlast_engine to LOGIN",
            ),
            (
                "permission denied for function complete (42501)",
                "grant outlast_engine to LOGIN",
            ),
            (
                "permission denied for table _migration",
                "grant outlast_engine to LOGIN",
            ),
            (
                "permission denied for view event",
                "grant outlast_reader to LOGIN",
            ),
            (
                "permission denied for database shop",
                "grant create on database shop to LOGIN",
            ),
            (
                "must be owner of function emit",
                "grant outlast_owner to LOGIN",
            ),
        ];
        for (message, expected) in table {
            assert_eq!(
                grant(message, Schema::DEFAULT).as_deref(),
                Some(expected),
                "{message}"
            );
        }
        for deciding in ["resolve", "retry_job", "pause_account"] {
            let refused = format!("permission denied for function {deciding}");
            assert_eq!(
                grant(&refused, Schema::DEFAULT).as_deref(),
                Some("grant outlast_owner to LOGIN")
            );
        }
        let billing = Schema::named("billing").unwrap();
        let schema = "permission denied for schema billing";
        assert!(
            grant(schema, billing)
                .is_some_and(|grant| grant.starts_with("grant billing_engine to LOGIN"))
        );
        for (message, schema) in [
            (schema, Schema::DEFAULT),
            ("permission denied for table booking", Schema::DEFAULT),
            ("permission denied for function confirm", Schema::DEFAULT),
            ("must be owner of table booking", Schema::DEFAULT),
            ("permission denied to create role", Schema::DEFAULT),
        ] {
            assert_eq!(grant(message, schema), None, "{message}");
        }
    }
}
