//! `outlast adopt check`, and the page `docs/adopt.md`: its statements are run as they stand there.

use std::{path::PathBuf, process::Command};

use outlast_testkit::pg::Database;
use tokio_postgres::Client;

use crate::{Ran, clean, database, execute, number, outlast, run};

/// The blocks of SQL of the page, in their order.
fn page() -> Vec<String> {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/adopt.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let blocks = page.split("```sql\n").skip(1);
    blocks
        .map(|block| block.split("```").next().expect("an end").to_owned())
        .collect()
}

/// The page's table with so many rows: every fourth is in the old runner's hands.
async fn with_rows(n: i64) -> (Database, Client) {
    let (database, client) = database().await;
    execute(&client, &page()[0]).await;
    let rows = format!(
        "insert into old_job (kind, args, account, run_at, priority, locked_at)
         select 'send_mail', jsonb_build_object('n', n), 'acme', timestamptz '2031-01-01' + n * interval '1 minute', n % 3 - 1,
                case when n % 4 = 0 then now() end from generate_series(1, {n}) n"
    );
    execute(&client, &rows).await;
    (database, client)
}

/// `moved`, `there_already`, `conflicts`, `expired`.
async fn moves(client: &Client, sql: &str) -> [i64; 4] {
    let row = client.query_one(sql, &[]).await;
    let row = row.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    [0, 1, 2, 3].map(|n| row.get(n))
}

/// What a check says about this.
fn found(ran: &Ran, about: &str) -> (String, String) {
    let all = ran.json();
    // What is said of rows comes last.
    let one = all.iter().rfind(|one| one["about"] == about);
    let one = one.unwrap_or_else(|| panic!("{about} is not in {ran:#?}"));
    let text = |name: &str| one[name].as_str().expect("a text").to_owned();
    (text("severity"), text("found"))
}

#[tokio::test]
async fn the_statement_of_the_page_moves_each_row_once_with_its_time_priority_and_tenant() {
    let (database, client) = with_rows(40).await;
    let statement = &page()[1];
    assert_eq!(moves(&client, statement).await, [30, 0, 0, 0]);
    assert_eq!(moves(&client, statement).await, [0; 4]);
    // What the old runner has in hand is still its own.
    let left = "select count(*) from old_job where locked_at is not null";
    assert_eq!(number(&client, left).await, 10);
    let kept = "select count(*) from outlast.job j, generate_series(1, 40) n
        where j.key = 'old_job/' || n and j.name = 'send_mail' and j.tenant = 'acme' and j.priority = n % 3 - 1
          and j.due_at = timestamptz '2031-01-01' + n * interval '1 minute' and convert_from(j.payload, 'UTF8')::jsonb = jsonb_build_object('n', n)";
    assert_eq!(number(&client, kept).await, 30);
    outlast(database.url(), &["verify"]).await.fine();
}

#[tokio::test]
async fn the_statement_that_is_printed_is_that_of_the_page() {
    let (database, _client) = with_rows(3).await;
    let args = ["adopt", "check", "old_job", "--tenant", "account", "--json"];
    let ran = outlast(database.url(), &args).await.fine();
    assert_eq!(found(&ran, "statement").1 + ";\n", page()[1]);
}

#[tokio::test]
async fn a_row_whose_key_is_taken_stays_in_the_table_also_when_two_move_at_once() {
    let (database, client) = with_rows(3).await;
    let taken = "select outlast.enqueue('send_mail', '{\"n\": 9}', key => 'old_job/1', tenant => 'acme'),
                        outlast.enqueue('send_mail', '{\"n\": 2}', key => 'old_job/2', tenant => 'acme')";
    execute(&client, taken).await;
    let args = ["adopt", "check", "old_job", "--tenant", "account", "--json"];
    let ran = outlast(database.url(), &args).await.with(1);
    let (severity, said) = found(&ran, "there already");
    assert_eq!(severity, "bad");
    assert!(said.starts_with("2 have a job"), "{said}");

    // Somebody moves at the same time: his rows are his.
    let statement = &page()[1];
    execute(
        &client,
        "insert into old_job (kind, args, account) values ('send_mail', '{}', 'acme')",
    )
    .await;
    let mut other = database.connect().await;
    let theirs = other.transaction().await.expect("it begins");
    let locked = theirs
        .execute("select from old_job where id = 4 for update", &[])
        .await;
    assert_eq!(locked.expect("it is there"), 1);
    assert_eq!(moves(&client, statement).await, [1, 1, 1, 0]);
    theirs.rollback().await.expect("it ends");
    assert_eq!(moves(&client, statement).await, [1, 1, 1, 0]);
    assert_eq!(
        number(&client, "select count(*) from old_job where id in (1, 2)").await,
        2
    );
    assert_eq!(number(&client, "select count(*) from old_job").await, 2);
}

