-- $1 the account, $2 who asks. Answers whether it was paused, throttled or failing.
select outlast.resume_account($1, $2) as changed
