//! What a caller puts in the way of names changes nothing in functions that work with their owner's rights.

use tokio_postgres::Client;
use uuid::Uuid;

use super::login;
use crate::{
    house::House,
    sql::{one, run},
};

/// Functions and operators that our texts name without a schema, in one that the caller puts before PostgreSQL's. Each
/// tells that it was called and as whom. And tables in the place for temporary ones, which is searched first unless told
/// otherwise.
const TRAPS: &str = "
  create schema hostile;
  grant usage, create on schema hostile to public;
  create table hostile.called (what text, by name);
  grant insert, select on hostile.called to public;
  create function hostile.tell(what text) returns void language sql as
    $$ insert into hostile.called values (what, current_user) $$;
  create function hostile.convert_to(text, name) returns bytea language plpgsql as
    $$ begin perform hostile.tell('convert_to'); return pg_catalog.convert_to($1, $2); end $$;
  create function hostile.length(text) returns int language plpgsql as
    $$ begin perform hostile.tell('length'); return pg_catalog.length($1); end $$;
  create function hostile.octet_length(bytea) returns int language plpgsql as
    $$ begin perform hostile.tell('octet_length'); return pg_catalog.octet_length($1); end $$;
  create function hostile.clock_timestamp() returns timestamptz language plpgsql as
    $$ begin perform hostile.tell('clock_timestamp'); return '2000-01-01'; end $$;
  create function hostile.pg_current_xact_id() returns xid8 language plpgsql as
    $$ begin perform hostile.tell('pg_current_xact_id'); return '7'; end $$;
  create function hostile.current_setting(text) returns text language plpgsql as
    $$ begin perform hostile.tell('current_setting'); return pg_catalog.current_setting($1); end $$;
  create function hostile.cardinality(anyarray) returns int language plpgsql as
    $$ begin perform hostile.tell('cardinality'); return pg_catalog.cardinality($1); end $$;
  create function hostile.eq(text, text) returns boolean language plpgsql as
    $$ begin perform hostile.tell('='); return $1 operator(pg_catalog.=) $2; end $$;
  create operator hostile.= (leftarg = text, rightarg = text, function = hostile.eq);
  create function hostile.eq(uuid, uuid) returns boolean language plpgsql as
    $$ begin perform hostile.tell('= of uuid'); return $1 operator(pg_catalog.=) $2; end $$;
  create operator hostile.= (leftarg = uuid, rightarg = uuid, function = hostile.eq);
  create function hostile.cat(text, text) returns text language plpgsql as
    $$ begin perform hostile.tell('||'); return pg_catalog.concat($1, $2); end $$;
  create operator hostile.|| (leftarg = text, rightarg = text, function = hostile.cat);
  grant execute on all functions in schema hostile to public;";

/// In the session of the caller.
const HIS: &str = "
  create temp table pg_sequence (seqcache bigint, seqrelid regclass);
  create temp table pg_class (oid oid, relname name);
  create temp table _event (x int);
  create temp table _consumer (x int);
  set search_path = hostile, pg_temp, pg_catalog";

/// Everything that an engine may call, once, as a runner in another language does it. The token that it worked under.
async fn work(client: &Client) {
    run(
        client,
        "select outlast.register('c' || gen_random_uuid(), array['a'])",
    )
    .await;
    for statement in [
        "select outlast.emit('a', '{}', key => 'k', dedup => 'd')",
        "select outlast.emit('a', '{}'::jsonb, source => 's')",
        "select pg_catalog.count(*) from outlast.emit_all('a', array['1', '2'])",
    ] {
        run(client, statement).await;
    }
    let claimed = client
        .query(
            "select token, id from outlast.claim('event', 'c', 4, 60000)",
            &[],
        )
        .await;
    let claimed: Vec<(Uuid, Uuid)> = claimed
        .expect("claims")
        .iter()
        .map(|row| (row.get(0), row.get(1)))
        .collect();
    assert_eq!(claimed.len(), 4);
    let token = claimed[0].0;
    for sql in ["select outlast.renew($1)", "select outlast.fence($1)"] {
        client
            .execute(sql, &[&token])
            .await
            .expect("the lease is ours");
    }
    client
        .execute("select outlast.complete($1, $2)", &[&token, &claimed[0].1])
        .await
        .expect("completes");
    client
        .execute(
            "select outlast._seal($1, $2)",
            &[&token, &vec![claimed[1].1]],
        )
        .await
        .expect("seals");
    client
        .execute(
            "select outlast.fail($1, $2, 'retry', 'why')",
            &[&token, &claimed[2].1],
        )
        .await
        .expect("fails");
    client
        .query("select * from outlast._finish($1)", &[&vec![token]])
        .await
        .expect("finishes");
    client
        .query(
            "select * from outlast._where(gen_random_uuid(), 0, gen_random_uuid())",
            &[],
        )
        .await
        .expect("asks where it is");
}

#[tokio::test]
async fn a_callers_own_objects_change_nothing() {
    let house = House::new().await;
    let boss = house.connect().await;
    run(
        &boss,
        "select outlast.register('c', array['a'], 'earliest')",
    )
    .await;
    run(&boss, TRAPS).await;
    // What his own statements call is his business: `=`, `||` and `gen_random_uuid` of `work` are not asked about.
    let caller = login(&house, "outlast_engine").await;
    let temp = format!("grant temporary on database {} to public", house.name());
    run(&boss, &temp).await;
    run(&caller, HIS).await;
    work(&caller).await;
    let called = "select what || ' as ' || by from hostile.called where by = 'outlast_owner'";
    let rows = boss.query(called, &[]).await.expect("asks");
    let as_owner: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(
        as_owner, [""; 0],
        "hostile functions ran with the owner's rights"
    );
    let when: bool = one(
        &boss,
        "select bool_and(emitted_at > now() - interval '1 hour') from outlast.event",
        &[],
    )
    .await;
    assert!(when, "the clock was replaced");

    // Without the fixed search path it would happen.
    let planted = "do $$ declare f regprocedure; begin
        for f in select oid from pg_proc where pronamespace = 'outlast'::regnamespace and proname = 'emit'
        loop execute format('alter function %s reset search_path', f); end loop; end $$";
    run(&boss, planted).await;
    run(&caller, "select outlast.emit('a', '{}')").await;
    let rows = boss.query(called, &[]).await.expect("asks");
    assert!(!rows.is_empty(), "the traps can spring");
}
