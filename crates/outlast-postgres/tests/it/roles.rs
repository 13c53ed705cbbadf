//! Roles: who may do what, for every function and table that is there now or comes later.

use std::{collections::BTreeSet, path::Path};

use outlast_postgres::{
    Error,
    connect::{self, Target},
    endpoint, migrate,
    schema::Schema,
};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::{
    house::House,
    sql::{one, run, state},
};

mod hostile;
mod install;

const DENIED: &str = "42501";

/// A connection of a new login with these roles.
async fn login(house: &House, roles: &str) -> Client {
    client(&house.login(&format!("in role {roles}")).await).await
}

async fn client(url: &str) -> Client {
    let connected = connect::connect(&Target::parse(url).expect("a URL")).await;
    connected.expect("the login is let in").0
}

/// The SQLSTATE of each refused statement; those that were not refused.
async fn all_denied(client: &Client, statements: &[&str]) {
    for sql in statements {
        let refused = client.batch_execute(sql).await;
        assert!(refused.is_err(), "not refused: {sql}");
        assert_eq!(state(refused), DENIED, "{sql}");
    }
}

/// Names that a query answers.
async fn names(client: &Client, sql: &str) -> Vec<String> {
    let rows = client
        .query(sql, &[])
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn everybody_may_do_nothing() {
    let house = House::new().await;
    let client = house.connect().await;
    let functions = "select p.oid::regprocedure::text from pg_proc p
        where p.pronamespace = 'outlast'::regnamespace
          and exists (select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a where a.grantee = 0)";
    assert_eq!(names(&client, functions).await, [""; 0]);
    let tables = "select c.relname::text from pg_class c, aclexplode(c.relacl) a
        where c.relnamespace = 'outlast'::regnamespace and a.grantee = 0";
    assert_eq!(names(&client, tables).await, [""; 0]);
    let schema = "select 'schema' from pg_namespace n, aclexplode(n.nspacl) a
        where n.nspname = 'outlast' and a.grantee = 0";
    assert_eq!(names(&client, schema).await, [""; 0]);
    // The questions can be answered with a name.
    run(&client, "create function outlast.open() returns int language sql as 'select 1'; grant select on outlast._house to public").await;
    assert_eq!(names(&client, functions).await, ["outlast.open()"]);
    assert_eq!(names(&client, tables).await, ["_house"]);
}

#[tokio::test]
async fn what_works_with_its_owners_rights_has_a_fixed_search_path_and_an_owner_that_cannot_log_in()
{
    let house = House::new().await;
    let client = house.connect().await;
    let free = "select p.oid::regprocedure::text from pg_proc p
        where p.pronamespace = 'outlast'::regnamespace and p.prosecdef
          and not coalesce(p.proconfig, '{}') @> array['search_path=pg_catalog, pg_temp']";
    assert_eq!(names(&client, free).await, [""; 0]);
    let all =
        "select count(*) from pg_proc where pronamespace = 'outlast'::regnamespace and prosecdef";
    assert!(one::<i64>(&client, all, &[]).await > 20);
    let owners = "select distinct r.rolname || ' ' || (r.rolcanlogin or r.rolsuper or r.rolcreaterole or r.rolcreatedb or r.rolreplication or r.rolbypassrls)
        from (select proowner as o from pg_proc where pronamespace = 'outlast'::regnamespace
              union all select relowner from pg_class where relnamespace = 'outlast'::regnamespace
              union all select nspowner from pg_namespace where nspname = 'outlast') x
        join pg_roles r on r.oid = x.o";
    assert_eq!(names(&client, owners).await, ["outlast_owner false"]);
    let building = "select p.oid::regprocedure::text from pg_proc p
        where p.pronamespace = 'outlast'::regnamespace and p.prosecdef and p.prosrc ~* '\\mexecute\\M'";
    assert_eq!(
        names(&client, building).await,
        [""; 0],
        "statements are not put together from arguments"
    );
}

#[tokio::test]
async fn every_public_function_is_in_the_list_of_who_may_call_it() {
    let house = House::new().await;
    let client = house.connect().await;
    let unlisted = "select distinct p.proname::text from pg_proc p
        where p.pronamespace = 'outlast'::regnamespace and p.proname !~ '^_'
          and not exists (select from outlast._doors() d where d.name = p.proname)";
    assert_eq!(
        names(&client, unlisted).await,
        [""; 0],
        "give it a line in functions/roles.sql"
    );
    let unknown = "select d.name from outlast._doors() d
        where not exists (select from pg_proc p where p.pronamespace = 'outlast'::regnamespace and p.proname = d.name)
           or not d.callers <@ '{owner,emitter,engine,reader}' or d.callers = '{}'";
    assert_eq!(names(&client, unknown).await, [""; 0]);
    let otherwise = "select p.oid::regprocedure || ' ' || r.role
        from pg_proc p
        cross join unnest('{emitter,engine,reader}'::text[]) r (role)
        left join outlast._doors() d on d.name = p.proname and r.role = any (d.callers)
        where p.pronamespace = 'outlast'::regnamespace
          and has_function_privilege('outlast_' || r.role, p.oid, 'execute') <> (d.name is not null)";
    assert_eq!(
        names(&client, otherwise).await,
        [""; 0],
        "rights and list differ"
    );
}

#[tokio::test]
async fn what_the_statements_of_a_worker_call_is_open_to_its_role() {
    // Goal: whoever adds a statement to the engine learns here that its function needs a line in the list. Method: the
    // names of all functions in the sources, without their tests.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut called = BTreeSet::new();
    for folder in [
        "outlast-postgres/src/store",
        "outlast-postgres/src/event",
        "outlast-engine/src",
    ] {
        sources(&root.join(folder), &mut called);
    }
    for file in [
        "outlast-postgres/src/store.rs",
        "outlast-postgres/src/event.rs",
        "outlast-postgres/src/watch.rs",
    ] {
        names_in(&root.join(file), &mut called);
    }
    assert!(
        called.contains("_claim") && called.contains("complete") && called.len() > 15,
        "{called:?}"
    );
    let house = House::new().await;
    let client = house.connect().await;
    let open = "select distinct d.name from outlast._doors() d where 'engine' = any (d.callers)";
    let open: BTreeSet<String> = names(&client, open).await.into_iter().collect();
    let closed: Vec<_> = called.difference(&open).collect();
    assert!(
        closed.is_empty(),
        "no line in functions/roles.sql lets the engine call {closed:?}"
    );
}

fn sources(folder: &Path, called: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.ends_with("tests") || path.ends_with("testing.rs") {
            continue;
        }
        if path.is_dir() {
            sources(&path, called);
        } else {
            names_in(&path, called);
        }
    }
}

