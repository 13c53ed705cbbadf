-- What somebody tells about the end of a command. $1 name, $2 key, $3 state, $4 answer, $5 reference, $6 reason, $7 tenant, $8 who.
select outlast.settle(name => $1, key => $2, state => $3, answer => $4, reference => $5, reason => $6, tenant => $7, actor => $8) as said
