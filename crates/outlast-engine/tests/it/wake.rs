//! The setting `wake = notify` in a running worker: woken at once, idle otherwise, and never dependent on it.

use std::time::Duration;

use outlast_core::Failure;
use outlast_engine::{Attempt, Consumer, Settings};
use outlast_postgres::{
    connect::{self, Target},
    schema::Schema,
    setting::{self, Values},
};
use outlast_testkit::{
    pooler::{Pooler, is_installed},
    proxy::{Fault, Proxy, When},
    wait_for,
};
use tokio::{sync::mpsc, time::Instant};

use crate::given::{Given, Ping, Running, SOON, Told, given, next};

/// Somebody sleeps under the lock.
const ASLEEP: &str = "select count(*) from pg_locks where locktype = 'advisory' and mode = 'ExclusiveLock' and granted
    and database = (select oid from pg_database where datname = current_database())
    and objsubid = 1 and (classid::bigint << 32 | objid::bigint) = outlast._wake_lock()";
/// What the listener does to prove itself.
const ECHO: &str = "notify outlast_wake, 'echo'";
/// What it does first on a new connection.
const LISTEN: &str = "listen outlast_wake";

async fn tell(told: Told, ping: Attempt<Ping>) -> Result<(), Failure> {
    let _ = told.send(ping.n);
    Ok(())
}

async fn given_notify() -> Given {
    let given = given().await;
    let mut client = given.database.connect().await;
    let mut wanted = Values::default();
    wanted.set("wake", "notify").unwrap();
    let shown = setting::plan(&client, Schema::DEFAULT, &wanted)
        .await
        .unwrap();
    setting::apply(&mut client, Schema::DEFAULT, &wanted, &shown)
        .await
        .unwrap();
    given
}

