//! What became of the requests, as anybody can see it from outside: the application's tables by plain SQL, and the
//! provider's ledger.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use anyhow::Context;
use serde::Deserialize;
use sqlx::postgres::{PgPool, PgPoolOptions};
use tokio::time::{Instant, sleep};

use crate::account::{Archived, Booked, Facts, Mail, Posted};
use crate::journal;
use crate::progress::Progress;
use crate::stage::Stage;

/// When nothing moves for so long, waiting is over: the account will show what is missing.
const STUCK: Duration = Duration::from_secs(30);

pub(crate) struct Books {
    db: PgPool,
    journal: PathBuf,
    provider_ledger: PathBuf,
}

/// How many there are of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) bookings: usize,
    pub(crate) deliveries: usize,
    pub(crate) ledger: usize,
    pub(crate) mailer: usize,
    pub(crate) archive: usize,
}

impl Counts {
    pub(crate) fn handled(&self) -> usize {
        self.ledger + self.mailer + self.archive
    }

    fn complete(&self) -> bool {
        self.ledger >= self.bookings
            && self.mailer >= self.bookings
            && self.archive >= self.bookings + self.deliveries
    }
}

impl Books {
    pub(crate) fn open(stage: &Stage) -> anyhow::Result<Self> {
        let options = PgPoolOptions::new()
            .max_connections(2)
            .acquire_timeout(Duration::from_secs(5));
        Ok(Self {
            db: options.connect_lazy(&stage.database_url())?,
            journal: stage.journal(),
            provider_ledger: stage.provider_ledger(),
        })
    }

    pub(crate) fn journal(&self) -> &Path {
        &self.journal
    }

    /// Fails while PostgreSQL is down.
    pub(crate) async fn counts(&self) -> anyhow::Result<Counts> {
        let [bookings, deliveries, ledger, archive] =
            self.count().await?.map(|n| usize::try_from(n).unwrap_or(0));
        let mailer = self.mails()?.iter().filter(|mail| !mail.repeat).count();
        Ok(Counts {
            bookings,
            deliveries,
            ledger,
            mailer,
            archive,
        })
    }

    async fn count(&self) -> Result<[i64; 4], sqlx::Error> {
        let row: (i64, i64, i64, i64) = sqlx::query_as(
            "select (select count(*) from booking), (select count(*) from delivery), \
             (select count(distinct booking) from ledger), (select count(distinct event) from archive)",
        )
        .fetch_one(&self.db)
        .await?;
        Ok([row.0, row.1, row.2, row.3])
    }

    /// Waits until everything is handled and nothing is on its way any more that could be handled again.
    pub(crate) async fn settled(&self, stage: &Stage, progress: &Progress) -> anyhow::Result<()> {
        let (mut last, mut moved) = (Counts::default(), Instant::now());
        loop {
            stage.check()?;
            let counts = self.counts().await?;
            if counts != last {
                (last, moved) = (counts, Instant::now());
            }
            if counts.complete() && self.is_quiet().await? {
                return Ok(());
            }
            if moved.elapsed() > STUCK {
                progress.say(&format!(
                    "nothing has moved for {} s: not waiting any more",
                    STUCK.as_secs()
                ));
                return Ok(());
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Only to know when to look; the account does not use it.
    async fn is_quiet(&self) -> Result<bool, sqlx::Error> {
        sqlx::query_scalar(
            "select coalesce(bool_and(batches = 0 and in_flight = 0 and retrying = 0), false) from outlast.consumer",
        )
        .fetch_one(&self.db)
        .await
    }

    pub(crate) async fn facts(&self) -> anyhow::Result<Facts> {
        let bookings = sqlx::query_as("select id, request from booking")
            .fetch_all(&self.db)
            .await?;
        let deliveries = sqlx::query_scalar("select id from delivery")
            .fetch_all(&self.db)
            .await?;
        let ledger = sqlx::query_as("select booking, event::text from ledger")
            .fetch_all(&self.db)
            .await?;
        let archive = sqlx::query_as(
            "select event::text, coalesce(key, ''), encode(sha256, 'hex') from archive",
        )
        .fetch_all(&self.db)
        .await?;
        Ok(Facts {
            journal: journal::read(&self.journal)?,
            bookings: bookings
                .into_iter()
                .map(|(id, request)| Booked { id, request })
                .collect(),
            deliveries,
            ledger: ledger
                .into_iter()
                .map(|(booking, event)| Posted { booking, event })
                .collect(),
            archive: archive
                .into_iter()
                .map(|(event, key, sha256)| Archived { event, key, sha256 })
                .collect(),
            mails: self.mails()?,
        })
    }

    fn mails(&self) -> anyhow::Result<Vec<Mail>> {
        #[derive(Deserialize)]
        struct Line {
            key: String,
            repeat: bool,
            body: Body,
        }
        #[derive(Deserialize)]
        struct Body {
            booking: i64,
        }
        let text = match fs::read_to_string(&self.provider_ledger) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text.context("read the provider's ledger")?,
        };
        // A last line without its end is still being written.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let mail = |line| {
            let Line { key, repeat, body } = serde_json::from_str(line)?;
            Ok(Mail {
                event: key,
                booking: body.booking,
                repeat,
            })
        };
        whole.lines().map(mail).collect()
    }
}
