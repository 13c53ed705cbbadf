-- How far a change of lanes is. $1 the consumer's name.
select lanes, wanted, there from outlast._lanes_standing($1)
