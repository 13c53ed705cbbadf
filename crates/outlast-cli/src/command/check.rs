//! `check` in a user's own binary: would `run` work here, and does the database fit the code?

use std::collections::BTreeMap;

use outlast_core::duration;
use outlast_engine::{DescribedJob, Worker};
use outlast_postgres::{
    connect, migrate,
    schema::Schema,
    store::{Place, entity_of, of_queue},
};
use serde::Serialize;
use tokio_postgres::{Client, Row, types::Type};

use crate::{
    exit::Exit,
    out::{Out, text},
    problem::{Answer, Tried},
    settings::Effective,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Note,
    Problem,
}

#[derive(Debug, Serialize)]
struct Finding {
    about: String,
    verdict: Verdict,
    text: String,
}

/// A consumer as the database knows it.
struct Registered {
    types: Vec<String>,
    /// Why it is paused.
    paused: Option<String>,
}

pub(crate) async fn run<S>(out: Out, effective: &Effective, worker: &Worker<S>) -> Answer
where
    S: Clone + Send + Sync + 'static,
{
    worker.check().tried("check the worker")?;
    let target = effective.target()?.application_name("outlast-check");
    let (client, _driver) = connect::connect(&target).await.tried("connect")?;
    let what = || format!("use {target}");
    let schema = target.in_schema();
    migrate::of(schema).check(&client).await.tried(what())?;
    let place = Place::new(effective.settings.deployment.clone())
        .schema(schema)
        .check(&client)
        .await
        .tried(what())?;

    let mut findings = vec![
        finding(
            "settings",
            Verdict::Ok,
            "every setting is right, and they fit together",
        ),
        finding(
            "database",
            Verdict::Ok,
            &format!("{target} answers, and its schema fits this program"),
        ),
    ];
    if connect::is_pooled(&target).await.tried("connect")? {
        findings.push(finding("connection", Verdict::Note, connect::POOLED));
    }
    let described = worker.described();
    let has_commands = described.jobs.iter().any(|job| job.is_command);
    findings.push(match place.deployment {
        Some(name) => finding("deployment", Verdict::Ok, &name),
        None if has_commands => finding(
            "deployment",
            Verdict::Problem,
            "none, and this worker has commands: it does not start before `outlast deployment set NAME` and `deployment` in its settings",
        ),
        None => finding(
            "deployment",
            Verdict::Note,
            "none: taken for a development database; `outlast migrate --deployment NAME`",
        ),
    });
    findings.push(roles(&client, schema).await?);
    let sql = include_str!("../../sql/consumer/list.sql");
    let rows = client
        .query_typed(&schema.text(sql), &[(&None::<&str>, Type::TEXT)])
        .await
        .tried("list consumers")?;
    let mut known: BTreeMap<String, Registered> = BTreeMap::new();
    for row in &rows {
        let state: &str = row.get("state");
        let reason = || {
            row.get::<_, Option<String>>("reason")
                .unwrap_or_else(|| state.to_owned())
        };
        let types = row
            .get::<_, Option<Vec<String>>>("types")
            .unwrap_or_default();
        known.insert(
            row.get("name"),
            Registered {
                types,
                paused: (state != "active").then(reason),
            },
        );
    }
    for consumer in &described.consumers {
        let types: Vec<&str> = consumer
            .types
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        compare(
            consumer.name,
            &types,
            known.remove(consumer.name).as_ref(),
            &mut findings,
        );
    }
    if described.consumers.is_empty() && described.jobs.is_empty() {
        let none = "this worker has no consumer and no job";
        findings.push(finding("worker", Verdict::Note, none));
    }
    for name in known.keys() {
        let about = format!("consumer {name}");
        findings.push(finding(
            &about,
            Verdict::Note,
            "registered in the database; this binary has no code for it",
        ));
    }
    jobs(&client, schema, &described.jobs, &mut findings).await?;
    print(out, &findings)
}

