//! Durable asynchronous work for applications on PostgreSQL.
//!
//! Your application commits its business change and its intent in one transaction; Outlast carries the intent to a
//! recorded outcome, whatever dies on the way, and shows a person whatever a machine cannot resolve.
//!
//! ```no_run
#![doc = include_str!("../examples/hello.rs")]
//! ```
//!
//! **The payload type is the name, the function is the behaviour, the worker joins them.** A [`Job`] is work to be done;
//! [`Outlast::enqueue`] writes it in your transaction. An [`Entity`] is something that must look the same elsewhere;
//! [`Outlast::changed`] marks it in your transaction, and [`Worker::reconcile`] makes it so. An [`Event`] is an immutable fact; [`Outlast::emit`] writes it in your
//! transaction; a [`Consumer`] is a named, independent reader of events. A [`Worker`] is everything that one process does.
//!
//! # What is promised
//! - A committed event is never lost; an event of a rolled-back transaction is never seen.
//! - It is handed to every consumer of its type at least once, always with the same id, key and payload bytes.
//! - There is one completion per event and consumer. With [`Consumer::on_tx`] it is committed together with the
//!   handler's own rows; a handler with outside effects ([`Consumer::on`]) may run twice.
//! - A committed job is run until it has succeeded, at least once, always with the same id; or it waits for a person.
//! - A committed mark of an entity is converged to its latest state; one that comes meanwhile is converged afterwards, never lost.
//! - Once another process has taken over, nothing of the old one can commit.
//!
//! # Enqueue in your own transaction
//! ```
//! # use outlast::{Job, Options, Outlast};
//! # use serde::{Deserialize, Serialize};
//! # use std::time::Duration;
//! #[derive(Serialize, Deserialize)]
//! struct SendReceipt { order: i64 }
//! impl Job for SendReceipt {
//!     const NAME: &'static str = "send_receipt";
//!     fn options() -> Options { Options::new().deadline(Duration::from_secs(20)).attempts(5) }
//! }
//!
//! # async fn pay(db: sqlx::PgPool, outlast: Outlast) -> Result<(), Box<dyn std::error::Error>> {
//! let mut tx = db.begin().await?;
//! sqlx::query("update purchase set paid = true where id = 7").execute(&mut *tx).await?;
//! outlast.enqueue(&mut tx, &SendReceipt { order: 7 }).after(Duration::from_secs(60)).await?;
//! tx.commit().await?;                       // both are there now, or neither
//! # Ok(()) }
//! ```
//!
//! # Emit in your own transaction
//! With sqlx (feature `sqlx-0_9`; `sqlx-0_8`, `sea-orm` and `diesel-async` look the same), tokio-postgres or deadpool-postgres:
//! ```
//! # use outlast::{Event, Outlast};
//! # use serde::{Deserialize, Serialize};
//! # #[derive(Serialize, Deserialize)] struct BookingConfirmed { booking: i64 }
//! # impl Event for BookingConfirmed { const NAME: &'static str = "booking.confirmed"; }
//! # async fn confirm(db: sqlx::PgPool, outlast: Outlast) -> Result<(), Box<dyn std::error::Error>> {
//! let mut tx = db.begin().await?;
//! sqlx::query("update booking set confirmed = true where id = 7").execute(&mut *tx).await?;
//! outlast.emit(&mut tx, &BookingConfirmed { booking: 7 }).await?;
//! tx.commit().await?;                       // both are there now, or neither
//! # Ok(()) }
//! ```
//!
//! # Handle it in a transaction
//! ```
//! # use outlast::{Attempt, Consumer, Event, Failure, Outlast};
//! # use serde::{Deserialize, Serialize};
//! # use sqlx::{PgPool, PgTransaction};
//! # #[derive(Serialize, Deserialize)] struct BookingConfirmed { booking: i64 }
//! # impl Event for BookingConfirmed { const NAME: &'static str = "booking.confirmed"; }
//! # #[derive(Clone)] struct App;
//! async fn post(_: App, tx: &mut PgTransaction<'_>, e: Attempt<BookingConfirmed>) -> Result<(), Failure> {
//!     sqlx::query("insert into ledger (booking) values ($1)").bind(e.booking).execute(&mut **tx).await?;
//!     Ok(())                                // the row and the completion: one commit
//! }
//!
//! # async fn f(db: PgPool) -> Result<(), outlast::Error> {
//! Outlast::new().worker(App).consumer(Consumer::new("ledger").on_tx(&db, post)).run().await
//! # }
//! ```
//!
//! # Features
//! | feature | what |
//! |---|---|
//! | `sqlx-0_9` | [`Tx`] and [`Pool`] for sqlx 0.9, and `?` on its errors in handlers |
//! | `sqlx-0_8` | the same for sqlx 0.8 (0.8.4 and later); both may be on |
//! | `sea-orm` | the same for sea-orm 2 |
//! | `diesel-async` | the same for diesel-async 0.9 and its deadpool; diesel hides most SQLSTATEs, which are known again by the server's English texts |
//! | `anyhow` | `?` on `anyhow::Error` in handlers |
//! | `cli` | the commands of `outlast` for your own binary |
//! | `push` | [`http`]: an HTTPS endpoint as the handler of a consumer ([`Consumer::push`]), signatures and completion for receivers |
//! | `http-provider` | [`http::provider`]: a client for a provider's HTTP API that knows afterwards whether a request may have had an effect |
//! | `webhook` | [`http::webhook`]: whether what a provider tells you is the provider's, by its signature |
//! | `testing` | a worker for tests, whose clock they move |
#![warn(missing_docs)]

#[cfg(feature = "cli")]
pub use outlast_cli::cli;
pub use outlast_core::{
    Class, Classify, Codec, CodecError, Command, Consumable, Entity, Event, Failure, Follows,
    Found, Job, Outcome, Payload, Resolution, Resolved, Sent, Stored, Unreadable, broker, codec,
    command, endpoint,
    job::{self, Options},
};
pub use outlast_engine::{
    About, Attempt, BatchFn, Consumer, Emit, Enqueue, IfUnknown, JobSettings, Outlast, Raw,
    Running, Sealed, Settings, Start, TxFn, Worker,
};
pub use outlast_postgres::{
    Error,
    command::Settlement,
    error::{DatabaseError, Refused},
    event::{Accepted, Landed},
    job::{Cancel, Stands, Status},
    migrate::Migrated,
    tx::{BoxFuture, ClientTx, OwnedTx, Pool, Tx, Value},
};

#[cfg(feature = "diesel-async")]
pub use outlast_postgres::tx::DieselTx;

#[cfg(any(feature = "http-provider", feature = "push", feature = "webhook"))]
pub use outlast_http as http;

#[cfg(feature = "testing")]
pub use outlast_engine::testing;

/// Brings the schema of a database up to this program: what `outlast migrate` does. For another schema than `outlast`:
/// [`Outlast::migrate`].
///
/// Each step is durable when it is done; two at once are safe, and one that was killed goes on where it stopped. Call it
/// from a deploy step, not from every process: the role needs the right to create a schema.
///
/// ```no_run
/// # async fn f() -> Result<(), outlast::Error> {
/// let done = outlast::migrate("postgres://app@localhost/shop").await?;
/// println!("schema {} → {}", done.from, done.to);
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`Error::Connect`]; [`Error::NewerSchema`] when a newer program was here, with nothing changed.
pub async fn migrate(url: &str) -> Result<Migrated, Error> {
    Outlast::new().migrate(url).await
}

/// The code of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
