-- $1 the job, $2 who asks. Answers `ready`, or how it stands instead.
select outlast.retry_job($1, $2) as said
