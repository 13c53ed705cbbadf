-- $1 the job, $2 why, $3 who asks. Answers `abandoned`, or how it stands instead.
select outlast.abandon_job($1, $2, $3) as said
