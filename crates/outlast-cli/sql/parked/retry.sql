-- Gives a quarantined event another full budget of tries, at once, at the head of its key. $1 the consumer's name, $2 the
-- event, $3 who asks.
select outcome, behind, changed from outlast.retry($1, $2, $3)
