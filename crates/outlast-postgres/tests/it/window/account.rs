//! The account of a run, from outside: what committed against what was claimed. It reads nothing of the product.

use std::fmt;

use tokio_postgres::Client;
use uuid::Uuid;

use crate::sql;

/// Written by the emitting transaction itself, so it is there exactly if the event committed. `snap` is what the
/// transaction could see when it emitted: everything visible in it must be handled before, per key.
const TABLES: &str = "
create schema proof;
create table proof.said (
  ord bigint generated always as identity, event_id uuid not null, type text not null, key text,
  snap pg_snapshot not null, xid xid8 not null);
create table proof.claimed (
  consumer int not null, lane int not null, seq bigint not null, log_id bigint not null, event_id uuid not null);
";

/// Emits one event and says so. A key is of one tenant.
pub(crate) const EMIT: &str = "
insert into proof.said (event_id, type, key, snap, xid)
select e.id, $1, $2, pg_current_snapshot(), pg_current_xact_id()
from outlast.emit(type => $1::text, payload => '{}', key => $2::text, tenant => 't' || abs(hashtext($2)) % 3) e";

/// Emits many events and says so.
pub(crate) const EMIT_ALL: &str = "
insert into proof.said (event_id, type, key, snap, xid)
select e.id, $1, 'bulk' || e.ord % 997, pg_current_snapshot(), pg_current_xact_id()
from outlast.emit_all($1::text, array(select '{}' from generate_series(1, $2::int)),
                      array(select 'bulk' || n % 997 from generate_series(1, $2::int) n), 'bulk') e
order by e.ord";

/// One event that a claimer was given, and where it stood.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Got {
    pub(crate) consumer: i32,
    pub(crate) lane: i32,
    pub(crate) seq: i64,
    pub(crate) log_id: i64,
    pub(crate) event: Uuid,
}

/// How often each promise was broken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) committed: i64,
    pub(crate) lost: i64,
    pub(crate) phantom: i64,
    pub(crate) doubled: i64,
    pub(crate) inverted: i64,
    /// Answers of the server that stopped a claimer.
    pub(crate) refused: Vec<String>,
}

impl Account {
    pub(crate) fn is_clean(&self) -> bool {
        self.lost + self.phantom + self.doubled + self.inverted == 0 && self.refused.is_empty()
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "committed {}, lost {}, phantom {}, doubled {}, inverted {}, refused {:?}",
            self.committed, self.lost, self.phantom, self.doubled, self.inverted, self.refused
        )
    }
}

pub(crate) async fn open(client: &Client) {
    sql::run(client, TABLES).await;
}

/// Settles the account of these consumers (and the types each of them reads).
pub(crate) async fn settle(client: &Client, consumers: &[(i32, &[&str])], got: &[Got]) -> Account {
    sql::run(client, "truncate proof.claimed").await;
    let column = |f: &dyn Fn(&Got) -> i64| got.iter().map(f).collect::<Vec<i64>>();
    let events: Vec<Uuid> = got.iter().map(|g| g.event).collect();
    client
        .execute(
            "insert into proof.claimed select * from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::uuid[])",
            &[
                &column(&|g| i64::from(g.consumer)),
                &column(&|g| i64::from(g.lane)),
                &column(&|g| g.seq),
                &column(&|g| g.log_id),
                &events,
            ],
        )
        .await
        .expect("the claims are written down");
    sql::run(client, "analyze proof.said; analyze proof.claimed").await;

    let mut account = Account {
        committed: sql::one(client, "select count(*) from proof.said", &[]).await,
        ..Account::default()
    };
    account.phantom = sql::one(
        client,
        "select count(*) from proof.claimed c where not exists (select from proof.said s where s.event_id = c.event_id)",
        &[],
    )
    .await;
    for (consumer, types) in consumers {
        account.lost += sql::one::<i64>(
            client,
            "select count(*) from proof.said s
             left join proof.claimed c on c.event_id = s.event_id and c.consumer = $1
             where s.type = any ($2) and c.event_id is null",
            &[consumer, types],
        )
        .await;
        account.doubled += sql::one::<i64>(
            client,
            "select count(*) - count(distinct event_id) from proof.claimed where consumer = $1",
            &[consumer],
        )
        .await;
        account.inverted += sql::one::<i64>(
            client,
            "with o as (
               select s.*, row_number() over (order by c.seq, c.log_id) as nth
               from proof.said s join proof.claimed c on c.event_id = s.event_id where c.consumer = $1)
             select count(*) from o a join o b on a.key = b.key and a.nth > b.nth
             where case when a.xid = b.xid then a.ord < b.ord else pg_visible_in_snapshot(a.xid, b.snap) end",
            &[consumer],
        )
        .await;
    }
    account
}
