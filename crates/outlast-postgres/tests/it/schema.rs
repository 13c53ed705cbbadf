//! The schema under another name, and two of them in one database.

use outlast_postgres::{
    Error,
    migrate::{self, Migrations},
    schema::Schema,
};
use outlast_testkit::pg::{self, Database};
use tokio_postgres::Client;

use crate::sql::{one, run};

fn of(name: &str) -> Migrations {
    migrate::of(Schema::named(name).expect("a good name"))
}

async fn installed(database: &Database, names: &[&str]) -> Client {
    let mut client = database.connect().await;
    for name in names {
        let done = of(name).run(&mut client, |_| ()).await.expect("migrates");
        assert_eq!(done.from, 0, "{name}");
    }
    client
}

/// Everything in the schema that has a text, with its kind and name.
const TEXTS: &str = "
  with s as (select oid from pg_namespace where nspname = $1)
  select 'function ' || p.proname as what,
         concat_ws(' ', p.prosrc, p.proconfig, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid)) as txt
  from pg_proc p join s on s.oid = p.pronamespace
  union all
  select 'view ' || c.relname, pg_get_viewdef(c.oid) from pg_class c join s on s.oid = c.relnamespace where c.relkind = 'v'
  union all
  select 'constraint ' || k.conname, pg_get_constraintdef(k.oid) from pg_constraint k join s on s.oid = k.connamespace
  union all
  select 'index ' || c.relname, pg_get_indexdef(c.oid) from pg_class c join s on s.oid = c.relnamespace where c.relkind in ('i', 'I')
  union all
  select 'default of ' || c.relname, pg_get_expr(d.adbin, d.adrelid)
  from pg_attrdef d join pg_class c on c.oid = d.adrelid join s on s.oid = c.relnamespace
  union all
  select 'partition ' || c.relname, pg_get_expr(c.relpartbound, c.oid) from pg_class c join s on s.oid = c.relnamespace
  where c.relispartition";

#[tokio::test]
async fn under_another_name_nothing_of_the_old_one_is_left() {
    let database = pg::empty().await;
    let client = installed(&database, &["billing"]).await;
    let there: bool = one(
        &client,
        "select exists (select from pg_namespace where nspname = 'outlast')",
        &[],
    )
    .await;
    assert!(!there, "the placeholder was made too");
    // The product may be named in a sentence, and a setting is of the session. What names an object, a role or the channel
    // must be the schema's own.
    let ask = async |pattern: &str| {
        let sql = format!(
            r"select what, txt from (
                select what, regexp_replace(txt, '(current_setting|set_config)\(''outlast\.', '', 'g') as txt from ({TEXTS}) t) t
              where txt ~ $2"
        );
        let rows = client
            .query(&sql, &[&"billing", &pattern])
            .await
            .expect("asks");
        let texts = rows.iter().map(|row| (row.get(0), row.get(1)));
        texts.collect::<Vec<(String, String)>>()
    };
    let stale = ask(r"\moutlast(\.(?!toml)|_)|'outlast'").await;
    assert!(stale.is_empty(), "{stale:#?}");
    let own = ask(r"\mbilling\.").await;
    assert!(own.len() > 50, "only {} texts name the schema", own.len());

    let plan = of("billing").plan(&client).await.expect("plans");
    assert!(plan.is_current(), "{plan:?}");
    of("billing")
        .check(&client)
        .await
        .expect("it fits this program");
    let default = migrate::check(&client).await;
    assert!(
        matches!(default, Err(Error::NotMigrated { found: 0, .. })),
        "{default:?}"
    );
}

#[tokio::test]
async fn it_works_under_another_name_as_it_does_under_ours() {
    let database = pg::empty().await;
    let client = installed(&database, &["app_2"]).await;
    run(
        &client,
        "select app_2.register('mailer', array['a'], 'earliest')",
    )
    .await;
    run(&client, "select app_2.emit('a', '{}', key => 'k')").await;
    let claimed = client
        .query_one("select token, id from app_2.claim('event', 'mailer')", &[])
        .await
        .expect("one is due");
    let (token, id): (uuid::Uuid, uuid::Uuid) = (claimed.get(0), claimed.get(1));
    client
        .execute("select app_2.complete($1, $2)", &[&token, &id])
        .await
        .expect("completes");
    let done: i64 = one(
        &client,
        "select count(*) from app_2.processed where id = $1",
        &[&id],
    )
    .await;
    assert_eq!(done, 1);
    let broken: i64 = one(
        &client,
        "select count(*) from app_2._verify() where violations > 0",
        &[],
    )
    .await;
    assert_eq!(broken, 0);
}

#[tokio::test]
async fn the_printed_file_of_another_schema_names_only_that_one() {
    let (ours, theirs) = (migrate::sql(), of("billing").sql());
    assert!(ours.contains("create schema outlast;"));
    assert!(theirs.contains("create schema billing;"));
    assert!(!theirs.contains("outlast._event") && theirs.contains("billing._event"));
    let database = pg::empty().await;
    let client = database.connect().await;
    run(&client, &theirs).await;
    let plan = of("billing").plan(&client).await.expect("plans");
    assert!(plan.is_current(), "{plan:?}");
}

