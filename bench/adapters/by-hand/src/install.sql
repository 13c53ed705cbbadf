create table event (id bigint generated always as identity primary key, at timestamptz not null default clock_timestamp(), payload bytea not null);
create table place (consumer int primary key, id bigint not null);
create table completion (consumer int not null, event bigint not null, at timestamptz not null, primary key (event, consumer));
create table job (id bigint generated always as identity primary key, status text not null default 'waiting', at timestamptz not null default clock_timestamp(), payload jsonb not null);
create index job_waiting on job (id) where status = 'waiting';
create table effect (id bigint generated always as identity primary key, note text not null);
