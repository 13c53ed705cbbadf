//! The clients: each asks for its share of the plan, one request after the other, and writes down what it saw.

use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, RequestBuilder};
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::account::hex;
use crate::chaos::Gate;
use crate::journal::{Entry, Intent, Journal};
use crate::plan::{Request, Work};

/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long it lets the service alone after an error.
const PAUSE: Duration = Duration::from_millis(100);

/// Starts them; the answer resolves when all have done their share. Dropping it stops them.
pub(crate) fn start(
    service: &str,
    requests: Vec<Request>,
    clients: usize,
    journal: &Arc<Journal>,
    gate: &Gate,
) -> impl Future<Output = anyhow::Result<()>> + use<> {
    let mut shares: Vec<Vec<(usize, Request)>> = (0..clients).map(|_| Vec::new()).collect();
    for (nth, request) in requests.into_iter().enumerate() {
        shares[nth % clients].push((nth, request));
    }
    let mut running = JoinSet::new();
    for share in shares {
        running.spawn(work(
            service.to_owned(),
            share,
            journal.clone(),
            gate.clone(),
        ));
    }
    async move {
        while let Some(ended) = running.join_next().await {
            ended??;
        }
        Ok(())
    }
}

async fn work(
    service: String,
    share: Vec<(usize, Request)>,
    journal: Arc<Journal>,
    gate: Gate,
) -> anyhow::Result<()> {
    let http = outlast_example_bookings::http();
    for (nth, Request { name, work }) in share {
        gate.pass(nth).await;
        let intent = intent(&work);
        journal
            .write(&Entry::Sent {
                request: name.clone(),
                intent,
            })
            .await?;
        let status = ask(&http, &service, &name, work).await;
        journal
            .write(&Entry::Answered {
                request: name,
                status,
            })
            .await?;
        gate.finished();
        if status.is_none_or(|status| status >= 500) {
            sleep(PAUSE).await;
        }
    }
    Ok(())
}

fn intent(work: &Work) -> Intent {
    match work {
        Work::Book { guest, total, .. } => Intent::Book {
            guest: guest.clone(),
            total: total.clone(),
        },
        Work::Deliver(payload) => Intent::Deliver {
            sha256: hex(&Sha256::digest(payload.body.get())),
        },
    }
}

/// The answer's status, if one came.
async fn ask(http: &Client, service: &str, name: &str, work: Work) -> Option<u16> {
    let (request, patience) = match work {
        Work::Book {
            guest,
            total,
            leave_after,
        } => {
            let request = http
                .post(format!("{service}/bookings"))
                .header("idempotency-key", name)
                .json(&json!({ "guest": guest, "total": total }));
            (request, leave_after.unwrap_or(PATIENCE))
        }
        Work::Deliver(payload) => {
            let request = http
                .post(format!("{service}/events/github.delivery"))
                .header("x-github-delivery", name)
                .header("x-github-event", payload.event)
                .header("content-type", "application/json")
                .body(payload.body.get().to_owned());
            (request, PATIENCE)
        }
    };
    // Dropping the request closes its connection: so does a browser whose tab is closed.
    timeout(patience, send(request)).await.ok()?
}

async fn send(request: RequestBuilder) -> Option<u16> {
    let answer = request.send().await.ok()?;
    let status = answer.status().as_u16();
    // To its end, so that the connection can be used again.
    answer.bytes().await.ok()?;
    Some(status)
}