#[tokio::test]
async fn what_was_moved_goes_back_and_does_not_get_lost_when_it_is_moved_again() {
    let (_database, client) = with_rows(8).await;
    let blocks = page();
    assert_eq!(moves(&client, &blocks[1]).await, [6, 0, 0, 0]);
    let before = "select count(*) from old_job where locked_at is null and account = 'acme' and args = jsonb_build_object('n', id)
                    and run_at = timestamptz '2031-01-01' + id * interval '1 minute' and priority = id % 3 - 1";
    assert_eq!(number(&client, before).await, 0);
    execute(&client, &blocks[2]).await;
    assert_eq!(number(&client, before).await, 6);
    // Under the old keys nothing moves, and nothing is deleted.
    assert_eq!(moves(&client, &blocks[1]).await, [0, 6, 0, 0]);
    assert_eq!(number(&client, before).await, 6);
    let again = blocks[1].replace("'old_job/'", "'old_job/2/'");
    assert_eq!(moves(&client, &again).await, [6, 0, 0, 0]);
}

#[tokio::test]
async fn a_check_finds_what_would_stop_the_move_and_says_what_mends_it() {
    let (database, client) = database().await;
    execute(
        &client,
        "create table mess (id int primary key, kind text, payload text, key text, run_at timestamp, priority int, locked_at timestamptz);
         insert into mess values
           (1, 'good', '{}', 'a', null, 0, null), (2, 'good', '{}', 'a', null, 0, null),
           (3, 'good', '1', 'b', null, 0, null), (4, 'good', '2', 'b', null, 0, null),
           (5, 'Mail::Send', '{}', 'c', null, 0, null), (6, 'good', 'no json', 'd', null, 0, null),
           (7, 'good', '\"' || repeat('x', 300000) || '\"', 'e', null, 0, null), (8, 'good', null, 'f', null, 0, null),
           (9, 'good', '{}', null, null, 0, null), (10, 'good', '{}', 'g', null, 500, null),
           (11, 'good', '{}', 'h', '2999-01-01', 0, null), (12, 'good', 'secret no json', 'i', null, 0, now())",
    )
    .await;
    let url = database.url();
    let args = ["adopt", "check", "mess", "--key", "key", "--json"];
    // A time without a zone is no time; nothing else is read before it has one.
    let ran = outlast(url, &args).await.with(1);
    let (severity, said) = found(&ran, "at");
    assert_eq!(
        (&*severity, &*said),
        (
            "bad",
            "run_at (timestamp without time zone), guessed by its name"
        )
    );

    let zone = ["--at", "run_at at time zone 'UTC'", "--served", "good"];
    let ran = outlast(url, &[&args[..], &zone].concat()).await.with(1);
    assert!(
        !ran.out.contains("no json"),
        "a payload is printed: {ran:#?}"
    );
    for (about, severity, said) in [
        ("waiting", "good", "11"),
        (
            "running",
            "warning",
            "1 in the old runner's hands, such as i",
        ),
        ("not JSON", "bad", "1, such as d"),
        ("too large", "bad", "1, such as e"),
        ("no payload", "bad", "1, such as f"),
        ("without a key", "bad", "1"),
        ("bad priority", "bad", "1, such as g"),
        ("bad time", "bad", "1, such as h"),
        ("the same key and content", "warning", "1 more, such as a"),
        ("the same key, other content", "bad", "1 keys, such as b"),
        ("names", "bad", "no job can be called Mail::Send"),
        ("looked at", "good", "all 12"),
        ("time", "unverified", "nobody has measured it"),
    ] {
        assert_eq!(
            found(&ran, about),
            (severity.to_owned(), said.to_owned()),
            "{about}"
        );
    }
    // It is enqueue that would refuse them, and nothing else.
    let moved = outlast(url, &[&args[..], &zone, &["--rehearse"]].concat())
        .await
        .with(1);
    assert_eq!(found(&moved, "rehearsal").0, "bad");
    assert_eq!(number(&client, "select count(*) from mess").await, 12);

    execute(&client, "delete from mess where id > 1").await;
    let ran = outlast(url, &[&args[..], &zone, &["--rehearse"]].concat())
        .await
        .fine();
    assert!(
        found(&ran, "time").1.ends_with("and were rolled back"),
        "{ran:#?}"
    );
    assert_eq!(number(&client, "select count(*) from outlast.job").await, 0);
    // No worker has a handler: it would wait for ever.
    let ran = outlast(
        url,
        &[&args[..], &zone[..2], &["--served", "other"]].concat(),
    )
    .await
    .with(1);
    assert_eq!(found(&ran, "names").1, "no worker has a handler for good");
    // What was not looked at may hold anything.
    execute(
        &client,
        "insert into mess select n, 'good', '{}', n, null, 0, null from generate_series(2, 9) n",
    )
    .await;
    let ran = outlast(url, &[&args[..], &zone, &["--scan", "3"]].concat())
        .await
        .fine();
    assert_eq!(found(&ran, "looked at").0, "unverified");
}