/// A worker that tells the numbers that it handles. Its sweep comes every five seconds: what is handled sooner was woken.
fn worker(given: &Given, url: &str) -> (Running, mpsc::UnboundedReceiver<i64>) {
    let (told, hears) = mpsc::unbounded_channel();
    let settings = Settings::default();
    let running = given.start_at(url, told, Consumer::new("mailer").on(tell), settings);
    (running, hears)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sleeper_is_woken_by_each_commit_and_sleeps_again() {
    let given = given_notify().await;
    let (running, mut hears) = worker(&given, given.database.url());
    running.registered(&given).await;
    for n in 0..20 {
        given.until(ASLEEP, 1).await;
        let committed = Instant::now();
        given.emit(n..n + 1).await;
        assert_eq!(next(&mut hears).await, n);
        let took = committed.elapsed();
        assert!(
            took < Duration::from_secs(2),
            "{n} waited {took:?} for the sweep"
        );
    }
    running.stop().await.unwrap();
    given.until(ASLEEP, 0).await;
    assert_eq!(
        given
            .count("select count(*) from outlast.lease where room = 'poller'")
            .await,
        0,
        "who stops lets another one be elected at once"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn all_processes_are_woken_and_another_one_takes_the_watch_of_one_that_froze() {
    let given = given_notify().await;
    let proxy = Proxy::before(given.database.url()).await;
    let (first, mut first_hears) = worker(&given, proxy.url());
    given.until(ASLEEP, 1).await;
    // The second one has heard itself: it would hear others.
    let way = Proxy::before(given.database.url()).await;
    let proven = way.arm(When::Contains(ECHO.into()), Fault::HoldReply);
    proven.release();
    let (second, mut second_hears) = worker(&given, way.url());
    proven.answered().await;
    let elected = async || {
        let sql = "select process::text from outlast.lease where room = 'poller'";
        let row = given.sql.query_opt(sql, &[]).await.unwrap();
        row.map(|row| row.get::<_, String>(0))
    };
    let was = elected().await.expect("the first one is elected");

    // As SIGSTOP looks from the database: its sessions and its lock stay. What the second one has said has woken it: it has to
    // be asleep again.
    loop {
        given.until(ASLEEP, 1).await;
        proxy.freeze();
        if given.count(ASLEEP).await == 1 {
            break;
        }
        proxy.thaw();
    }
    let committed = Instant::now();
    given.emit(0..1).await;
    assert_eq!(next(&mut second_hears).await, 0);
    let took = committed.elapsed();
    assert!(took < Duration::from_secs(2), "waited {took:?}");
    wait_for("another one is elected", SOON, async || {
        (elected().await.is_some_and(|now| now != was)).then_some(())
    })
    .await;
    assert!(committed.elapsed() < Duration::from_secs(9));
    given.emit(1..2).await;
    assert_eq!(next(&mut second_hears).await, 1);

    // Awake again, it gives the lock to the one who was elected meanwhile.
    proxy.thaw();
    given.until(ASLEEP, 1).await;
    second.stop().await.unwrap();
    given.emit(2..3).await;
    assert_eq!(next(&mut first_hears).await, 2);
    first.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_fell_silent_is_replaced_within_seven_seconds_and_everything_arrives_meanwhile()
 {
    // The socket stays open, without a sound: nothing at all comes through, or only no notification.
    for how in [Fault::Silence, Fault::Deafen] {
        let given = given_notify().await;
        let proxy = Proxy::before(given.database.url()).await;
        let (running, mut hears) = worker(&given, proxy.url());
        running.registered(&given).await;
        // Just proven, so it is as long as can be until it has to prove itself again.
        let silence = proxy.arm(When::Contains(ECHO.into()), how);
        silence.answered().await;
        let fell_silent = Instant::now();
        let again = proxy.arm(When::Contains(LISTEN.into()), Fault::HoldReply);
        again.release();
        given.emit(0..1).await;
        assert_eq!(next(&mut hears).await, 0);
        let took = fell_silent.elapsed();
        assert!(
            took < Duration::from_secs(6),
            "{how:?}: it waited {took:?}, longer than a sweep"
        );
        again.answered().await;
        let took = fell_silent.elapsed();
        assert!(
            took < Duration::from_secs(7),
            "{how:?}: a new connection after {took:?}"
        );
        given.until(ASLEEP, 1).await;
        let committed = Instant::now();
        given.emit(1..2).await;
        assert_eq!(next(&mut hears).await, 1);
        let took = committed.elapsed();
        assert!(took < Duration::from_secs(2), "{how:?}: it waited {took:?}");
        running.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_do_not_notify_while_a_worker_is_busy_with_what_they_write() {
    let given = given_notify().await;
    let (running, mut hears) = worker(&given, given.database.url());
    given.until(ASLEEP, 1).await;
    let target = Target::parse(given.database.url()).unwrap();
    let (ear, mut heard) = connect::listen(&target).await.unwrap();
    ear.batch_execute("listen outlast_wake").await.unwrap();

    const WRITERS: usize = 8;
    const EACH: usize = 100;
    let mut writers = tokio::task::JoinSet::new();
    let mut pids = Vec::new();
    for _ in 0..WRITERS {
        let client = given.database.connect().await;
        let pid = client
            .query_one("select pg_backend_pid()", &[])
            .await
            .unwrap();
        pids.push(pid.get::<_, i32>(0));
        writers.spawn(async move {
            for _ in 0..EACH {
                let emit = "select outlast.emit('ping', '{\"n\":1}'::text)";
                client.batch_execute(emit).await.unwrap();
            }
        });
    }
    let mut by_writers = 0;
    let mut done = false;
    while !done {
        tokio::select! {
            writer = writers.join_next() => match writer {
                Some(ended) => ended.unwrap(),
                None => {
                    ear.batch_execute("notify outlast_wake, 'end'").await.unwrap();
                    done = true;
                }
            },
            told = heard.recv() => by_writers += usize::from(pids.contains(&told.expect("it listens").process_id())),
        }
    }
    loop {
        let told = heard.recv().await.expect("it listens");
        if told.payload() == "end" {
            break;
        }
        by_writers += usize::from(pids.contains(&told.process_id()));
    }
    for _ in 0..WRITERS * EACH {
        next(&mut hears).await;
    }
    assert!(by_writers > 0, "the first one woke the sleeper");
    assert!(
        by_writers < WRITERS * EACH / 4,
        "{by_writers} of {} commits notified",
        WRITERS * EACH
    );
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sleeps_asks_almost_nothing() {
    let given = given_notify().await;
    let (running, _hears) = worker(&given, given.database.url());
    running.registered(&given).await;
    given.until(ASLEEP, 1).await;
    let commits = "select xact_commit from pg_stat_database where datname = current_database()";
    let before = given.count(commits).await;
    // Nothing is waited for but time itself. The server counts late: what led to this sleep is in it too.
    let measured = Duration::from_secs(5);
    tokio::time::sleep(measured).await;
    let asked = given.count(commits).await - before;
    assert!(
        asked < 100,
        "{asked} statements in {measured:?}; who looks asks 500 times a second now"
    );
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_transaction_pooler_a_worker_polls_and_leaves_no_lock_behind() {
    if !is_installed() {
        return;
    }
    let given = given_notify().await;
    let pooler = Pooler::before(given.database.direct_url()).await.unwrap();
    let (running, mut hears) = worker(&given, &pooler.url(given.database.name()));
    running.registered(&given).await;
    for n in 0..5 {
        let committed = Instant::now();
        given.emit(n..n + 1).await;
        assert_eq!(next(&mut hears).await, n);
        let took = committed.elapsed();
        // The first one may fall into the two seconds in which it finds out that it hears nothing.
        let most = Duration::from_secs(if n == 0 { 6 } else { 2 });
        assert!(took < most, "{n} waited {took:?}");
        assert_eq!(
            given.count(ASLEEP).await,
            0,
            "whose session that is nobody knows"
        );
    }
    running.stop().await.unwrap();
}
