//! The rule that core's models search through is the rule that the SQL reads by.

use std::collections::BTreeSet;

use outlast_core::window::{Snapshot, Tick, in_window, is_beyond};
use tokio_postgres::{Client, Row};

use crate::house::House;
use crate::seeds;
use crate::sql::{self, Claim};

/// The ticks of a consumer, kept by the server as they are; and the window between any two of them.
const KEPT: &str = "
    create temp table kept (n int, t outlast._tick);
    create function pg_temp.keep(n int, of int) returns void language sql as $$
      insert into pg_temp.kept
      select n, x.b from outlast._batch x where x.consumer = of order by x.seq desc limit 1 $$;
    create function pg_temp.between(first int, last int, of int) returns setof bigint language plpgsql as $$
    declare x outlast._batch; begin
      select * into strict x from outlast._batch y where y.consumer = of order by y.seq desc limit 1;
      select t into strict x.a from pg_temp.kept where n = first;
      select t into strict x.b from pg_temp.kept where n = last;
      x.lo := 0; x.hi := (x.b).hi; x.events := 1;
      return query select r.id from outlast._batch_rows(x) r;
    end $$;";

/// A session of the script.
struct Writer {
    client: Client,
    open: bool,
}

impl Writer {
    async fn step(&mut self, rng: &mut fastrand::Rng) {
        let sql = match (self.open, rng.u32(..10)) {
            (false, 0..4) => "begin; select pg_current_xact_id()",
            (false, 4..7) => "begin",
            (false, _) | (true, 0..5) => "select outlast.emit('a', '{}')",
            (true, 5) => {
                "savepoint s; select outlast.emit('a', '{}'); rollback to s; select outlast.emit('a', '{}'); release s"
            }
            (true, 6) => "rollback",
            (true, _) => "commit",
        };
        self.open = match sql {
            "rollback" | "commit" => false,
            sql => self.open || sql.starts_with("begin"),
        };
        sql::run(&self.client, sql).await;
    }
}

fn tick(row: &Row) -> Tick {
    let snap: String = row.get(0);
    let mut parts = snap.split(':').skip(1);
    let xmax = parts.next().expect("xmin:xmax:xip").parse().expect("xmax");
    let list = parts.next().expect("xmin:xmax:xip").split(',');
    let xip = list.filter(|xid| !xid.is_empty());
    let number = |text: &str| text.parse::<u64>().expect("a transaction id");
    Tick {
        snap: Snapshot {
            xmax,
            xip: xip.map(number).collect(),
        },
        hi: row.get(1),
        h: number(row.get(2)),
        open: row
            .get::<_, Vec<String>>(3)
            .iter()
            .map(|xid| number(xid))
            .collect(),
        young: row.get::<_, Option<&str>>(4).map(number),
    }
}

async fn kept(client: &Client, n: i32) -> Tick {
    let sql = "select (t).snap::text, (t).hi, (t).h::text, coalesce((t).open::text[], '{}'), (t).young::text
               from pg_temp.kept where n = $1";
    tick(&client.query_one(sql, &[&n]).await.expect("it was kept"))
}

async fn log(client: &Client) -> Vec<(i64, u64)> {
    let rows = client.query("select id, xid::text from outlast._event", &[]);
    let rows = rows.await.expect("the log can be read");
    let of = |row: &Row| (row.get(0), row.get::<_, &str>(1).parse().expect("an xid"));
    rows.iter().map(of).collect()
}

fn between(rows: &[(i64, u64)], a: &Tick, b: &Tick) -> BTreeSet<i64> {
    let inside = rows.iter().filter(|(id, xid)| in_window(a, b, *id, *xid));
    inside.map(|(id, _)| *id).collect()
}