#[tokio::test]
async fn a_check_can_change_nothing_whatever_its_expressions_call() {
    let (database, client) = with_rows(2).await;
    execute(
        &client,
        "create function eats() returns text language plpgsql as $$ begin delete from old_job; return 'eaten'; end $$",
    )
    .await;
    for name in ["eats()", "kind) from old_job o; delete from old_job; --"] {
        let ran = outlast(
            database.url(),
            &["adopt", "check", "old_job", "--name", name, "--json"],
        )
        .await;
        assert_eq!(found(&ran.with(1), "name").0, "bad", "{name}");
    }
    assert_eq!(number(&client, "select count(*) from old_job").await, 2);
}

#[tokio::test]
async fn a_table_that_cannot_be_moved_is_refused_with_what_helps() {
    let (database, client) = database().await;
    let url = database.url();
    outlast(url, &["adopt", "check", "nowhere"])
        .await
        .with(2)
        .says("there is no such table");
    outlast(url, &["adopt", "check"]).await.with(2);
    execute(
        &client,
        "create table no_key (kind text, payload jsonb); create view seen as select * from no_key;
         create table bytes (id int primary key, body bytea)",
    )
    .await;
    let ran = outlast(url, &["adopt", "check", "no_key", "--json"])
        .await
        .with(1);
    assert_eq!(found(&ran, "primary key").0, "bad");
    assert!(!ran.out.contains("\"statement\""), "{ran:#?}");
    outlast(url, &["adopt", "check", "seen"])
        .await
        .with(1)
        .says("is no table");
    let bytes = ["adopt", "check", "bytes", "--name", "'import'"];
    outlast(url, &bytes)
        .await
        .with(1)
        .says("--payload \"convert_from(body, 'UTF8')\"");
}

