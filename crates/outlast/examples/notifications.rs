//! Notifications: who is told what, by which way, is decided once and written down; each way to each recipient is a command of its
//! own. What has arrived is never sent again because another way has failed, and each decision has an end that is on record.
//!
//! Needs a database to play with (`outlast dev`, and `outlast deployment set example` for it) and a provider: `cargo run -p
//! outlast-testkit --bin fake-provider -- --ledger /tmp/ledger` says where it listens. Then `DATABASE_URL=… PROVIDER=http://127.0.0.1:…
//! cargo run --example notifications --features http-provider`.

use std::{error::Error, time::Duration};

use deadpool_postgres::{Manager, Pool as Connections};
use outlast::{
    Attempt, ClientTx, Command, Consumer, Event, Failure, Found, IfUnknown, Outlast, OwnedTx, Pool,
    Resolved, Sent, Settings, Start,
    http::provider::{Provider, Said},
};
// How the providers are to misbehave; no application has that.
use outlast_testkit::provider::order::{Fault, Habits};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio_postgres::NoTls;

#[derive(Serialize, Deserialize)]
struct BookingConfirmed {
    booking: i64,
}
impl Event for BookingConfirmed {
    const NAME: &'static str = "booking.confirmed";
}

/// What was decided, frozen: to whom, where and in which words. A later change of the address or of the template changes nothing.
#[derive(Clone, Serialize, Deserialize)]
struct Notice {
    decision: String,
    to: String,
    text: String,
}

/// A way to tell somebody: what its provider can do decides what is done when nobody knows whether it has.
trait Way: Command<Answer = u64> {
    const PATH: &'static str;
    fn notice(&self) -> &Notice;
}

