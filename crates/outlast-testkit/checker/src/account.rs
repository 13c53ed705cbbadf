//! The account of very many events: the database counts, nothing is carried out of it.

use anyhow::Result;
use tokio_postgres::Client;

/// Each must be zero.
const ZEROES: [(&str, &str); 7] = [
    (
        "intents without their event, or with other content",
        "select count(*) from drill.business b left join outlast._event e using (event_id)
         where e.event_id is null or encode(sha256(e.payload), 'hex') <> b.digest",
    ),
    (
        "events without their intent",
        "select count(*) from outlast._event e left join drill.business b using (event_id) where b.event_id is null",
    ),
    (
        "intents with more than one event",
        "select count(*) - count(distinct n) from drill.business",
    ),
    (
        "effects beyond the first of their event",
        "select count(*) - count(distinct (consumer, event_id)) from drill.effect",
    ),
    (
        "effects of no event, or with other content",
        "select count(*) from drill.effect d left join drill.business b using (event_id)
         where b.event_id is null or b.n <> d.n or b.digest <> d.digest",
    ),
    (
        "events that are parked",
        "select count(*) from outlast._parked",
    ),
    (
        "leases that are not ended",
        "select count(*) from outlast._lease where room in ('batch', 'parked')",
    ),
];

/// Compares everything with everything. `inside` are the consumers whose effects are rows of `drill.effect`. Answers each
/// difference in words.
///
/// # Errors
/// When the database does not answer.
pub async fn account(
    client: &Client,
    events: i64,
    consumers: &[&str],
    inside: &[&str],
) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for (what, sql) in ZEROES {
        let n: i64 = client.query_one(sql, &[]).await?.get(0);
        if n != 0 {
            wrong.push(format!("{n} {what}"));
        }
    }
    let mut counts = vec![(
        "events",
        count(client, "select count(*) from outlast._event", None).await?,
    )];
    for consumer in consumers {
        let sql = "select count(*) from outlast._processed_event p
                   join outlast._consumer c on c.id = p.consumer where c.name = $1";
        counts.push((consumer, count(client, sql, Some(consumer)).await?));
    }
    for consumer in inside {
        let sql = "select count(*) from drill.effect where consumer = $1";
        counts.push((consumer, count(client, sql, Some(consumer)).await?));
    }
    let differ = counts.into_iter().filter(|(_, n)| *n != events);
    wrong.extend(differ.map(|(what, n)| format!("{what}: {n} of {events}")));
    for row in client
        .query(
            "select invariant, violations from outlast._verify() where violations <> 0",
            &[],
        )
        .await?
    {
        wrong.push(format!(
            "verify: {}: {}",
            row.get::<_, String>(0),
            row.get::<_, i64>(1)
        ));
    }
    Ok(wrong)
}

async fn count(client: &Client, sql: &str, of: Option<&str>) -> Result<i64> {
    let row = match of {
        Some(of) => client.query_one(sql, &[&of]).await?,
        None => client.query_one(sql, &[]).await?,
    };
    Ok(row.get(0))
}