/// As the runners make them, as far as a backlog needs it.
const RUNNERS: [(&str, &str); 5] = [
    (
        "river",
        "create type river_job_state as enum ('available', 'cancelled', 'completed', 'discarded', 'pending', 'retryable', 'running', 'scheduled');
         create table river_job (id bigserial primary key, state river_job_state not null default 'available', args jsonb not null, kind text not null,
           priority smallint not null default 1, scheduled_at timestamptz not null default now(), finalized_at timestamptz);
         insert into river_job (state, args, kind) values ('available', '{}', 'mail'), ('running', '{}', 'mail'), ('completed', '{}', 'mail')",
    ),
    (
        "oban",
        "create type oban_job_state as enum ('available', 'scheduled', 'executing', 'retryable', 'completed', 'discarded', 'cancelled');
         create table oban_jobs (id bigserial primary key, state oban_job_state not null default 'available', queue text not null default 'default',
           worker text not null, args jsonb not null default '{}', priority int not null default 0,
           scheduled_at timestamp not null default timezone('UTC', now()));
         insert into oban_jobs (state, worker) values ('retryable', 'MyApp.Mail'), ('executing', 'MyApp.Mail'), ('discarded', 'MyApp.Mail')",
    ),
    (
        "graphile-worker",
        "create schema graphile_worker;
         create table graphile_worker._private_tasks (id int primary key, identifier text not null unique);
         create table graphile_worker._private_jobs (id bigint primary key, task_id int not null, payload json not null default '{}', priority smallint not null default 0,
           run_at timestamptz not null default now(), attempts smallint not null default 0, max_attempts smallint not null default 25, locked_at timestamptz);
         insert into graphile_worker._private_tasks values (1, 'mail');
         insert into graphile_worker._private_jobs (id, task_id, attempts, locked_at) values (1, 1, 0, null), (2, 1, 0, now()), (3, 1, 25, null)",
    ),
    (
        "pg-boss",
        "create schema pgboss;
         create type pgboss.job_state as enum ('created', 'retry', 'active', 'completed', 'cancelled', 'failed');
         create table pgboss.job (id uuid not null default gen_random_uuid(), name text not null, priority int not null default 0, data jsonb,
           state pgboss.job_state not null default 'created', start_after timestamptz not null default now(), primary key (name, id));
         insert into pgboss.job (name, state) values ('mail', 'created'), ('mail', 'active'), ('mail', 'failed')",
    ),
    (
        "good-job",
        "create table good_jobs (id uuid primary key default gen_random_uuid(), job_class text, serialized_params jsonb, priority int,
           scheduled_at timestamp, performed_at timestamp, finished_at timestamp);
         insert into good_jobs (job_class, serialized_params, performed_at, finished_at)
         values ('Mail::Job', '{}', null, null), ('Mail::Job', '{}', now(), null), ('Mail::Job', '{}', now(), now())",
    ),
];

#[tokio::test]
async fn the_tables_of_known_runners_need_no_flags_and_their_statements_move_what_waits() {
    let (database, client) = database().await;
    for (runner, tables) in RUNNERS {
        execute(&client, tables).await;
        let ran = outlast(
            database.url(),
            &["adopt", "check", "--from", runner, "--rehearse", "--json"],
        )
        .await
        .fine();
        assert_eq!(found(&ran, "waiting").1, "1", "{runner}");
        assert!(found(&ran, "running").1.starts_with("1 "), "{runner}");
        let statement = found(&ran, "statement").1;
        assert_eq!(moves(&client, &statement).await, [1, 0, 0, 0], "{runner}");
        assert_eq!(moves(&client, &statement).await, [0; 4], "{runner}");
    }
    let moved = "select count(*) from outlast.job where state = 'waiting' and name in ('mail', 'myapp.mail', 'mail.job')";
    assert_eq!(number(&client, moved).await, 5);
}

#[tokio::test]
async fn a_binary_of_ones_own_knows_which_names_it_has_handlers_for() {
    let (database, client) = with_rows(1).await;
    let outlast = PathBuf::from(env!("CARGO_BIN_EXE_outlast"));
    let program = outlast.parent().expect("a folder").join("examples/held");
    let check = |args: &[&str]| {
        let mut command = clean(Command::new(&program));
        command.args([
            "adopt",
            "check",
            "old_job",
            "--json",
            "--database",
            database.url(),
        ]);
        command.args(args);
        run(command, b"")
    };
    let ran = check(&[]).await.with(1);
    assert_eq!(
        found(&ran, "names").1,
        "no worker has a handler for send_mail"
    );
    let ran = check(&["--name", "'held_job'"]).await.fine();
    assert_eq!(found(&ran, "names").1, "workers have handlers for it");
    execute(&client, "delete from old_job").await;
    let ran = check(&[]).await.fine();
    assert!(found(&ran, "waiting").1.starts_with("none"), "{ran:#?}");
}