macro_rules! way {
    ($(#[$doc:meta])* $name:ident, $called:literal, $path:literal) => {
        $(#[$doc])*
        #[derive(Serialize, Deserialize)]
        struct $name(Notice);
        impl Command for $name {
            const NAME: &'static str = $called;
            type Answer = u64;
            fn key(&self) -> String {
                self.0.decision.clone()
            }
            fn account(&self) -> Option<String> {
                Some($called.into())
            }
        }
        impl Way for $name {
            const PATH: &'static str = $path;
            fn notice(&self) -> &Notice {
                &self.0
            }
        }
    };
}
way!(
    /// Its provider honours keys.
    Mail, "notify.mail", "keyed"
);
way!(
    /// Its provider can be asked.
    Sms, "notify.sms", "looked"
);
way!(
    /// Its provider can do neither.
    Push, "notify.push", "keyless"
);

#[derive(Clone)]
struct App {
    providers: Provider,
}

#[derive(Deserialize)]
struct Order {
    order: u64,
}

async fn tell<W: Way>(app: App, notice: Attempt<W>) -> Result<Sent<u64>, Failure> {
    let Notice { to, text, decision } = notice.notice();
    let key = notice.provider_key();
    let body = json!({ "reference": key, "account": W::NAME, "decision": decision, "to": to, "text": text });
    let path = format!("orders/{}", W::PATH);
    let answer = app
        .providers
        .post(&path)
        .key(key)
        .json(&body)
        .send()
        .await?;
    Ok(match answer.said()? {
        Said::Done => Sent::Settled(answer.json::<Order>()?.order),
        Said::Refused(why) => Sent::Rejected(why),
    })
}

async fn find<W: Way>(app: App, notice: Attempt<W>) -> Result<Found<u64>, Failure> {
    let path = format!("orders/{}/by/{}", W::PATH, notice.provider_key());
    let answer = app.providers.get(&path).send().await?;
    Ok(match answer.status() {
        200 => Found::Settled(answer.json::<Order>()?.order),
        // Not found, or not now: neither is proof.
        _ => Found::Unsure,
    })
}

/// Decides once a booking, in one commit: a line for each recipient and way, and a command for each that is to go. A second run
/// finds the lines and decides nothing.
async fn decide(_: App, tx: &mut ClientTx, e: Attempt<BookingConfirmed>) -> Result<(), Failure> {
    let decided = "insert into decision (id, booking, recipient, way, address, state, why)
         select format('booking/%s/%s/%s', $1::bigint, r.name, w.way), $1, r.name, w.way, w.address,
                case when w.wanted then 'sending' else 'not sent' end, case when not w.wanted then 'does not want it' end
         from recipient r join way w on w.recipient = r.name where r.booking = $1
         on conflict do nothing returning id, way, address, state";
    for row in tx.query(decided, &[&e.booking]).await? {
        if row.get::<_, &str>("state") != "sending" {
            continue;
        }
        let notice = Notice {
            decision: row.get("id"),
            to: row.get("address"),
            text: format!("Booking {} is confirmed", e.booking),
        };
        match row.get("way") {
            "mail" => e.outlast().command(tx, &Mail(notice)).await?,
            "sms" => e.outlast().command(tx, &Sms(notice)).await?,
            _ => e.outlast().command(tx, &Push(notice)).await?,
        };
    }
    Ok(())
}

/// The end of a decision, in one commit with the completion.
async fn ended<W: Way>(
    _: App,
    tx: &mut ClientTx,
    end: Attempt<Resolved<W>>,
) -> Result<(), Failure> {
    let sql = "update decision set state = $2 where id = $1 and state = 'sending'";
    tx.execute(sql, &[&end.command.notice().decision, &end.how.as_str()])
        .await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL")?;
    outlast::migrate(&url).await?;
    let db = Connections::builder(Manager::new(url.parse()?, NoTls)).build()?;
    db.get().await?.batch_execute(
        "create table recipient (booking bigint, name text primary key);
         create table way (recipient text, way text, address text, wanted boolean, primary key (recipient, way));
         create table decision (id text primary key, booking bigint, recipient text, way text, address text, state text, why text);
         insert into recipient values (7, 'ann'), (7, 'bob');
         insert into way values ('ann', 'mail', 'ann@example.org', true), ('ann', 'sms', '+49 1', true), ('ann', 'push', 'phone-1', true),
           ('bob', 'mail', 'bob@example.org', true), ('bob', 'sms', '+49 2', false);",
    ).await?;
    let app = App {
        providers: Provider::new(&std::env::var("PROVIDER")?)?,
    };
    // Every first answer is lost: mail is sent again with its key, the sms is asked after, and of the push nobody knows.
    let lost = Habits::only(Fault::Dropped);
    app.providers.put("orders").json(&lost).send().await?;

    let ends = Consumer::new("decisions")
        .on_tx(&db, ended::<Mail>)
        .on_tx(&db, ended::<Sms>)
        .on_tx(&db, ended::<Push>);
    let worker = Outlast::new()
        .worker(app)
        .database(&url)
        // Of a copy of this database it must tell nobody anything.
        .settings(Settings {
            deployment: Some("example".into()),
            ..Settings::default()
        })
        .command(
            tell::<Mail>,
            IfUnknown::resend_within(Duration::from_secs(24 * 3600)).replays_answers(),
        )
        .command(tell::<Sms>, IfUnknown::look_up(find::<Sms>))
        .command(tell::<Push>, IfUnknown::ask_a_person())
        .consumer(
            Consumer::new("notices")
                .from(Start::Earliest)
                .on_tx(&db, decide),
        )
        .consumer(ends.from(Start::Earliest));
    worker
        .run_until(async { day(&db).await.expect("the day goes as planned") })
        .await?;

    let lines = "select string_agg(format('%s by %s: %s', recipient, way, state), E'\\n' order by recipient, way) from decision";
    println!(
        "{}",
        db.get()
            .await?
            .query_one(lines, &[])
            .await?
            .get::<_, String>(0)
    );
    Ok(())
}

async fn day(db: &Connections) -> Result<(), Box<dyn Error>> {
    confirmed(db).await?;
    until(
        db,
        "select count(*) from outlast.incident where kind = 'unknown command'",
        1,
    )
    .await?;
    // The same fact once more: nothing is decided again, and nothing sent.
    confirmed(db).await?;
    until(
        db,
        "select count(*) from decision where state = 'settled'",
        3,
    )
    .await?;
    until(
        db,
        "select count(*) from outlast.processed where consumer = 'notices'",
        2,
    )
    .await?;
    // A person looks into the push provider's console, and does not find out. That is an end, too.
    let given_up = "select outlast.resolve(id, 'abandoned', 'their console does not say') from outlast.command where state = 'unknown'";
    db.get().await?.query(given_up, &[]).await?;
    until(
        db,
        "select count(*) from decision where state = 'abandoned'",
        1,
    )
    .await
}

async fn confirmed(db: &Connections) -> Result<(), Box<dyn Error>> {
    let mut tx = db.begin().await?;
    Outlast::new()
        .emit(&mut tx, &BookingConfirmed { booking: 7 })
        .await?;
    tx.commit().await?;
    Ok(())
}

async fn until(db: &Connections, sql: &str, n: i64) -> Result<(), Box<dyn Error>> {
    let db = db.get().await?;
    while db.query_one(sql, &[]).await?.get::<_, i64>(0) < n {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
