-- Names a database that has no name yet; answers the name it has. $1 the wished one.
with named as (
  update outlast._house set deployment = $1 where deployment is null returning deployment
)
select coalesce((select deployment from named), (select deployment from outlast._house)) as deployment
