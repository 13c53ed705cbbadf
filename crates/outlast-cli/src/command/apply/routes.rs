//! What a change of the routes does not do by itself, and may not be meant.

use outlast_postgres::{relay::Route, setting};
use tokio_postgres::types::Type;

use crate::{
    database::Database,
    out::text,
    problem::{Answer, Tried},
};

/// What is allowed and may still not be meant; only of routes that were served before.
pub(super) async fn warnings(database: &Database, wanted: &setting::Values) -> Answer<Vec<String>> {
    let now = setting::routes(database.client(), database.schema())
        .await
        .tried("read the routes")?;
    let mut warnings = Vec::new();
    for (name, was) in &now {
        let consumer = format!("relay/{name}");
        let Some(becomes) = wanted.routes().get(name) else {
            if waiting(database, &consumer, "*", &[]).await?.is_some() {
                warnings.push(format!(
                    "nobody publishes for {consumer} any more, and what it has not done is kept for it: \
                     `outlast consumers retire {consumer}` ends that"
                ));
            }
            continue;
        };
        let gone = was
            .types
            .iter()
            .filter(|entry| !becomes.types.contains(entry));
        for entry in gone {
            if let Some(n) = waiting(database, &consumer, entry, &becomes.types).await? {
                warnings.push(taken(&consumer, entry, n));
            }
        }
        if is_late(was, becomes)
            && waiting(database, &consumer, "*", &["*".into()])
                .await?
                .is_some()
        {
            warnings.push(format!(
                "start of route.{name}: it was served before and goes on where it is"
            ));
        }
    }
    Ok(warnings)
}

fn is_late(was: &Route, becomes: &Route) -> bool {
    was.start != becomes.start
}

fn taken(consumer: &str, entry: &str, n: i64) -> String {
    let now = match n {
        0 => "none waits now".to_owned(),
        n => format!("{} now", text::count(n, "waits", "wait")),
    };
    format!(
        "events of {entry} are not published any more and wait at the consumer {consumer}, {now}: \
         `outlast consumers remove-type {consumer} {entry}` ends that and skips them"
    )
}

/// How many events of this entry alone wait; none where there is no such consumer.
async fn waiting(
    database: &Database,
    consumer: &str,
    entry: &str,
    stay: &[String],
) -> Answer<Option<i64>> {
    let sql = include_str!("../../../sql/relay/waiting.sql");
    let given: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] = [
        (&consumer, Type::TEXT),
        (&entry, Type::TEXT),
        (&stay, Type::TEXT_ARRAY),
    ];
    let rows = database.rows("look what waits", sql, &given).await?;
    let count =
        |row: &tokio_postgres::Row| row.get::<_, i64>("parked") + row.get::<_, i64>("waiting");
    Ok(rows.first().map(count))
}