/// Every `outlast.name(` in a file, but not of a field that is called so.
fn names_in(file: &Path, called: &mut BTreeSet<String>) {
    let text = std::fs::read_to_string(file).expect("a source");
    for line in text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
    {
        for (at, word) in line.match_indices("outlast.") {
            let name = &line[at + word.len()..];
            let end = name
                .find(|c: char| !c.is_ascii_lowercase() && c != '_')
                .unwrap_or(name.len());
            if name[end..].starts_with('(') && !line[..at].ends_with('.') {
                called.insert(name[..end].to_owned());
            }
        }
    }
}

#[tokio::test]
async fn an_emitter_emits_and_can_do_nothing_else() {
    let house = House::new().await;
    let boss = house.connect().await;
    run(
        &boss,
        "select outlast.register('c', array['a'], 'earliest')",
    )
    .await;
    let app = login(&house, "outlast_emitter").await;
    run(&app, "begin").await;
    let id: Uuid = one(
        &app,
        "select id from outlast.emit('a', '{}', key => 'k', dedup => 'd')",
        &[],
    )
    .await;
    let again: bool = one(
        &app,
        "select new from outlast.emit('a', '{}', key => 'k', dedup => 'd')",
        &[],
    )
    .await;
    assert!(!again);
    run(&app, "select outlast.emit('a', '{}'::jsonb); select count(*) from outlast.emit_all('a', array['1', '2'])").await;
    run(&app, "commit").await;
    assert!(one::<bool>(&app, "select outlast._emitted($1)", &[&id]).await);
    all_denied(
        &app,
        &[
            "select * from outlast._event",
            "select id from outlast.event",
            "select * from outlast._dedup",
            "select * from outlast._house",
            "insert into outlast._event default values",
            "select nextval('outlast._event_id')",
            "select setval('outlast._event_id', 1)",
            "select * from outlast.claim('event', 'c')",
            "select * from outlast._claim(1, 1, 1, 1, 1000, 1)",
            "select outlast.complete(gen_random_uuid(), gen_random_uuid())",
            "select outlast.fail(gen_random_uuid(), gen_random_uuid(), 'retry', 'x')",
            "select outlast.register('d', array['a'])",
            "select outlast.pause('c', 'x')",
            "select outlast._secure()",
            "create table outlast.mine ()",
            "create function outlast.emit(text) returns void language sql as 'select 1'",
            "drop schema outlast cascade",
            "set role outlast_owner",
        ],
    )
    .await;
}

#[tokio::test]
async fn an_engine_reads_the_endpoints_and_writes_none() {
    let house = House::new().await;
    let owner = house.connect().await;
    let shop = r#"{"url": "https://shop.example/", "types": ["a"], "key": "k", "headers": {}, "concurrency": 8,
        "timeout": "30s", "deadline": "1m", "ordered": false, "tenants": []}"#;
    let set = format!("select outlast._set_endpoint('shop', '{shop}')");
    run(&owner, &set).await;
    let runner = login(&house, "outlast_engine").await;
    let read = endpoint::in_force(&runner, Schema::DEFAULT).await;
    assert_eq!(read.expect("reads them")["shop"].types, ["a"]);
    let remove = "select outlast._set_endpoint('shop', null)";
    all_denied(&runner, &[&set, remove, "delete from outlast._endpoint"]).await;
    let bad = set.replace("https", "ftp");
    assert_eq!(state(owner.batch_execute(&bad).await), "23514");
}