#[tokio::test]
async fn the_log_is_read_by_the_rule_that_the_models_prove() {
    for seed in seeds::seeds(2) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let house = House::new().await;
        let reader = house.connect().await;
        let consumer = sql::register(&reader, "c", &["a"], "now", None).await;
        sql::run(&reader, KEPT).await;
        let keep = async |n: i32| {
            let keep = "select pg_temp.keep($1, $2)";
            let kept_now = reader.execute(keep, &[&n, &consumer]).await;
            kept_now.expect("there is always a newest tick");
            kept(&reader, n).await
        };
        let mut writers = Vec::new();
        for _ in 0..5 {
            let client = house.connect().await;
            writers.push(Writer {
                client,
                open: false,
            });
        }

        let mut ticks = vec![keep(0).await];
        let mut claimed = Vec::new();
        for _ in 0..250 {
            if rng.u32(..5) > 0 {
                let writer = rng.usize(..writers.len());
                writers[writer].step(&mut rng).await;
                continue;
            }
            let last = ticks.last().expect("it begins with one");
            let beyond: bool = sql::one(
                &reader,
                "select outlast._beyond(t) from pg_temp.kept order by n desc limit 1",
                &[],
            )
            .await;
            let rows = log(&reader).await;
            let last_id: i64 = sql::one(
                &reader,
                "select coalesce(pg_sequence_last_value('outlast._event_id'), 0)",
                &[],
            )
            .await;
            let ended = rows.iter().filter(|(id, _)| *id <= last.hi);
            let must = is_beyond(last, last_id, ended.map(|(_, xid)| *xid));
            assert!(
                beyond || !must,
                "seed {seed}: nothing is seen beyond {last:?}"
            );

            // A window may be several batches. And there may be several windows: whoever runs in another database of this
            // server and ends is news.
            let before = ticks.len();
            loop {
                let claim = Claim::of(consumer).n(1000).next(&reader).await;
                let claim = claim.expect("a claim is answered");
                let last = ticks.last().expect("it begins with one");
                let next = keep(i32::try_from(ticks.len()).expect("a few")).await;
                if next == *last {
                    let forget =
                        "delete from pg_temp.kept where n = (select max(n) from pg_temp.kept)";
                    sql::run(&reader, forget).await;
                } else {
                    let (snap, hi, h) = (next.snap.clone(), next.hi, next.h);
                    assert_eq!(Tick::after(last, snap, hi, h), next, "seed {seed}");
                    ticks.push(next);
                    claimed.push(BTreeSet::new());
                }
                if claim.is_empty() {
                    break;
                }
                let events: &mut BTreeSet<i64> = claimed.last_mut().expect("a window");
                for event in claim {
                    assert!(events.insert(event.log_id), "seed {seed}: twice {event:?}");
                }
            }
            assert!(
                !beyond || ticks.len() > before,
                "seed {seed}: beyond {:?}",
                ticks.last()
            );
        }

        let rows = log(&reader).await;
        assert!(
            ticks.len() > 20 && rows.len() > 40,
            "seed {seed}: too little has happened"
        );
        for (nth, two) in ticks.windows(2).enumerate() {
            assert_eq!(
                claimed[nth],
                between(&rows, &two[0], &two[1]),
                "seed {seed}: {two:?}"
            );
        }
        let stragglers = |two: &[Tick]| {
            between(&rows, &two[0], &two[1])
                .iter()
                .any(|id| *id <= two[0].hi)
        };
        assert!(
            ticks.windows(2).any(stragglers),
            "seed {seed}: nobody was late"
        );
        // Any two ticks, not only neighbours.
        for _ in 0..40 {
            let first = rng.usize(..ticks.len() - 1);
            let last = rng.usize(first + 1..ticks.len());
            let sql = "select pg_temp.between($1, $2, $3)";
            let [a, b] = [first, last].map(|n| i32::try_from(n).expect("a few"));
            let found = reader
                .query(sql, &[&a, &b, &consumer])
                .await
                .expect("a window");
            let found: BTreeSet<i64> = found.iter().map(|row| row.get(0)).collect();
            let expected = between(&rows, &ticks[first], &ticks[last]);
            assert_eq!(found, expected, "seed {seed}: ({first}, {last}]");
        }
    }
}