/// The jobs, commands and entities of the code, how they are run, and what the database has of names that the code does not know.
async fn jobs(
    client: &Client,
    schema: Schema,
    described: &[DescribedJob<'_>],
    findings: &mut Vec<Finding>,
) -> Answer<()> {
    let sql = schema.text(include_str!("../../sql/job/names.sql"));
    let rows = client.query_typed(&sql, &[]).await.tried("list jobs")?;
    let name = |row: &Row| row.get::<_, String>("name");
    let about = |queue: &str| match (entity_of(queue), of_queue(queue)) {
        (Some(name), _) => format!("entity {name}"),
        (None, (name, true)) => format!("command {name}"),
        (None, (name, false)) => format!("job {name}"),
    };
    for job in described {
        let queue = job.queue;
        let about = about(queue);
        let row = rows.iter().find(|row| name(row) == queue);
        if let Some(reason) = row.and_then(|row| row.get::<_, Option<String>>("paused")) {
            let text = format!("paused by an operator: {reason}");
            findings.push(finding(&about, Verdict::Note, &text));
            continue;
        }
        let mut text = format!("takes versions up to {}", job.version);
        if let Some(jobs) = job.options.concurrency {
            text.push_str(&format!(", {jobs} at once"));
        }
        if let Some(deadline) = job.options.deadline {
            text.push_str(&format!(", {} a try", duration::show(deadline)));
        }
        if let Some(attempts) = job.options.attempts {
            text.push_str(&format!(", {}", text::count(attempts, "try", "tries")));
        }
        findings.push(finding(&about, Verdict::Ok, &text));
    }
    let unknown = rows
        .iter()
        .filter(|row| row.get("waits") && described.iter().all(|job| job.queue != name(row)));
    for row in unknown {
        let about = about(&name(row));
        let text = "waits in the database; this binary has no code for it";
        findings.push(finding(&about, Verdict::Note, text));
    }
    Ok(())
}

/// Which roles of the schema are there, and as which of them this login works.
async fn roles(client: &Client, schema: Schema) -> Answer<Finding> {
    let sql = schema.text(include_str!("../../sql/house/roles.sql"));
    let rows = client
        .query_typed(&sql, &[])
        .await
        .tried("look at the roles")?;
    let those = |state: &str| -> Vec<&str> {
        let with = rows
            .iter()
            .filter(|row| row.get::<_, &str>("state") == state);
        with.map(|row| row.get("role")).collect()
    };
    let (missing, ours) = (those("missing"), those("ours"));
    if !missing.is_empty() {
        let text = format!(
            "missing: {}; `outlast migrate` makes them, or prints what an administrator has to run",
            missing.join(", ")
        );
        return Ok(finding("roles", Verdict::Note, &text));
    }
    let name = |what: &str| schema.role(what);
    if ours.iter().any(|role| *role == name("owner")) {
        let text = format!(
            "this login owns the schema; a worker needs no more than {}",
            name("engine")
        );
        return Ok(finding("roles", Verdict::Note, &text));
    }
    Ok(if ours.iter().any(|role| *role == name("engine")) {
        finding(
            "roles",
            Verdict::Ok,
            &format!("this login works as {}", name("engine")),
        )
    } else {
        let text = format!("this login lacks {0}: grant {0} to it", name("engine"));
        finding("roles", Verdict::Problem, &text)
    })
}

fn compare(
    name: &str,
    types: &[&str],
    registered: Option<&Registered>,
    findings: &mut Vec<Finding>,
) {
    let about = format!("consumer {name}");
    let Some(registered) = registered else {
        let text = format!("new: the first `run` registers it for {}", types.join(", "));
        return findings.push(finding(&about, Verdict::Note, &text));
    };
    let missing = |those: &[&str], from: &dyn Fn(&str) -> bool| -> Vec<String> {
        those
            .iter()
            .filter(|one| !from(one))
            .map(|one| (*one).to_owned())
            .collect()
    };
    let there: Vec<&str> = registered.types.iter().map(String::as_str).collect();
    let unhandled = missing(&there, &|one| types.contains(&one));
    let added = missing(types, &|one| there.contains(&one));
    if !unhandled.is_empty() {
        let text = format!(
            "registered for {} without a handler here: such events would wait for a worker that has one",
            unhandled.join(", ")
        );
        findings.push(finding(&about, Verdict::Problem, &text));
    }
    if !added.is_empty() {
        let text = format!(
            "the first `run` adds {}: what is emitted from then on counts",
            added.join(", ")
        );
        findings.push(finding(&about, Verdict::Note, &text));
    }
    match &registered.paused {
        Some(reason) => findings.push(finding(
            &about,
            Verdict::Note,
            &format!("paused by an operator: {reason}"),
        )),
        None if unhandled.is_empty() => findings.push(finding(
            &about,
            Verdict::Ok,
            &format!("takes {}", types.join(", ")),
        )),
        None => {}
    }
}

fn finding(about: &str, verdict: Verdict, text: &str) -> Finding {
    Finding {
        about: about.to_owned(),
        verdict,
        text: text.to_owned(),
    }
}

fn print(out: Out, findings: &[Finding]) -> Answer {
    for one in findings {
        if out.json {
            out.object(one)?;
            continue;
        }
        let verdict = match one.verdict {
            Verdict::Ok => "ok",
            Verdict::Note => "note",
            Verdict::Problem => "PROBLEM",
        };
        out.say(&format!(
            "{verdict:8} {}: {}",
            text::line(&one.about),
            text::line(&one.text)
        ))?;
    }
    let bad = findings.iter().any(|one| one.verdict == Verdict::Problem);
    Ok(if bad { Exit::Found } else { Exit::Done })
}
