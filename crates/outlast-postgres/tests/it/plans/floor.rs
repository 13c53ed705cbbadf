//! Leases that are gone stay in their index while somebody holds an old snapshot. Nobody walks over them twice.

use uuid::Uuid;

use super::{Attic, batch};
use crate::{house::House, sql};

const CLAIM: &str = "select * from outlast._claim($1, 100, 4194304, 10000, 60000, 1)";
const RECLAIM: &str = "select * from outlast._reclaim($1, 60000, 1)";
const STANDS: &str = "select * from outlast._stands($1)";

/// As many batches as that come and go above all that there are: what is left of them are dead leases, and the place.
const GONE: i64 = 3000;

async fn come_and_go(attic: &Attic) {
    let sql = format!(
        "insert into outlast._lease (token, room, consumer, lane, seq, expires_at)
         select gen_random_uuid(), 'batch', b.consumer, b.lane, b.seq + n, outlast.clock() + interval '1 minute'
         from (select * from outlast._batch order by seq desc limit 1) b, generate_series(1, {GONE}) n;
         create temp table place on commit drop as select * from outlast._batch order by seq desc limit 1;
         delete from outlast._lease l using place b where l.consumer = b.consumer and l.lane = b.lane and l.seq > b.seq;
         update place set seq = seq + {GONE}, lo = hi, events = 0;
         insert into outlast._batch select * from place"
    );
    sql::run(&attic.client, &format!("begin; {sql}; commit")).await;
}

async fn lapse(attic: &Attic) {
    let sql = "update outlast._lease set expires_at = outlast.clock() - interval '1 second'";
    sql::run(&attic.client, sql).await;
}

/// A batch that works on while thousands come and go, until its worker dies: it is taken over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_leases_are_not_walked_again_and_an_old_batch_among_them_is_found() {
    let attic = Attic::empty(House::new().await).await;
    let holder = attic.house.connect().await;
    sql::run(&holder, "begin isolation level repeatable read; select 1").await;

    attic.emit("a", 4).await;
    let (rows, _) = attic.measure(CLAIM, &[&attic.consumer]).await;
    let (_, slow) = batch(&rows);
    for _ in 0..2 {
        come_and_go(&attic).await;
        // The first look after it walks over them and remembers up to where.
        attic.measure(RECLAIM, &[&attic.consumer]).await;
    }
    lapse(&attic).await;
    let (rows, _) = attic.measure(RECLAIM, &[&attic.consumer]).await;
    let (token, again) = batch(&rows);
    assert_eq!(again, slow);

    sql::seal(&attic.client, token, &again)
        .await
        .expect("seals");
    let tokens: &[Uuid] = &[token];
    sql::finish(&attic.client, tokens).await.expect("finishes");
    attic.measure(RECLAIM, &[&attic.consumer]).await;
    for (what, sql) in [
        ("a reclaim of nothing", RECLAIM),
        ("a look for places", STANDS),
    ] {
        let (rows, read) = attic.measure(sql, &[&attic.consumer]).await;
        println!("{what} has read {read} rows");
        assert!(
            rows.len() <= 1 && read <= 100,
            "{what} has read {read} rows"
        );
    }
}
