//! A database as a dump and restore leaves it, made in place: every stored transaction id becomes that of a server that
//! was ahead of this one. What a real dump does to a real server is row E13 of `./run prove`.

use std::collections::HashSet;

use tokio_postgres::{Client, Error};
use uuid::Uuid;

use crate::house::House;
use crate::sql::{self, Claim, Event};

/// Transaction ids that this server will not see in a lifetime of tests.
pub(crate) const FAR: i64 = 10_000_000;

/// Written by the old server, which was `ahead`; the marker is right with no server.
const DUMP: &str = "
    create function pg_temp.snap(s pg_snapshot, ahead bigint) returns pg_snapshot language sql as $$
      select format('%s:%s:%s', pg_snapshot_xmin(s)::text::bigint + ahead, pg_snapshot_xmax(s)::text::bigint + ahead,
        (select string_agg((x::text::bigint + ahead)::text, ',') from pg_snapshot_xip(s) x))::pg_snapshot $$;
    create function pg_temp.tick(t outlast._tick, ahead bigint) returns outlast._tick language plpgsql as $$
    begin
      if t.h = '1' then return t; end if;
      t.snap := pg_temp.snap(t.snap, ahead);
      t.h := (t.h::text::bigint + ahead)::text::xid8;
      t.open := (select array_agg((x::text::bigint + ahead)::text::xid8 order by x) from unnest(t.open) x);
      t.young := (t.young::text::bigint + ahead)::text::xid8;
      return t;
    end $$;
    create function pg_temp.cut(c outlast._cut, ahead bigint) returns outlast._cut language sql as $$
      select case when c is not null then row(pg_temp.snap(c.snap, ahead), c.hi, c.base)::outlast._cut end $$;
    create function pg_temp.dump(ahead bigint) returns void language sql as $$
      update outlast._event set xid = (xid::text::bigint + ahead)::text::xid8;
      update outlast._batch set a = pg_temp.tick(a, ahead), b = pg_temp.tick(b, ahead);
      update outlast._consumer set began = pg_temp.cut(began, ahead);
      update outlast._consumer_type set since = pg_temp.cut(since, ahead);
      update outlast._marker set own_xid = own_xid + 1;
    $$;";

/// A house, somebody who looks after it, and what its consumers were given.
pub(crate) struct Scene {
    pub(crate) house: House,
    pub(crate) client: Client,
    /// Everything that a consumer has completed; nothing of it may be handed out again.
    pub(crate) done: HashSet<(i32, Uuid)>,
    pub(crate) again: Vec<Uuid>,
}

impl Scene {
    pub(crate) async fn new() -> Self {
        let house = House::new().await;
        let client = house.connect().await;
        Self {
            house,
            client,
            done: HashSet::new(),
            again: Vec::new(),
        }
    }

    /// Now this is what was restored from a dump of a server that was so far ahead.
    pub(crate) async fn dump(&self, ahead: i64) {
        let dumper = self.house.connect().await;
        sql::run(&dumper, DUMP).await;
        dumper
            .execute("select pg_temp.dump($1)", &[&ahead])
            .await
            .expect("the dump is made");
    }

    pub(crate) async fn confirm(&self) -> Result<(), Error> {
        confirm(&self.client).await
    }

    pub(crate) async fn emit(&self, kind: &str) -> Uuid {
        sql::emit(&self.client, kind, None).await
    }

    /// One claim of a consumer, not ended.
    pub(crate) async fn claim(&mut self, consumer: i32, n: i32) -> Vec<Event> {
        let events = Claim::of(consumer)
            .n(n)
            .next(&self.client)
            .await
            .expect("claims");
        self.handed_out(consumer, &events);
        events
    }

    fn handed_out(&mut self, consumer: i32, events: &[Event]) {
        let again = events.iter().map(|event| event.id);
        self.again
            .extend(again.filter(|id| self.done.contains(&(consumer, *id))));
    }

    /// Completes what a claim has given.
    pub(crate) async fn end(&mut self, consumer: i32, events: &[Event]) {
        for event in events {
            sql::complete(&self.client, event.token, event.id)
                .await
                .expect("completes");
            self.done.insert((consumer, event.id));
        }
        let tokens: HashSet<Uuid> = events.iter().map(|event| event.token).collect();
        let tokens: Vec<Uuid> = tokens.into_iter().collect();
        sql::finish(&self.client, &tokens).await.expect("ends");
    }

    /// Takes over, claims and completes until there is nothing.
    pub(crate) async fn drain(&mut self, consumer: i32) {
        loop {
            let mut events = sql::reclaim(&self.client, consumer, 100)
                .await
                .expect("takes over");
            self.handed_out(consumer, &events);
            if events.is_empty() {
                events = self.claim(consumer, 7).await;
            }
            if events.is_empty() {
                return;
            }
            self.end(consumer, &events).await;
        }
    }

    /// What this consumer has completed of these.
    pub(crate) fn lost(&self, consumer: i32, expected: &[Uuid]) -> usize {
        let lost = |id: &&Uuid| !self.done.contains(&(consumer, **id));
        expected.iter().filter(lost).count()
    }
}

pub(crate) async fn confirm(client: &Client) -> Result<(), Error> {
    client
        .query_one("select outlast._confirm('a test')", &[])
        .await
        .map(|_| ())
}
