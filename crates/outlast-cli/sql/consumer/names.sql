-- The consumers that can be paused or resumed. $1 their present state.
select name from outlast.consumer where state = $1 order by name
