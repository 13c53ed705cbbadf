//! The SQL of `adopt check`: what reads the table, and what moves it. Both have the same expressions in them.
//!
//! The expressions are the operator's own, run by his login: what only reads does so in a read-only transaction, and each
//! text is one statement, because nothing else can be sent this way.

use outlast_postgres::schema::Schema;

use super::{
    mapping::{Expression, Mapping},
    table::Table,
};

fn sql(of: Option<&Expression>, absent: &str) -> String {
    of.map_or_else(|| absent.to_owned(), |one| one.sql.clone())
}

/// As that type; a column by itself needs no parentheses.
fn cast(sql: &str, kind: &str) -> String {
    let bare = sql.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    match bare {
        true => format!("{sql}::{kind}"),
        false => format!("({sql})::{kind}"),
    }
}

/// Of which type an expression is; one row, also of an empty table.
pub(super) fn type_of(table: &Table, one: &Expression) -> String {
    format!(
        "select pg_typeof(o.x)::text from (select 1) one left join (select ({}) as x from {} limit 1) o on true",
        one.sql, table.sql
    )
}

/// How many of its rows are looked at; `$1` at most.
pub(super) fn looked_at(table: &Table) -> String {
    format!(
        "select count(*) from (select from {} limit $1) o",
        table.sql
    )
}

/// What stands in so many rows: (what, how many, an example). No payload leaves it.
pub(super) fn look(table: &Table, mapping: &Mapping, schema: Schema) -> String {
    let Mapping { name, payload, .. } = mapping;
    let [name, payload, key, tenant, at, priority, waiting, running] = [
        sql(name.as_ref(), "null"),
        sql(payload.as_ref(), "null"),
        sql(mapping.key.as_ref(), "null"),
        sql(mapping.tenant.as_ref(), "''"),
        sql(mapping.at.as_ref(), "null"),
        sql(mapping.priority.as_ref(), "0"),
        sql(mapping.waiting.as_ref(), "true"),
        sql(mapping.running.as_ref(), "false"),
    ];
    let table = &table.sql;
    format!(
        "with r as materialized (
  select ({name})::text as name, ({payload})::text as payload, ({key})::text as key, ({tenant})::text as tenant,
         ({at})::timestamptz as at, ({priority})::int as priority, ({running}) is true as running
  from (select * from {table} limit $1) o
  where ({waiting}) or ({running})
), w as materialized (
  select r.name, r.key, r.tenant, md5(r.payload) as content, case
    when r.payload is null then 'no payload'
    else case {schema}._unfit('x', r.payload, r.key, r.tenant, r.at, r.priority)
      when 'OL006' then 'too large'
      when 'OL007' then 'not JSON'
      when 'OL005' then case
        when {schema}._unfit('x', 'null', r.key, '', null, 0) is not null then 'bad key'
        when {schema}._unfit('x', 'null', null, r.tenant, null, 0) is not null then 'bad tenant'
        when {schema}._unfit('x', 'null', null, '', r.at, 0) is not null then 'bad time'
        else 'bad priority' end
      end
    end as problem
  from r where not r.running
), same as (
  select min(w.key) as key, count(*) as n, count(distinct w.content) as contents
  from w where w.key is not null group by w.name, w.tenant, w.key having count(*) > 1
)
select 'waiting' as what, count(*) as n, null as example from w
union all select 'running', count(*), min(r.key) from r where r.running
union all select w.problem, count(*), min(w.key) from w where w.problem is not null group by 1
union all select 'no key', count(*), null from w where w.key is null
union all select 'same key', coalesce(sum(s.n - 1), 0)::bigint, min(s.key) from same s where s.contents = 1
union all select 'other content', count(*), min(s.key) from same s where s.contents > 1
union all (select case when w.name is null then 'no name' when {schema}._unfit(w.name, 'null', null, '', null, 0) is null then 'name'
           else 'bad name' end, count(*), w.name from w group by w.name order by 2 desc limit 200)"
    )
}

/// How many of them have a job already, under the key that they would get.
pub(super) fn there_already(table: &Table, mapping: &Mapping, schema: Schema) -> String {
    let [name, key, tenant, waiting, running] = [
        sql(mapping.name.as_ref(), "null"),
        sql(mapping.key.as_ref(), "null"),
        sql(mapping.tenant.as_ref(), "''"),
        sql(mapping.waiting.as_ref(), "true"),
        sql(mapping.running.as_ref(), "false"),
    ];
    let table = &table.sql;
    format!(
        "select count(*), min(k.key) from (
  select ({name})::text as name, ({key})::text as key, ({tenant})::text as tenant from (select * from {table} limit $1) o
  where ({waiting}) and ({running}) is not true) r
join {schema}._job_key k on k.tenant = r.tenant and k.kind = 'j' and k.name = r.name and k.key = r.key"
    )
}

/// The statement that moves so many rows: in one commit each is a job and no row any more, or a row as before. Run twice
/// it moves nothing twice.
pub(super) fn moves(table: &Table, mapping: &Mapping, schema: Schema, portion: u32) -> String {
    let key = &table.key;
    let indexed = |text: &dyn Fn(usize, &String) -> String| -> Vec<String> {
        key.iter()
            .enumerate()
            .map(|(n, of)| text(n + 1, of))
            .collect()
    };
    let waiting = mapping.waiting.as_ref().map(|one| format!("({})", one.sql));
    let running = mapping
        .running
        .as_ref()
        .map(|one| format!("({}) is not true", one.sql));
    let wanted: Vec<String> = waiting.into_iter().chain(running).collect();
    let wanted = match wanted.is_empty() {
        true => String::new(),
        false => format!("\n  where {}", wanted.join(" and ")),
    };
    let mut given = vec![
        format!(
            "name => {}",
            cast(&sql(mapping.name.as_ref(), "null"), "text")
        ),
        format!(
            "payload => {}",
            cast(&sql(mapping.payload.as_ref(), "null"), "text")
        ),
        format!(
            "key => {}",
            cast(&sql(mapping.key.as_ref(), "null"), "text")
        ),
    ];
    let optional = [
        ("tenant", &mapping.tenant, "text"),
        ("at", &mapping.at, "timestamptz"),
        ("priority", &mapping.priority, "int"),
    ];
    for (argument, one, kind) in optional {
        given.extend(
            one.as_ref()
                .map(|one| format!("{argument} => {}", cast(&one.sql, kind))),
        );
    }
    format!(
        "with due as (
  select * from {table}{wanted}
  order by {order} limit {portion} for update skip locked
), moved as (
  select {row}, job.new, job.conflict, job.expired
  from due cross join lateral {schema}.enqueue(
    {given}) job
), gone as (
  delete from {table} o using moved m where m.new and {same}
)
select count(*) filter (where new) as moved,
       count(*) filter (where not new and not conflict and not expired) as there_already,
       count(*) filter (where conflict) as conflicts, count(*) filter (where expired) as expired
from moved",
        table = table.sql,
        order = key.join(", "),
        row = indexed(&|n, of| format!("due.{of} as row_{n}")).join(", "),
        given = given.join(",\n    "),
        same = indexed(&|n, of| format!("o.{of} = m.row_{n}")).join(" and "),
    )
}