#[tokio::test]
async fn an_engine_works_and_can_change_nothing_by_itself() {
    let house = House::new().await;
    let runner = login(&house, "outlast_engine").await;
    run(
        &runner,
        "select outlast.register('c', array['a'], 'earliest')",
    )
    .await;
    run(
        &runner,
        "select outlast.emit('a', '{}'), outlast.emit('a', '{}')",
    )
    .await;
    let claim = "select token, id from outlast.claim('event', 'c', 2, 60000, 'me')";
    let claimed = runner.query(claim, &[]).await.expect("two are due");
    let work: Vec<(Uuid, Uuid)> = claimed.iter().map(|row| (row.get(0), row.get(1))).collect();
    let [(token, first), (_, second)] = work[..] else {
        panic!("{work:?}")
    };
    runner
        .execute("select outlast.renew($1)", &[&token])
        .await
        .expect("renews");
    runner
        .execute("select outlast.complete($1, $2)", &[&token, &first])
        .await
        .expect("completes");
    let became: String = one(
        &runner,
        "select outlast.fail($1, $2, 'permanent', 'no')",
        &[&token, &second],
    )
    .await;
    assert_eq!(became, "quarantined");
    assert_eq!(
        one::<i64>(&runner, "select count(*) from outlast.incident", &[]).await,
        1
    );
    all_denied(
        &runner,
        &[
            "update outlast._consumer set state = 'paused'",
            "delete from outlast._processed_event",
            "insert into outlast._audit (actor, action, about) values ('x', 'x', 'x')",
            "delete from outlast._audit",
            "truncate outlast._event",
            "update outlast.event set type = 'b'",
            "select nextval('outlast._event_id')",
            "update outlast._house set stopped = 'x'",
            "select outlast.pause('c', 'x')",
            "alter table outlast._event add x int",
            "alter function outlast.clock() rename to watch",
            "drop table outlast._event cascade",
            "drop function outlast.clock()",
            "alter schema outlast rename to mine",
            "create table outlast.mine ()",
            "create or replace function outlast.clock() returns timestamptz language sql as 'select now()'",
            "create trigger t after insert on outlast._event for each row execute function suppress_redundant_updates_trigger()",
            "set role outlast_owner",
        ],
    )
    .await;
}

#[tokio::test]
async fn a_reader_sees_every_view_but_no_payload() {
    let house = House::new().await;
    let boss = house.connect().await;
    run(&boss, "select outlast.register('c', array['a'], 'earliest'); select outlast.emit('a', '{\"secret\":1}')").await;
    let claimed = boss
        .query_one("select token, id from outlast.claim('event', 'c')", &[])
        .await
        .expect("due");
    let (token, id): (Uuid, Uuid) = (claimed.get(0), claimed.get(1));
    boss.execute(
        "select outlast.fail($1, $2, 'permanent', 'no')",
        &[&token, &id],
    )
    .await
    .expect("fails");

    let reader = login(&house, "outlast_reader").await;
    let views = "select c.relname::text, string_agg(quote_ident(a.attname), ', ' order by a.attnum)
        from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
        where c.relnamespace = 'outlast'::regnamespace and c.relkind = 'v' and a.attname <> 'payload' group by 1";
    let views = boss.query(views, &[]).await.expect("lists views");
    assert!(views.len() >= 6);
    for row in &views {
        let (view, columns): (&str, &str) = (row.get(0), row.get(1));
        let sql = format!("select {columns} from outlast.{view}");
        let answered = reader.query(&sql, &[]).await;
        assert!(answered.is_ok(), "{sql}: {answered:?}");
    }
    assert_eq!(
        one::<i64>(&reader, "select count(*) from outlast.incident", &[]).await,
        1
    );
    all_denied(
        &reader,
        &[
            "select payload from outlast.event",
            "select * from outlast.event",
            "select id from outlast.event where payload like '%secret%'",
            "select payload from outlast.parked",
            "select e from outlast.event e",
            "select payload from outlast._event",
            "select * from outlast._parked",
            "select outlast.emit('a', '{}')",
            "select * from outlast.claim('event', 'c')",
            "select outlast.complete(gen_random_uuid(), gen_random_uuid())",
        ],
    )
    .await;
    // The program can ask whether the schema fits.
    let fits = migrate::check(&reader).await;
    assert!(fits.is_ok(), "{fits:?}");
}

#[tokio::test]
async fn a_login_without_a_role_is_told_which_one_it_needs() {
    let house = House::new().await;
    let nobody = client(&house.login("").await).await;
    let refused = migrate::check(&nobody).await;
    let Err(Error::NotAllowed { grant, .. }) = &refused else {
        panic!("{refused:?}")
    };
    assert!(
        grant.starts_with("grant outlast_engine to LOGIN"),
        "{grant}"
    );
    let emitter = login(&house, "outlast_emitter").await;
    let refused: Error = emitter
        .execute(
            "select outlast.complete(gen_random_uuid(), gen_random_uuid())",
            &[],
        )
        .await
        .expect_err("may only emit")
        .into();
    assert!(
        matches!(&refused, Error::NotAllowed { grant, .. } if grant == "grant outlast_engine to LOGIN"),
        "{refused}"
    );
}
