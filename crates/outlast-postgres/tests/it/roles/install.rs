//! How the roles come into being, whoever migrates.

use outlast_postgres::{connect::Target, migrate, schema::Schema};
use outlast_testkit::pg::{self, Database};
use uuid::Uuid;

use super::{DENIED, client, names};
use crate::{
    house::House,
    sql::{one, run, state},
};

/// A schema whose roles no other test has made.
fn fresh() -> Schema {
    Schema::named(&format!("s_{}", &Uuid::new_v4().simple().to_string()[..12]))
        .expect("a good name")
}

async fn empty_for(rights: &str) -> (Database, String) {
    let database = pg::empty().await;
    let url = database.login(rights).await;
    let login = Target::parse(&url).expect("a URL");
    let login = login.config().get_user().expect("a user").to_owned();
    let sql = format!("grant create on database {} to {login}", database.name());
    run(&database.connect().await, &sql).await;
    (database, url)
}

#[tokio::test]
async fn a_login_that_may_make_roles_needs_no_administrator() {
    let (database, url) = empty_for("createrole").await;
    let schema = fresh();
    let mut owner = client(&url).await;
    let done = migrate::of(schema)
        .run(&mut owner, |_| ())
        .await
        .expect("migrates");
    assert_eq!(done.for_an_administrator, [""; 0]);
    run(&owner, &schema.text("select outlast.emit('a', '{}')")).await;
    let app = client(
        &database
            .login(&format!("in role {}", schema.role("emitter")))
            .await,
    )
    .await;
    run(&app, &schema.text("select outlast.emit('a', '{}')")).await;
    let of: String = one(&owner, &schema.text("select tableowner::text from pg_tables where schemaname = 'outlast' and tablename = '_event'"), &[]).await;
    assert_eq!(of, schema.role("owner"));
    // Another member of the owner migrates too, and a second time nothing is left to do.
    let mut other = client(
        &database
            .login(&format!("in role {}", schema.role("owner")))
            .await,
    )
    .await;
    run(&other, &schema.text("delete from outlast._functions")).await;
    let done = migrate::of(schema)
        .run(&mut other, |_| ())
        .await
        .expect("migrates");
    assert!(
        done.functions && done.for_an_administrator.is_empty(),
        "{done:?}"
    );
    run(&app, &schema.text("select outlast.emit('a', '{}')")).await;
}

#[tokio::test]
async fn a_login_that_may_not_make_roles_says_what_an_administrator_has_to_run() {
    let (database, url) = empty_for("nocreaterole").await;
    let schema = fresh();
    let admin = database.connect().await;
    let mut owner = client(&url).await;
    let done = migrate::of(schema)
        .run(&mut owner, |_| ())
        .await
        .expect("migrates");
    assert_eq!(done.for_an_administrator.len(), 5, "{done:?}");
    // Everything works for the owner meanwhile, and for nobody else.
    run(
        &owner,
        &schema.text("select outlast.register('c', array['a'], 'earliest')"),
    )
    .await;
    run(&owner, &schema.text("select outlast.emit('a', '{}')")).await;
    let due = schema
        .text("select count(*) from outlast.claim('event', 'c')")
        .into_owned();
    assert_eq!(one::<i64>(&owner, &due, &[]).await, 1);
    let other = client(&database.login("").await).await;
    assert_eq!(
        state(
            other
                .batch_execute(&schema.text("select outlast.emit('a', '{}')"))
                .await
        ),
        DENIED
    );

    for statement in &done.for_an_administrator {
        run(&admin, statement).await;
    }
    let done = migrate::of(schema)
        .run(&mut owner, |_| ())
        .await
        .expect("migrates");
    assert!(
        done.for_an_administrator.is_empty() && !done.functions,
        "{done:?}"
    );
    let app = client(
        &database
            .login(&format!("in role {}", schema.role("emitter")))
            .await,
    )
    .await;
    run(&app, &schema.text("select outlast.emit('a', '{}')")).await;
    let definers = schema.text(
        "select distinct r.rolname::text from pg_proc p join pg_roles r on r.oid = p.proowner
        where p.pronamespace = 'outlast'::regnamespace",
    );
    assert_eq!(names(&owner, &definers).await, [schema.role("owner")]);
}

#[tokio::test]
async fn rights_that_are_as_they_should_be_are_left_alone() {
    let house = House::new().await;
    let mut client = house.connect().await;
    let versions = "select md5(string_agg(x, ',' order by x)) from (
        select 'f' || oid || xmin || coalesce(proacl::text, '') as x from pg_proc where pronamespace = 'outlast'::regnamespace
        union all select 'c' || oid || xmin || coalesce(relacl::text, '') from pg_class where relnamespace = 'outlast'::regnamespace) x";
    let before: String = one(&client, versions, &[]).await;
    let done = migrate::run(&mut client, |_| ()).await.expect("migrates");
    assert!(!done.functions);
    assert_eq!(one::<String>(&client, versions, &[]).await, before);
    // A right too many goes, one that is missing comes.
    run(&client, "grant execute on function outlast.pause(text, text) to outlast_engine; grant execute on function outlast.resume(text) to public;
                  revoke execute on function outlast.renew(uuid, int) from outlast_engine").await;
    migrate::run(&mut client, |_| ()).await.expect("migrates");
    let may = "select array_agg(has_function_privilege('outlast_engine', f, 'execute')) from unnest(array[
        'outlast.pause(text, text)', 'outlast.resume(text)', 'outlast.renew(uuid, int)']) f";
    assert_eq!(
        one::<Vec<bool>>(&client, may, &[]).await,
        [false, false, true]
    );
}
