-- $1 the name, $2 why: null lets it go on, $3 who asks. Answers whether that changed anything.
select case when $2::text is null then outlast.resume_job($1, $3) else outlast.pause_job($1, $2, $3) end as changed