#[tokio::test]
async fn a_reserved_word_is_refused_before_anything_is_written() {
    let database = pg::empty().await;
    let mut client = database.connect().await;
    for name in ["order", "user", "table", "left"] {
        let refused = of(name).run(&mut client, |_| ()).await;
        assert!(
            matches!(&refused, Err(Error::Config(why)) if why.contains(name)),
            "{refused:?}"
        );
        let there: bool = one(
            &client,
            "select exists (select from pg_namespace where nspname = $1)",
            &[&name],
        )
        .await;
        assert!(!there, "{name}");
    }
}

#[tokio::test]
async fn two_schemas_of_one_database_never_wait_for_each_other() {
    // Goal: no advisory lock of one is one of the other. Method: one transaction holds, in schema a, the locks of a
    // registration, of all lanes of a consumer, and of the poller's election; the same work in b gives up at once if it
    // has to wait.
    let database = pg::empty().await;
    let holder = installed(&database, &["a", "b"]).await;
    let other = database.connect().await;
    for schema in ["a", "b"] {
        let sql = format!(
            "select {schema}._register('first', array['x']); select {schema}._register('lanes', array['x'], ordered => true);
             select {schema}.emit('x', '{{}}')"
        );
        for statement in sql.split(';') {
            run(&holder, statement).await;
        }
    }
    let hold = "begin; select a._elect(gen_random_uuid(), gen_random_uuid(), 5000);
                select pg_advisory_xact_lock(a._lane_lock(c.id, l)) from a._consumer c, generate_series(0, c.lanes - 1) l;
                select pg_advisory_xact_lock(hashtextextended('consumer second', a._lock_room(7308)))";
    run(&holder, hold).await;
    run(&other, "set lock_timeout = '200ms'").await;

    let elected = |schema: &str| {
        format!("select {schema}._elect(gen_random_uuid(), gen_random_uuid(), 5000) is not null")
    };
    assert!(
        one::<bool>(&other, &elected("b"), &[]).await,
        "the poller of b is another one"
    );
    run(&other, "select b._register('second', array['x'])").await;
    for consumer in ["first", "lanes"] {
        let claim = format!(
            "select count(*) from b._consumer c cross join lateral b._claim(c.id, 10, 1000000, 1000, 5000, 16) where c.name = '{consumer}'"
        );
        assert_eq!(one::<i64>(&other, &claim, &[]).await, 1, "{consumer}");
    }
    // The same in a does wait: what is held are the right locks.
    assert!(!one::<bool>(&other, &elected("a"), &[]).await);
    let registered = other
        .batch_execute("select a._register('second', array['x'])")
        .await;
    let state = crate::sql::state(registered);
    assert_eq!(state, "55P03");
    let ordered = "select count(*) from a._consumer c cross join lateral a._claim(c.id, 10, 1000000, 1000, 5000, 16) where c.name = 'lanes'";
    let turn = crate::sql::state(other.query(ordered, &[]).await);
    assert_eq!(turn, "55P03", "claimers of an ordered consumer take turns");
}

#[test]
fn settings_are_named_so_that_they_are_not_taken_for_objects() {
    // A setting `outlast.x` is of the session and is called so in every schema; the rewriting knows it by the function or
    // word before it.
    let texts = migrate::FUNCTIONS.iter().map(|(name, text)| (*name, *text));
    let migrations = migrate::MIGRATIONS.iter().map(|m| (m.name, m.sql));
    for (name, text) in texts.chain(migrations) {
        for (at, _) in text.match_indices("'outlast.") {
            let object = &text[at + 1
                ..text[at + 1..]
                    .find('\'')
                    .map_or(text.len(), |end| at + 1 + end)];
            let setting =
                text[..at].ends_with("current_setting(") || text[..at].ends_with("set_config(");
            assert!(
                setting || object.starts_with("outlast._") || object.starts_with("outlast.%"),
                "{name}: is {object} an object or a setting?"
            );
        }
    }
}

#[test]
fn every_advisory_lock_is_numbered_with_the_schema() {
    // The numbers are the database's: without the schema in them two installations would wait for each other.
    let own = [
        "_lease_lock(",
        "_lane_lock(",
        "_wake_lock(",
        "_lock_room(",
        "_job_lock(",
        "_identity_lock(",
        "_account_lock(",
        "_exclusive_lock(",
    ];
    let mut locks = 0;
    for (name, text) in migrate::FUNCTIONS {
        let code = text
            .lines()
            .map(|line| line.split("--").next().unwrap_or_default());
        for line in code.filter(|line| line.contains("advisory_")) {
            locks += 1;
            assert!(
                own.iter().any(|number| line.contains(number)),
                "{name}: {line}"
            );
        }
    }
    assert!(locks > 5, "only {locks} advisory locks were found");
}
