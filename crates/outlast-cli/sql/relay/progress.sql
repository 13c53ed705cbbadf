-- How far rewind $1 is.
select state, events, sent, refused from outlast.rewind where id = $1
