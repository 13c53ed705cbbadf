-- What the migrations make: tables, views, the signatures of public functions; one leaf of each ring for all.
-- Written by a test: OUTLAST_UPDATE_SCHEMA=1 ./run test -p outlast-cli
-- PostgreSQL 15

CREATE TYPE outlast._arrived AS (
	n integer,
	event_id uuid,
	token uuid,
	verdict text,
	wait_ms integer,
	lapses integer,
	suspect boolean,
	foreign_at timestamp with time zone,
	tenant text,
	key text,
	log_id bigint
);

CREATE TYPE outlast._claimed AS (
	token uuid,
	event_id uuid,
	log_id bigint,
	type text,
	schema_version integer,
	tenant text,
	key text,
	actor text,
	correlation_id uuid,
	causation_id uuid,
	traceparent text,
	headers jsonb,
	source text,
	subject text,
	aggregate_version bigint,
	content_type text,
	codec_key text,
	payload bytea,
	emitted_at timestamp with time zone,
	attempt integer,
	reclaims integer,
	lane integer,
	key_seq bigint
);

CREATE TYPE outlast._cut AS (
	snap pg_snapshot,
	hi bigint,
	base bigint
);

CREATE TYPE outlast._found AS (
	slot smallint,
	id bigint,
	event_id uuid,
	lane integer,
	size integer,
	more boolean
);

CREATE DOMAIN outlast._job_end_state AS "char"
	CONSTRAINT _job_end_state_check CHECK ((VALUE = ANY (ARRAY['d'::"char", 's'::"char", 'x'::"char", 'a'::"char", 't'::"char", 'r'::"char", 'o'::"char"])));

CREATE TYPE outlast._job_group AS (
	account text,
	tenant text,
	priority smallint,
	above bigint
);

CREATE DOMAIN outlast._job_kind AS "char"
	CONSTRAINT _job_kind_check CHECK ((VALUE = ANY (ARRAY['j'::"char", 'c'::"char", 'e'::"char"])));

CREATE TYPE outlast._keyed AS (
	slot smallint,
	id bigint,
	event_id uuid,
	tenant text,
	key text
);

CREATE TYPE outlast._outbox_found AS (
	row_id text,
	row_at bigint,
	"time" timestamp with time zone,
	tenant text,
	key text,
	topic text,
	type text,
	headers jsonb,
	size bigint,
	lapses integer,
	nth bigint
);

CREATE TYPE outlast._outbox_map AS (
	name text,
	identity text,
	ordered boolean,
	relation text,
	oid oid,
	kind "char",
	id_type text,
	at text,
	"row" text,
	joined text,
	fields text,
	payload text,
	pending text,
	key text,
	tenant text,
	sorted text,
	done text,
	needs_topic boolean,
	content_type text
);

CREATE DOMAIN outlast._outcome AS "char"
	CONSTRAINT _outcome_check CHECK ((VALUE = ANY (ARRAY['d'::"char", 's'::"char"])));

CREATE DOMAIN outlast._room AS text
	CONSTRAINT _room_check CHECK ((VALUE = ANY (ARRAY['batch'::text, 'parked'::text, 'delivered'::text, 'poller'::text, 'maintenance'::text, 'rewind'::text, 'job'::text, 'outbox'::text])));

CREATE TYPE outlast._taken_job AS (
	token uuid,
	id uuid,
	kind "char",
	name text,
	tenant text,
	key text,
	account text,
	priority smallint,
	seq bigint,
	schema_version integer,
	attempt integer,
	lapses integer,
	accepted_at timestamp with time zone,
	correlation_id uuid,
	causation_id uuid,
	source text,
	actor text,
	traceparent text,
	content_type text,
	codec_key text,
	payload bytea,
	next "char",
	state text,
	moves integer,
	provider_key text,
	reference text,
	entity jsonb
);

CREATE TYPE outlast._tick AS (
	snap pg_snapshot,
	hi bigint,
	h xid8,
	at timestamp with time zone,
	open xid8[],
	open_at timestamp with time zone[],
	young xid8,
	young_at timestamp with time zone,
	base bigint
);

CREATE TABLE outlast._job (
    id uuid NOT NULL,
    kind outlast._job_kind NOT NULL,
    name text NOT NULL,
    tenant text NOT NULL,
    key text,
    account text NOT NULL,
    priority smallint NOT NULL,
    attempts smallint,
    schema_version smallint NOT NULL,
    accepted_at timestamp with time zone NOT NULL,
    correlation_id uuid,
    causation_id uuid,
    source text,
    actor text,
    traceparent text,
    content_type text NOT NULL,
    codec_key text,
    payload bytea NOT NULL
);

CREATE TABLE outlast._consumer (
    id integer NOT NULL,
    name text NOT NULL,
    ordered boolean NOT NULL,
    lanes integer NOT NULL,
    tenants text[],
    sources text[],
    start text NOT NULL,
    began outlast._cut NOT NULL,
    local boolean DEFAULT false NOT NULL,
    owner text,
    state text DEFAULT 'active'::text NOT NULL,
    reason text,
    attempts integer DEFAULT 8 NOT NULL,
    behind_most integer DEFAULT 10000 NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    lanes_wanted integer,
    lanes_until outlast._tick,
    broker text,
    topic text,
    subscription text,
    ack_ms integer,
    CONSTRAINT _consumer_ack_ms_check CHECK ((ack_ms > 0)),
    CONSTRAINT _consumer_attempts_check CHECK ((attempts > 0)),
    CONSTRAINT _consumer_behind_most_check CHECK ((behind_most > 0)),
    CONSTRAINT _consumer_broker_check CHECK ((broker ~ '^[a-z0-9._-]{1,40}$'::text)),
    CONSTRAINT _consumer_check CHECK ((((lanes >= 1) AND (lanes <= 1024)) AND (ordered OR (lanes = 1)))),
    CONSTRAINT _consumer_check1 CHECK (((lanes_wanted IS NULL) = (lanes_until IS NULL))),
    CONSTRAINT _consumer_check2 CHECK ((((broker IS NULL) = (topic IS NULL)) AND ((broker IS NULL) = (subscription IS NULL)))),
    CONSTRAINT _consumer_check3 CHECK (((broker IS NULL) OR (lanes = 1))),
    CONSTRAINT _consumer_lanes_wanted_check CHECK (((lanes_wanted >= 1) AND (lanes_wanted <= 1024))),
    CONSTRAINT _consumer_sources_check CHECK ((cardinality(sources) > 0)),
    CONSTRAINT _consumer_start_check CHECK ((start = ANY (ARRAY['now'::text, 'earliest'::text]))),
    CONSTRAINT _consumer_state_check CHECK ((state = ANY (ARRAY['active'::text, 'paused'::text, 'retired'::text]))),
    CONSTRAINT _consumer_tenants_check CHECK ((cardinality(tenants) > 0))
);

CREATE TABLE outlast._batch (
    consumer integer NOT NULL,
    lane integer NOT NULL,
    seq bigint NOT NULL,
    a outlast._tick NOT NULL,
    b outlast._tick NOT NULL,
    lo bigint NOT NULL,
    hi bigint NOT NULL,
    events integer NOT NULL,
    claimed_at timestamp with time zone NOT NULL,
    parts integer NOT NULL,
    tenants text[],
    without text[],
    sides integer[]
);

CREATE TABLE outlast._lease (
    token uuid NOT NULL,
    room outlast._room NOT NULL,
    consumer integer,
    lane integer,
    seq bigint,
    event_id uuid,
    reclaims integer DEFAULT 0 NOT NULL,
    process uuid,
    holder text,
    events integer,
    ids_xor bigint,
    expires_at timestamp with time zone NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE outlast._entity (
    id uuid NOT NULL,
    name text NOT NULL,
    tenant text NOT NULL,
    entity_id text NOT NULL,
    exclusive text,
    marked_at timestamp with time zone NOT NULL,
    gone boolean DEFAULT false NOT NULL,
    again boolean DEFAULT false NOT NULL,
    seen bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    fence bigint DEFAULT 0 NOT NULL,
    converged_at timestamp with time zone,
    converged_by uuid,
    refs bytea,
    refs_codec_key text,
    refs_digest bytea,
    kept_now boolean DEFAULT false NOT NULL,
    CONSTRAINT _entity_check CHECK (((refs IS NULL) = (refs_digest IS NULL))),
    CONSTRAINT _entity_check1 CHECK (((converged_at IS NULL) OR (NOT again)))
)
WITH (fillfactor='80');

CREATE TABLE outlast._endpoint (
    name text NOT NULL,
    url text NOT NULL,
    types text[] NOT NULL,
    key text NOT NULL,
    headers jsonb NOT NULL,
    concurrency integer NOT NULL,
    rate integer,
    timeout text NOT NULL,
    deadline text NOT NULL,
    ordered boolean NOT NULL,
    tenants text[] NOT NULL,
    owner text,
    changed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT _endpoint_concurrency_check CHECK (((concurrency >= 1) AND (concurrency <= 10000))),
    CONSTRAINT _endpoint_headers_check CHECK ((jsonb_typeof(headers) = 'object'::text)),
    CONSTRAINT _endpoint_key_check CHECK ((key <> ''::text)),
    CONSTRAINT _endpoint_name_check CHECK ((name ~ '^[a-z0-9._-]{1,90}$'::text)),
    CONSTRAINT _endpoint_rate_check CHECK ((rate > 0)),
    CONSTRAINT _endpoint_types_check CHECK (((cardinality(types) >= 1) AND (cardinality(types) <= 100))),
    CONSTRAINT _endpoint_url_check CHECK (((url ~ '^https?://'::text) AND (length(url) <= 2048)))
);

CREATE TABLE outlast._event (
    slot smallint NOT NULL,
    schema_version smallint NOT NULL,
    id bigint NOT NULL,
    xid xid8 NOT NULL,
    event_id uuid NOT NULL,
    emitted_at timestamp with time zone NOT NULL,
    aggregate_version bigint,
    key_seq bigint,
    correlation_id uuid,
    causation_id uuid,
    type text NOT NULL,
    tenant text NOT NULL,
    key text,
    source text,
    subject text,
    actor text,
    traceparent text,
    content_type text NOT NULL,
    codec_key text,
    headers jsonb,
    payload bytea NOT NULL
)
PARTITION BY LIST (slot);

CREATE TABLE outlast._parked_key (
    consumer integer NOT NULL,
    tenant text NOT NULL,
    key text NOT NULL,
    leader uuid NOT NULL,
    behind integer DEFAULT 0 NOT NULL,
    at_limit boolean DEFAULT false NOT NULL,
    since timestamp with time zone NOT NULL,
    CONSTRAINT _parked_key_behind_check CHECK ((behind >= 0))
);

CREATE TABLE outlast._account_limit (
    name text NOT NULL,
    concurrency integer,
    rate double precision,
    burst integer DEFAULT 1 NOT NULL,
    circuit integer DEFAULT 5 NOT NULL,
    circuit_pause_s integer DEFAULT 60 NOT NULL,
    tokens double precision DEFAULT 1 NOT NULL,
    filled_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    changed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT _account_limit_burst_check CHECK (((burst >= 1) AND (burst <= 100000))),
    CONSTRAINT _account_limit_circuit_check CHECK (((circuit >= 1) AND (circuit <= 1000))),
    CONSTRAINT _account_limit_circuit_pause_s_check CHECK (((circuit_pause_s >= 1) AND (circuit_pause_s <= 3600))),
    CONSTRAINT _account_limit_concurrency_check CHECK (((concurrency >= 1) AND (concurrency <= 10000))),
    CONSTRAINT _account_limit_name_check CHECK (((name <> ''::text) AND (length(name) <= 200))),
    CONSTRAINT _account_limit_rate_check CHECK (((rate > (0)::double precision) AND (rate <= (100000)::double precision)))
);

CREATE TABLE outlast._processed_event (
    event_id uuid NOT NULL,
    at timestamp with time zone NOT NULL,
    consumer integer NOT NULL,
    slot smallint NOT NULL,
    outcome outlast._outcome NOT NULL,
    reason text
)
PARTITION BY LIST (slot);

CREATE TABLE outlast._command (
    id uuid NOT NULL,
    provider_key text NOT NULL,
    was text,
    state text NOT NULL,
    version integer DEFAULT 0 NOT NULL,
    next "char" DEFAULT 's'::"char" NOT NULL,
    sent boolean DEFAULT false NOT NULL,
    first_sent_at timestamp with time zone,
    ambiguous boolean DEFAULT false NOT NULL,
    restored boolean DEFAULT false NOT NULL,
    not_applied boolean DEFAULT false NOT NULL,
    resend_ms bigint,
    looks_up boolean DEFAULT false NOT NULL,
    replays boolean DEFAULT false NOT NULL,
    polls_ms bigint,
    unknown_at timestamp with time zone,
    pending_until timestamp with time zone,
    looks integer DEFAULT 0 NOT NULL,
    reference text,
    answer bytea,
    supersedes uuid,
    CONSTRAINT _command_check CHECK ((((was || ' '::text) || state) = ANY (ARRAY['waiting running'::text, 'waiting settled'::text, 'waiting rejected'::text, 'waiting obsolete'::text, 'waiting cancelled'::text, 'waiting abandoned'::text, 'running waiting'::text, 'running pending'::text, 'running unknown'::text, 'running settled'::text, 'running rejected'::text, 'running obsolete'::text, 'pending settled'::text, 'pending rejected'::text, 'pending abandoned'::text, 'unknown waiting'::text, 'unknown pending'::text, 'unknown settled'::text, 'unknown rejected'::text, 'unknown abandoned'::text]))),
    CONSTRAINT _command_check1 CHECK (((was IS NOT NULL) OR (state = 'waiting'::text))),
    CONSTRAINT _command_check2 CHECK ((sent = (first_sent_at IS NOT NULL))),
    CONSTRAINT _command_check3 CHECK (((state <> ALL (ARRAY['running'::text, 'pending'::text, 'unknown'::text])) OR sent)),
    CONSTRAINT _command_next_check CHECK ((next = ANY (ARRAY['s'::"char", 'l'::"char", 'p'::"char"])))
);

CREATE TABLE outlast._outbox (
    name text NOT NULL,
    broker text NOT NULL,
    ordered boolean NOT NULL,
    definition jsonb NOT NULL,
    identity text NOT NULL,
    changed_at timestamp with time zone NOT NULL,
    CONSTRAINT _outbox_broker_check CHECK ((broker ~ '^[a-z0-9._-]{1,90}$'::text)),
    CONSTRAINT _outbox_definition_check CHECK ((jsonb_typeof((definition -> 'columns'::text)) = 'object'::text)),
    CONSTRAINT _outbox_identity_check CHECK ((identity <> ''::text)),
    CONSTRAINT _outbox_name_check CHECK ((name ~ '^[a-z0-9._-]{1,90}$'::text))
);

CREATE TABLE outlast._outbox_row (
    consumer integer NOT NULL,
    row_id text NOT NULL,
    row_at bigint NOT NULL,
    event_id uuid NOT NULL,
    token uuid,
    n integer NOT NULL,
    tenant text,
    key text,
    lapses integer DEFAULT 0 NOT NULL,
    since timestamp with time zone NOT NULL,
    CONSTRAINT _outbox_row_check CHECK (((key IS NULL) OR (tenant IS NOT NULL)))
);

CREATE TABLE outlast._route (
    name text NOT NULL,
    broker text NOT NULL,
    topic text NOT NULL,
    types text[] NOT NULL,
    ordered boolean NOT NULL,
    start text NOT NULL,
    attributes jsonb NOT NULL,
    limits jsonb,
    changed_at timestamp with time zone NOT NULL,
    CONSTRAINT _route_attributes_check CHECK ((jsonb_typeof(attributes) = 'object'::text)),
    CONSTRAINT _route_broker_check CHECK ((broker ~ '^[a-z0-9._-]{1,90}$'::text)),
    CONSTRAINT _route_limits_check CHECK ((jsonb_typeof(limits) = 'object'::text)),
    CONSTRAINT _route_name_check CHECK ((name ~ '^[a-z0-9._-]{1,90}$'::text)),
    CONSTRAINT _route_start_check CHECK ((start = ANY (ARRAY['now'::text, 'earliest'::text]))),
    CONSTRAINT _route_topic_check CHECK (((length(topic) >= 1) AND (length(topic) <= 500))),
    CONSTRAINT _route_types_check CHECK (((cardinality(types) >= 1) AND (cardinality(types) <= 1000)))
);

CREATE FUNCTION outlast.abandon_entity(name text, entity_id text, reason text, tenant text DEFAULT ''::text, actor text DEFAULT NULL::text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.abandon_job(id uuid, reason text, actor text DEFAULT NULL::text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS ..;

CREATE FUNCTION outlast.cancel(id uuid, reason text, tenant text DEFAULT ''::text, actor text DEFAULT NULL::text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS ..;

CREATE FUNCTION outlast.cancel_key(name text, key text, reason text, tenant text DEFAULT ''::text, actor text DEFAULT NULL::text, kind text DEFAULT 'job'::text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.cancel_rewind(route text, actor text DEFAULT NULL::text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.change_lanes(consumer text, lanes integer, actor text DEFAULT NULL::text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '8s'
    AS ..;

CREATE FUNCTION outlast.changed(name text, entity_id text, tenant text DEFAULT ''::text, exclusive text DEFAULT NULL::text, payload text DEFAULT NULL::text, version integer DEFAULT 1, actor text DEFAULT NULL::text, correlation_id uuid DEFAULT NULL::uuid, causation_id uuid DEFAULT NULL::uuid, traceparent text DEFAULT NULL::text, bytes bytea DEFAULT NULL::bytea, content_type text DEFAULT 'application/json'::text, codec_key text DEFAULT NULL::text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.claim(kind text, name text, n integer DEFAULT 1, lease_ms integer DEFAULT 15000, holder text DEFAULT NULL::text) RETURNS TABLE(token uuid, id uuid, key text, tenant text, attempt integer, version integer, payload bytea, content_type text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.clock() RETURNS timestamp with time zone
    LANGUAGE sql PARALLEL SAFE
    AS ..;

CREATE FUNCTION outlast.command(name text, payload text, key text, tenant text DEFAULT ''::text, account text DEFAULT NULL::text, exclusive text DEFAULT NULL::text, after_ms bigint DEFAULT NULL::bigint, at timestamp with time zone DEFAULT NULL::timestamp with time zone, priority integer DEFAULT 0, version integer DEFAULT 1, attempts integer DEFAULT NULL::integer, lifetime_ms bigint DEFAULT 0, supersedes uuid DEFAULT NULL::uuid, source text DEFAULT NULL::text, actor text DEFAULT NULL::text, correlation_id uuid DEFAULT NULL::uuid, causation_id uuid DEFAULT NULL::uuid, traceparent text DEFAULT NULL::text, bytes bytea DEFAULT NULL::bytea, codec_key text DEFAULT NULL::text, digest bytea DEFAULT NULL::bytea, OUT id uuid, OUT new boolean, OUT conflict boolean, OUT expired boolean, OUT first_digest bytea, OUT xid xid8) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.complete(token uuid, id uuid, outcome text DEFAULT 'done'::text, reason text DEFAULT NULL::text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.deleted(name text, entity_id text, refs text, tenant text DEFAULT ''::text, exclusive text DEFAULT NULL::text, payload text DEFAULT NULL::text, version integer DEFAULT 1, actor text DEFAULT NULL::text, correlation_id uuid DEFAULT NULL::uuid, causation_id uuid DEFAULT NULL::uuid, traceparent text DEFAULT NULL::text, bytes bytea DEFAULT NULL::bytea, content_type text DEFAULT 'application/json'::text, codec_key text DEFAULT NULL::text, refs_bytes bytea DEFAULT NULL::bytea, refs_codec_key text DEFAULT NULL::text, refs_digest bytea DEFAULT NULL::bytea) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.discard(consumer text, id uuid, reason text, actor text DEFAULT NULL::text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.discard_settlement(name text, key text, reason text, tenant text DEFAULT ''::text, actor text DEFAULT NULL::text) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.emit(type text, payload jsonb, key text DEFAULT NULL::text, tenant text DEFAULT ''::text, dedup text DEFAULT NULL::text, version integer DEFAULT 1, event_id uuid DEFAULT NULL::uuid, source text DEFAULT NULL::text, subject text DEFAULT NULL::text, aggregate_version bigint DEFAULT NULL::bigint, actor text DEFAULT NULL::text, correlation_id uuid DEFAULT NULL::uuid, causation_id uuid DEFAULT NULL::uuid, traceparent text DEFAULT NULL::text, headers jsonb DEFAULT NULL::jsonb, codec_key text DEFAULT NULL::text, strict_key boolean DEFAULT false, OUT id uuid, OUT new boolean, OUT conflict boolean, OUT expired boolean, OUT first_digest bytea, OUT xid xid8) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.emit(type text, payload text DEFAULT NULL::text, key text DEFAULT NULL::text, tenant text DEFAULT ''::text, dedup text DEFAULT NULL::text, version integer DEFAULT 1, event_id uuid DEFAULT NULL::uuid, source text DEFAULT NULL::text, subject text DEFAULT NULL::text, aggregate_version bigint DEFAULT NULL::bigint, actor text DEFAULT NULL::text, correlation_id uuid DEFAULT NULL::uuid, causation_id uuid DEFAULT NULL::uuid, traceparent text DEFAULT NULL::text, headers jsonb DEFAULT NULL::jsonb, bytes bytea DEFAULT NULL::bytea, content_type text DEFAULT 'application/json'::text, codec_key text DEFAULT NULL::text, strict_key boolean DEFAULT false, digest bytea DEFAULT NULL::bytea, OUT id uuid, OUT new boolean, OUT conflict boolean, OUT expired boolean, OUT first_digest bytea, OUT xid xid8) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.emit_all(type text, payloads text[], keys text[] DEFAULT NULL::text[], tenant text DEFAULT ''::text, version integer DEFAULT 1, source text DEFAULT NULL::text, actor text DEFAULT NULL::text, correlation_id uuid DEFAULT NULL::uuid, causation_id uuid DEFAULT NULL::uuid, traceparent text DEFAULT NULL::text) RETURNS TABLE(ord integer, id uuid, xid xid8)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.enqueue(name text, payload text DEFAULT NULL::text, key text DEFAULT NULL::text, tenant text DEFAULT ''::text, after_ms bigint DEFAULT NULL::bigint, at timestamp with time zone DEFAULT NULL::timestamp with time zone, priority integer DEFAULT 0, version integer DEFAULT 1, attempts integer DEFAULT NULL::integer, lifetime_ms bigint DEFAULT NULL::bigint, source text DEFAULT NULL::text, actor text DEFAULT NULL::text, correlation_id uuid DEFAULT NULL::uuid, causation_id uuid DEFAULT NULL::uuid, traceparent text DEFAULT NULL::text, bytes bytea DEFAULT NULL::bytea, content_type text DEFAULT 'application/json'::text, codec_key text DEFAULT NULL::text, digest bytea DEFAULT NULL::bytea, OUT id uuid, OUT new boolean, OUT conflict boolean, OUT expired boolean, OUT first_digest bytea, OUT xid xid8) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.entity_status(name text, entity_id text, tenant text DEFAULT ''::text) RETURNS TABLE(id uuid, state text, reason text, attempt integer, marked_at timestamp with time zone, due_at timestamp with time zone, converged_at timestamp with time zone, incident_at timestamp with time zone, tombstones integer, unfolded integer)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS ..;

CREATE FUNCTION outlast.entity_try(token uuid, id uuid) RETURNS TABLE(fence bigint, refs text, tombstone bigint, deleted text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.exclude(key text, lease_ms integer DEFAULT 15000, tenant text DEFAULT ''::text, holder text DEFAULT NULL::text) RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.fail(token uuid, id uuid, class text, reason text, after_ms bigint DEFAULT NULL::bigint) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.fence(token uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.forget_refs(name text, entity_id text, reason text, tenant text DEFAULT ''::text, actor text DEFAULT NULL::text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS ..;

CREATE FUNCTION outlast.keep(token uuid, id uuid, refs text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.limit_account(account text, concurrency integer DEFAULT NULL::integer, rate double precision DEFAULT NULL::double precision, burst integer DEFAULT 1, circuit integer DEFAULT 5, circuit_pause_s integer DEFAULT 60, actor text DEFAULT NULL::text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.note_refs(name text, entity_id text, reason text, tenant text DEFAULT ''::text, actor text DEFAULT NULL::text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.pause(consumer text, reason text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.pause_account(account text, reason text, actor text DEFAULT NULL::text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.pause_entity(name text, reason text, actor text DEFAULT NULL::text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.pause_job(name text, reason text, actor text DEFAULT NULL::text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.record(token uuid, id uuid, result text, answer bytea DEFAULT NULL::bytea, reference text DEFAULT NULL::text, reason text DEFAULT NULL::text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.register(consumer text, types text[], start text DEFAULT 'now'::text, ordered boolean DEFAULT false, lanes integer DEFAULT 16) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.release(token uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.remove_type(consumer text, type text, reason text, actor text DEFAULT NULL::text) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '8s'
    AS ..;

CREATE FUNCTION outlast.rename_consumer(old text, new text, actor text DEFAULT NULL::text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.renew(token uuid, lease_ms integer DEFAULT 15000) RETURNS timestamp with time zone
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.resolve(id uuid, as_state text, reason text, reference text DEFAULT NULL::text, answer text DEFAULT NULL::text, actor text DEFAULT NULL::text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.resume(consumer text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.resume_account(account text, actor text DEFAULT NULL::text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.resume_entity(name text, actor text DEFAULT NULL::text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.resume_job(name text, actor text DEFAULT NULL::text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.retire_consumer(consumer text, reason text, actor text DEFAULT NULL::text) RETURNS jsonb
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '8s'
    AS ..;

CREATE FUNCTION outlast.retry(consumer text, id uuid, actor text DEFAULT NULL::text, OUT outcome text, OUT behind integer, OUT changed boolean) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.retry_entity(name text, entity_id text, tenant text DEFAULT ''::text, actor text DEFAULT NULL::text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.retry_job(id uuid, actor text DEFAULT NULL::text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS ..;

CREATE FUNCTION outlast.rewind(route text, since timestamp with time zone, until timestamp with time zone DEFAULT NULL::timestamp with time zone, reason text DEFAULT NULL::text, actor text DEFAULT NULL::text, OUT id bigint, OUT round integer, OUT events bigint) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.rewind_size(route text, since timestamp with time zone, until timestamp with time zone DEFAULT NULL::timestamp with time zone, OUT events bigint, OUT bytes bigint, OUT first timestamp with time zone, OUT last timestamp with time zone) RETURNS record
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.sent(token uuid, id uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.settle(name text, key text, state text DEFAULT 'settled'::text, answer text DEFAULT NULL::text, reference text DEFAULT NULL::text, reason text DEFAULT NULL::text, tenant text DEFAULT ''::text, actor text DEFAULT NULL::text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.skip(consumer text, id uuid, reason text, actor text DEFAULT NULL::text, OUT outcome text, OUT behind integer, OUT next uuid) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE FUNCTION outlast.status(id uuid, tenant text DEFAULT ''::text) RETURNS TABLE(kind text, name text, key text, state text, reason text, attempt integer, accepted_at timestamp with time zone, due_at timestamp with time zone, ended_at timestamp with time zone, incident_at timestamp with time zone)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS ..;

CREATE TABLE outlast._account (
    name text NOT NULL,
    paused_until timestamp with time zone NOT NULL,
    failures integer DEFAULT 0 NOT NULL,
    reason text,
    actor text,
    since timestamp with time zone NOT NULL
);

CREATE SEQUENCE outlast._arrival
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

CREATE TABLE outlast._audit (
    id bigint NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    about text NOT NULL,
    detail jsonb
);

ALTER TABLE outlast._audit ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME outlast._audit_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

ALTER TABLE outlast._consumer ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME outlast._consumer_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE outlast._consumer_type (
    consumer integer NOT NULL,
    type text NOT NULL,
    since outlast._cut
);

CREATE TABLE outlast._contradiction (
    command uuid NOT NULL,
    at timestamp with time zone NOT NULL,
    state text NOT NULL,
    reason text
);

CREATE TABLE outlast._dedup (
    tenant text NOT NULL,
    type text NOT NULL,
    key text NOT NULL,
    rule smallint NOT NULL,
    digest bytea NOT NULL,
    event_id uuid NOT NULL,
    taken_at timestamp with time zone NOT NULL
);

CREATE TABLE outlast._delivered (
    consumer integer NOT NULL,
    event_id uuid NOT NULL,
    token uuid,
    lapses integer DEFAULT 0 NOT NULL,
    suspect boolean DEFAULT false NOT NULL,
    foreign_at timestamp with time zone,
    tenant text,
    key text,
    log_id bigint,
    since timestamp with time zone NOT NULL,
    envelope jsonb,
    payload bytea,
    CONSTRAINT _delivered_check CHECK (((key IS NULL) OR ((tenant IS NOT NULL) AND (log_id IS NOT NULL)))),
    CONSTRAINT _delivered_check1 CHECK (((envelope IS NULL) = (payload IS NULL))),
    CONSTRAINT _delivered_check2 CHECK (((envelope IS NULL) OR (token IS NOT NULL)))
);

CREATE TABLE outlast._entity_look (
    xid xid8 NOT NULL,
    below bigint NOT NULL,
    next bigint NOT NULL,
    at timestamp with time zone NOT NULL
);

CREATE TABLE outlast._entity_mark (
    id bigint NOT NULL,
    name text NOT NULL,
    tenant text NOT NULL,
    entity_id text NOT NULL,
    exclusive text,
    schema_version smallint NOT NULL,
    marked_at timestamp with time zone NOT NULL,
    correlation_id uuid,
    causation_id uuid,
    actor text,
    traceparent text,
    content_type text NOT NULL,
    codec_key text,
    payload bytea,
    refs bytea,
    refs_codec_key text,
    refs_digest bytea,
    CONSTRAINT _entity_mark_check CHECK (((refs IS NULL) = (refs_digest IS NULL)))
);

CREATE TABLE outlast._event_0 (
    slot smallint NOT NULL,
    schema_version smallint NOT NULL,
    id bigint NOT NULL,
    xid xid8 NOT NULL,
    event_id uuid NOT NULL,
    emitted_at timestamp with time zone NOT NULL,
    aggregate_version bigint,
    key_seq bigint,
    correlation_id uuid,
    causation_id uuid,
    type text NOT NULL,
    tenant text NOT NULL,
    key text,
    source text,
    subject text,
    actor text,
    traceparent text,
    content_type text NOT NULL,
    codec_key text,
    headers jsonb,
    payload bytea NOT NULL
);

CREATE SEQUENCE outlast._event_id
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

CREATE TABLE outlast._evidence (
    id bigint NOT NULL,
    command uuid NOT NULL,
    at timestamp with time zone NOT NULL,
    what text NOT NULL,
    result text,
    state text NOT NULL,
    moved boolean NOT NULL,
    reference text,
    reason text,
    digest bytea,
    actor text
);

ALTER TABLE outlast._evidence ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME outlast._evidence_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE outlast._exclusive (
    tenant text NOT NULL,
    key text NOT NULL,
    seq bigint NOT NULL,
    id uuid NOT NULL,
    held boolean DEFAULT false NOT NULL,
    blocked boolean DEFAULT false NOT NULL,
    CONSTRAINT _exclusive_check CHECK ((NOT (held AND blocked)))
);

CREATE TABLE outlast._flush (
    token uuid NOT NULL,
    events integer NOT NULL,
    ids_xor bigint NOT NULL
);

CREATE TABLE outlast._fold_place (
    consumer integer NOT NULL,
    next bigint NOT NULL
);

CREATE TABLE outlast._folded (
    consumer integer NOT NULL,
    base bigint NOT NULL,
    done bytea NOT NULL,
    completed integer NOT NULL,
    oldest_at timestamp with time zone NOT NULL,
    newest_at timestamp with time zone NOT NULL,
    folded_at timestamp with time zone NOT NULL,
    CONSTRAINT _folded_base_check CHECK (((base % (8192)::bigint) = 0)),
    CONSTRAINT _folded_completed_check CHECK (((completed >= 1) AND (completed <= 8192))),
    CONSTRAINT _folded_done_check CHECK ((octet_length(done) = 1024))
);

CREATE TABLE outlast._foreign_event (
    consumer integer NOT NULL,
    event_id uuid NOT NULL,
    at timestamp with time zone NOT NULL,
    emitted_at timestamp with time zone NOT NULL,
    outcome outlast._outcome NOT NULL,
    reason text
);

CREATE TABLE outlast._foreign_place (
    one boolean DEFAULT true NOT NULL,
    forgotten_until timestamp with time zone,
    CONSTRAINT _foreign_place_one_check CHECK (one)
);

CREATE TABLE outlast._former_name (
    name text NOT NULL,
    consumer integer NOT NULL,
    renamed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE outlast._functions (
    digest text NOT NULL,
    applied_by text NOT NULL,
    applied_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE outlast._house (
    one boolean DEFAULT true NOT NULL,
    deployment text,
    database_oid oid NOT NULL,
    stopped text,
    held text,
    confirmed bigint DEFAULT 0 NOT NULL,
    base bigint DEFAULT 0 NOT NULL,
    installed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT _house_one_check CHECK (one)
);

CREATE TABLE outlast._job_claimed (
    id uuid NOT NULL,
    token uuid NOT NULL,
    account text DEFAULT ''::text NOT NULL,
    started boolean DEFAULT false NOT NULL
);

CREATE TABLE outlast._job_end (
    id uuid NOT NULL,
    at timestamp with time zone NOT NULL,
    state outlast._job_end_state NOT NULL,
    reason text
);

CREATE TABLE outlast._job_key (
    tenant text NOT NULL,
    kind outlast._job_kind NOT NULL,
    name text NOT NULL,
    key text NOT NULL,
    job uuid NOT NULL,
    rule smallint NOT NULL,
    digest bytea NOT NULL,
    taken_at timestamp with time zone NOT NULL,
    lives_until timestamp with time zone
);

CREATE TABLE outlast._job_later (
    id uuid NOT NULL,
    due_at timestamp with time zone NOT NULL,
    name text NOT NULL,
    alone boolean NOT NULL
);

CREATE TABLE outlast._job_look (
    at timestamp with time zone NOT NULL
);

CREATE TABLE outlast._job_pause (
    name text NOT NULL,
    reason text NOT NULL,
    actor text NOT NULL,
    since timestamp with time zone NOT NULL
);

CREATE TABLE outlast._job_ready (
    seq bigint NOT NULL,
    priority smallint NOT NULL,
    id uuid NOT NULL,
    name text NOT NULL,
    account text NOT NULL,
    tenant text NOT NULL
);

CREATE TABLE outlast._job_state (
    id uuid NOT NULL,
    failures integer DEFAULT 0 NOT NULL,
    lapses integer DEFAULT 0 NOT NULL,
    crashes integer DEFAULT 0 NOT NULL,
    class text,
    reason text,
    signature text,
    incident_at timestamp with time zone,
    cancel text,
    cancel_by text,
    changed_at timestamp with time zone NOT NULL
);

CREATE TABLE outlast._key_seq (
    tenant text NOT NULL,
    type text NOT NULL,
    key text NOT NULL,
    last bigint NOT NULL
);

CREATE TABLE outlast._late_refs (
    id bigint NOT NULL,
    entity uuid NOT NULL,
    at timestamp with time zone NOT NULL,
    token uuid NOT NULL,
    refs bytea NOT NULL,
    codec_key text
);

ALTER TABLE outlast._late_refs ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME outlast._late_refs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE outlast._lease_floor (
    consumer integer NOT NULL,
    lane integer NOT NULL,
    seq bigint NOT NULL
);

CREATE TABLE outlast._marker (
    own_xid bigint NOT NULL
);

CREATE TABLE outlast._migration (
    version integer NOT NULL,
    name text NOT NULL,
    breaking boolean NOT NULL,
    applied_by text NOT NULL,
    applied_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE outlast._missing (
    process uuid NOT NULL,
    told bigint NOT NULL,
    known bigint,
    found_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE outlast._moved_event (
    slot smallint NOT NULL,
    consumer integer NOT NULL,
    event_id uuid NOT NULL,
    at timestamp with time zone NOT NULL,
    outcome outlast._outcome NOT NULL,
    reason text
);

CREATE TABLE outlast._outage (
    consumer integer NOT NULL,
    process uuid NOT NULL,
    since timestamp with time zone NOT NULL,
    seen_at timestamp with time zone NOT NULL,
    probes integer DEFAULT 0 NOT NULL,
    reason text
);

CREATE TABLE outlast._parked (
    consumer integer NOT NULL,
    event_id uuid NOT NULL,
    log_id bigint NOT NULL,
    state text NOT NULL,
    class text NOT NULL,
    failures integer DEFAULT 0 NOT NULL,
    crashes integer DEFAULT 0 NOT NULL,
    reason text,
    signature text,
    next_at timestamp with time zone,
    token uuid,
    parked_at timestamp with time zone NOT NULL,
    changed_at timestamp with time zone NOT NULL,
    schema_version smallint NOT NULL,
    emitted_at timestamp with time zone NOT NULL,
    aggregate_version bigint,
    key_seq bigint,
    correlation_id uuid,
    causation_id uuid,
    type text NOT NULL,
    tenant text NOT NULL,
    key text,
    source text,
    subject text,
    actor text,
    traceparent text,
    content_type text NOT NULL,
    codec_key text,
    headers jsonb,
    payload bytea NOT NULL,
    foreign_id boolean DEFAULT false NOT NULL,
    CONSTRAINT _parked_check CHECK (((state = 'retry'::text) = (next_at IS NOT NULL))),
    CONSTRAINT _parked_check1 CHECK (((state = 'retry'::text) OR (token IS NULL))),
    CONSTRAINT _parked_check2 CHECK (((state <> 'behind'::text) OR (key IS NOT NULL))),
    CONSTRAINT _parked_class_check CHECK ((class = ANY (ARRAY['retry'::text, 'throttled'::text, 'unknown'::text, 'permanent'::text, 'unclassified'::text, 'unsealed'::text, 'crashed'::text, 'waiting-version'::text, 'behind'::text, 'too-old'::text, 'dead-letter'::text]))),
    CONSTRAINT _parked_state_check CHECK ((state = ANY (ARRAY['retry'::text, 'behind'::text, 'quarantined'::text, 'waiting-version'::text])))
);

CREATE TABLE outlast._process (
    process uuid NOT NULL,
    seq bigint NOT NULL,
    nonce uuid NOT NULL,
    written_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    server timestamp with time zone DEFAULT pg_postmaster_start_time() NOT NULL
);

CREATE TABLE outlast._processed_event_0 (
    event_id uuid NOT NULL,
    at timestamp with time zone NOT NULL,
    consumer integer NOT NULL,
    slot smallint NOT NULL,
    outcome outlast._outcome NOT NULL,
    reason text
);

CREATE TABLE outlast._rewind (
    id bigint NOT NULL,
    consumer integer NOT NULL,
    round integer NOT NULL,
    since timestamp with time zone NOT NULL,
    until timestamp with time zone NOT NULL,
    hi bigint NOT NULL,
    period bigint NOT NULL,
    at_id bigint NOT NULL,
    events bigint NOT NULL,
    sent bigint DEFAULT 0 NOT NULL,
    refused bigint DEFAULT 0 NOT NULL,
    state text DEFAULT 'running'::text NOT NULL,
    reason text,
    actor text NOT NULL,
    asked_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone,
    CONSTRAINT _rewind_check CHECK ((until > since)),
    CONSTRAINT _rewind_check1 CHECK (((state = 'running'::text) = (ended_at IS NULL))),
    CONSTRAINT _rewind_round_check CHECK ((round > 0)),
    CONSTRAINT _rewind_state_check CHECK ((state = ANY (ARRAY['running'::text, 'done'::text, 'cancelled'::text])))
);

ALTER TABLE outlast._rewind ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME outlast._rewind_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE outlast._ring_slot (
    ring text NOT NULL,
    slot smallint NOT NULL,
    passed_at timestamp with time zone,
    removable_at timestamp with time zone,
    tried_at timestamp with time zone,
    swept_until timestamp with time zone,
    emptied_until timestamp with time zone,
    CONSTRAINT _ring_slot_ring_check CHECK ((ring = ANY (ARRAY['log'::text, 'inbox'::text]))),
    CONSTRAINT _ring_slot_slot_check CHECK (((slot >= 0) AND (slot <= 15)))
);

CREATE TABLE outlast._server (
    started timestamp with time zone NOT NULL,
    timeline text NOT NULL,
    replayed timestamp with time zone,
    seen_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE outlast._setting (
    name text NOT NULL,
    value text NOT NULL,
    changed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE outlast._settlement (
    id bigint NOT NULL,
    tenant text NOT NULL,
    name text NOT NULL,
    key text NOT NULL,
    nth integer NOT NULL,
    state text NOT NULL,
    answer bytea,
    reference text,
    reason text,
    actor text NOT NULL,
    at timestamp with time zone NOT NULL,
    CONSTRAINT _settlement_state_check CHECK ((state = ANY (ARRAY['settled'::text, 'rejected'::text, 'obsolete'::text])))
);

ALTER TABLE outlast._settlement ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME outlast._settlement_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE outlast._started (
    token uuid NOT NULL,
    seq bigint NOT NULL,
    ids uuid[] NOT NULL
);

CREATE TABLE outlast._tombstone (
    id bigint NOT NULL,
    entity uuid NOT NULL,
    digest bytea NOT NULL,
    refs bytea NOT NULL,
    codec_key text,
    actor text,
    deleted_at timestamp with time zone NOT NULL
);

CREATE TABLE outlast._unfolded (
    slot smallint NOT NULL,
    consumer integer NOT NULL,
    event_id uuid NOT NULL
);

CREATE TABLE outlast._unreadable (
    consumer integer NOT NULL,
    id uuid NOT NULL,
    seen bigint DEFAULT 1 NOT NULL,
    first_at timestamp with time zone NOT NULL,
    last_at timestamp with time zone NOT NULL,
    broker_id text NOT NULL,
    why text NOT NULL,
    attributes bytea NOT NULL,
    payload bytea NOT NULL
);

CREATE VIEW outlast.account AS
 SELECT COALESCE(a.name, l.name) AS name,
        CASE
            WHEN (a.paused_until > outlast.clock()) THEN a.paused_until
            ELSE NULL::timestamp with time zone
        END AS paused_until,
    COALESCE(a.failures, 0) AS failures,
    a.reason,
    a.actor,
    a.since,
    l.concurrency,
    l.rate,
    l.burst,
    COALESCE(l.circuit, 5) AS circuit,
    COALESCE(l.circuit_pause_s, 60) AS circuit_pause_s
   FROM (outlast._account a
     FULL JOIN outlast._account_limit l ON ((l.name = a.name)));

CREATE VIEW outlast.command AS
 SELECT j.id,
    j.name,
    j.tenant,
    j.key,
    m.state,
    m.version AS moves,
    j.account,
    m.provider_key,
    m.sent,
    m.first_sent_at,
    m.reference,
    m.answer,
    s.class,
    s.reason,
    s.attempt,
    s.due_at,
    s.ended_at,
    s.incident_at,
    m.unknown_at,
    m.pending_until,
    m.supersedes,
    j.priority,
    j.accepted_at,
    j.schema_version AS version,
    j.source,
    j.actor,
    j.correlation_id,
    j.causation_id,
    j.payload
   FROM ((outlast._job j
     JOIN outlast._command m ON ((m.id = j.id)))
     CROSS JOIN LATERAL outlast._job_status(j.id) s(state, reason, attempt, due_at, ended_at, incident_at, class));

CREATE VIEW outlast.outage AS
 SELECT c.name AS consumer,
    o.process,
    o.since,
    o.seen_at,
    o.probes,
    o.reason
   FROM (outlast._outage o
     JOIN outlast._consumer c ON ((c.id = o.consumer)))
  WHERE (o.seen_at > (outlast.clock() - '00:05:00'::interval));

CREATE VIEW outlast.consumer AS
 SELECT c.name,
    c.state,
    c.reason,
    c.ordered,
    c.lanes,
    c.start,
    c.owner,
    c.attempts,
    c.created_at,
    ( SELECT array_agg(t.type ORDER BY t.type) AS array_agg
           FROM outlast._consumer_type t
          WHERE (t.consumer = c.id)) AS types,
    s.ids AS ids_behind,
    ( SELECT count(*) AS count
           FROM outlast._lease l
          WHERE ((l.consumer = c.id) AND (l.lane IS NOT NULL) AND ((l.room)::text = 'batch'::text))) AS batches,
    (( SELECT COALESCE(sum(b.events), (0)::bigint) AS "coalesce"
           FROM (outlast._lease l
             JOIN outlast._batch b ON (((b.consumer = l.consumer) AND (b.lane = l.lane) AND (b.seq = l.seq))))
          WHERE ((l.consumer = c.id) AND (l.lane IS NOT NULL) AND ((l.room)::text = 'batch'::text))) + ( SELECT count(*) AS count
           FROM outlast._delivered d
          WHERE ((d.consumer = c.id) AND (d.token IS NOT NULL)))) AS in_flight,
    ( SELECT count(*) AS count
           FROM outlast._parked p
          WHERE ((p.consumer = c.id) AND (p.state = 'retry'::text))) AS retrying,
    ( SELECT count(*) AS count
           FROM outlast._parked p
          WHERE ((p.consumer = c.id) AND (p.state = 'quarantined'::text))) AS quarantined,
    ( SELECT count(*) AS count
           FROM outlast._parked p
          WHERE ((p.consumer = c.id) AND (p.state = 'waiting-version'::text))) AS waiting_version,
    ( SELECT min(p.parked_at) AS min
           FROM outlast._parked p
          WHERE (p.consumer = c.id)) AS oldest_parked_at,
    ( SELECT count(*) AS count
           FROM outlast._parked_key k
          WHERE (k.consumer = c.id)) AS blocked_keys,
    ( SELECT COALESCE(sum(k.behind), (0)::bigint) AS "coalesce"
           FROM outlast._parked_key k
          WHERE (k.consumer = c.id)) AS behind,
    ( SELECT count(*) AS count
           FROM outlast.outage o
          WHERE (o.consumer = c.name)) AS outages,
    ( SELECT o.reason
           FROM outlast.outage o
          WHERE (o.consumer = c.name)
          ORDER BY o.seen_at DESC
         LIMIT 1) AS outage,
    c.tenants,
    c.sources,
    c.lanes_wanted,
    s.bytes AS bytes_held,
    s.moved_at,
    s.side_lanes,
    ( SELECT array_agg(f.name ORDER BY f.renamed_at) AS array_agg
           FROM outlast._former_name f
          WHERE (f.consumer = c.id)) AS former_names,
    c.broker,
    c.topic,
    c.subscription,
    ( SELECT count(*) AS count
           FROM outlast._unreadable u
          WHERE (u.consumer = c.id)) AS unreadable,
    c.ack_ms
   FROM (outlast._consumer c
     CROSS JOIN LATERAL outlast._whereabouts(c.id) s(ids, bytes, side_lanes, moved_at));

CREATE VIEW outlast.entity AS
 SELECT e.id,
    COALESCE(e.name, m.name) AS name,
    COALESCE(e.tenant, m.tenant) AS tenant,
    COALESCE(e.entity_id, m.entity_id) AS entity_id,
        CASE
            WHEN (s.state <> 'done'::text) THEN s.state
            WHEN (m.n > 0) THEN 'waiting'::text
            ELSE 'converged'::text
        END AS state,
    s.class,
    s.reason,
    COALESCE(s.attempt, 0) AS attempt,
    GREATEST(e.marked_at, m.newest) AS marked_at,
    COALESCE(e.gone, false) AS gone,
    s.due_at,
        CASE
            WHEN (m.n IS NULL) THEN e.converged_at
            ELSE NULL::timestamp with time zone
        END AS converged_at,
    s.incident_at,
    COALESCE(e.again, false) AS again,
    COALESCE(m.n, (0)::bigint) AS unfolded,
    (e.refs IS NOT NULL) AS has_refs,
    ( SELECT count(*) AS count
           FROM outlast._tombstone t
          WHERE (t.entity = e.id)) AS tombstones,
    ( SELECT count(*) AS count
           FROM outlast._late_refs l
          WHERE (l.entity = e.id)) AS late_refs,
    e.exclusive,
    COALESCE(e.fence, (0)::bigint) AS fence,
    j.schema_version AS version,
    j.actor,
    j.correlation_id,
    j.causation_id,
    j.content_type,
    j.payload
   FROM (((outlast._entity e
     FULL JOIN ( SELECT x.name,
            x.tenant,
            x.entity_id,
            count(*) AS n,
            max(x.marked_at) AS newest
           FROM outlast._entity_mark x
          GROUP BY x.name, x.tenant, x.entity_id) m ON (((m.name = e.name) AND (m.tenant = e.tenant) AND (m.entity_id = e.entity_id))))
     LEFT JOIN outlast._job j ON ((j.id = e.id)))
     LEFT JOIN LATERAL outlast._job_status(e.id) s(state, reason, attempt, due_at, ended_at, incident_at, class) ON ((e.id IS NOT NULL)));

CREATE VIEW outlast.event AS
 SELECT _event.event_id AS id,
    _event.type,
    _event.schema_version AS version,
    _event.tenant,
    _event.key,
    _event.subject,
    _event.source,
    _event.actor,
    _event.aggregate_version,
    _event.correlation_id,
    _event.causation_id,
    _event.traceparent,
    _event.headers,
    _event.content_type,
    _event.payload,
    _event.emitted_at,
    _event.id AS log_id,
    _event.key_seq,
    _event.codec_key
   FROM outlast._event;

CREATE VIEW outlast.evidence AS
 SELECT e.command,
    e.at,
    e.what,
    e.result,
    e.state,
    e.moved,
    e.reference,
    e.reason,
    encode(e.digest, 'hex'::text) AS digest,
    e.actor,
    e.id
   FROM outlast._evidence e;

CREATE VIEW outlast.incident AS
SELECT
    NULL::text AS kind,
    NULL::text AS consumer,
    NULL::text AS owner,
    NULL::uuid AS about,
    NULL::text AS type,
    NULL::text AS tenant,
    NULL::text AS key,
    NULL::text AS class,
    NULL::integer AS failures,
    NULL::text AS reason,
    NULL::text AS signature,
    NULL::timestamp with time zone AS opened_at,
    NULL::integer AS version,
    NULL::bigint AS count;

CREATE VIEW outlast.job AS
 SELECT j.id,
    j.name,
    j.tenant,
    j.key,
    s.state,
    s.class,
    s.reason,
    s.attempt,
    j.priority,
    j.accepted_at,
    s.due_at,
    s.ended_at,
    s.incident_at,
    j.schema_version AS version,
    j.source,
    j.actor,
    j.correlation_id,
    j.causation_id,
    j.content_type,
    j.payload
   FROM (outlast._job j
     CROSS JOIN LATERAL outlast._job_status(j.id) s(state, reason, attempt, due_at, ended_at, incident_at, class))
  WHERE ((j.kind)::"char" = 'j'::"char");

CREATE VIEW outlast.lease AS
 SELECT l.token,
    l.room,
    c.name AS consumer,
    l.lane,
    l.seq,
    l.event_id,
    l.reclaims,
    l.process,
    l.holder,
    l.expires_at,
    (l.expires_at < outlast.clock()) AS lapsed
   FROM (outlast._lease l
     LEFT JOIN outlast._consumer c ON ((c.id = l.consumer)));

CREATE VIEW outlast.outbox AS
 SELECT o.name,
    o.broker,
    o.ordered,
    (o.definition ->> 'schema'::text) AS schema_name,
    (o.definition ->> 'table'::text) AS table_name,
    (o.definition ->> 'topic'::text) AS topic,
    o.identity,
    o.definition,
    o.changed_at,
    ('outbox/'::text || o.name) AS consumer
   FROM outlast._outbox o;

CREATE VIEW outlast.parked AS
 SELECT c.name AS consumer,
    p.event_id AS id,
    p.type,
    p.schema_version AS version,
    p.tenant,
    p.key,
    p.state,
    p.class,
    p.failures,
    p.crashes,
    p.reason,
    p.signature,
    p.next_at,
    (p.token IS NOT NULL) AS running,
    p.parked_at,
    p.changed_at,
    p.emitted_at,
    p.content_type,
    p.payload,
    p.log_id,
    k.behind,
        CASE
            WHEN (p.state = 'behind'::text) THEN h.leader
            ELSE NULL::uuid
        END AS waits_for,
    p.codec_key,
    p.subject
   FROM (((outlast._parked p
     JOIN outlast._consumer c ON ((c.id = p.consumer)))
     LEFT JOIN outlast._parked_key k ON (((k.consumer = p.consumer) AND (k.leader = p.event_id))))
     LEFT JOIN outlast._parked_key h ON (((p.state = 'behind'::text) AND (h.consumer = p.consumer) AND (h.tenant = p.tenant) AND (h.key = p.key))));

CREATE VIEW outlast.parked_key AS
 SELECT c.name AS consumer,
    k.tenant,
    k.key,
    k.leader,
    p.type,
    p.state,
    p.class,
    p.failures,
    p.reason,
    p.next_at,
    k.behind,
    k.at_limit AS lane_paused,
    k.since
   FROM ((outlast._parked_key k
     JOIN outlast._consumer c ON ((c.id = k.consumer)))
     LEFT JOIN outlast._parked p ON (((p.consumer = k.consumer) AND (p.event_id = k.leader))));

CREATE VIEW outlast.process AS
 SELECT p.process,
    max(p.seq) AS seq,
    max(p.written_at) AS last_at,
    bool_or((p.server = pg_postmaster_start_time())) AS reported
   FROM outlast._process p
  GROUP BY p.process;

CREATE VIEW outlast.processed AS
 SELECT c.name AS consumer,
    p.event_id AS id,
        CASE p.outcome
            WHEN 'd'::"char" THEN 'done'::text
            ELSE 'skipped'::text
        END AS outcome,
    p.reason,
    p.at
   FROM (outlast._processed_event p
     JOIN outlast._consumer c ON ((c.id = p.consumer)))
UNION ALL
 SELECT c.name AS consumer,
    e.event_id AS id,
    'done'::text AS outcome,
    NULL::text AS reason,
    NULL::timestamp with time zone AS at
   FROM ((outlast._event e
     CROSS JOIN outlast._consumer c)
     JOIN outlast._folded f ON (((f.consumer = c.id) AND (f.base = ((e.id / 8192) * 8192)))))
  WHERE ((get_bit(f.done, (((e.id % (8192)::bigint))::integer)::bigint) = 1) AND (NOT (EXISTS ( SELECT
           FROM outlast._processed_event p
          WHERE ((p.slot = outlast._inbox_slot(e.event_id)) AND (p.consumer = c.id) AND (p.event_id = e.event_id))))))
UNION ALL
 SELECT c.name AS consumer,
    f.event_id AS id,
        CASE f.outcome
            WHEN 'd'::"char" THEN 'done'::text
            ELSE 'skipped'::text
        END AS outcome,
    f.reason,
    f.at
   FROM (outlast._foreign_event f
     JOIN outlast._consumer c ON ((c.id = f.consumer)))
UNION ALL
 SELECT c.name AS consumer,
    m.event_id AS id,
        CASE m.outcome
            WHEN 'd'::"char" THEN 'done'::text
            ELSE 'skipped'::text
        END AS outcome,
    m.reason,
    m.at
   FROM (outlast._moved_event m
     JOIN outlast._consumer c ON ((c.id = m.consumer)));

CREATE VIEW outlast.rewind AS
 SELECT substr(c.name, 7) AS route,
    r.id,
    r.round,
    r.since,
    r.until,
    r.state,
    r.events,
    r.sent,
    r.refused,
    r.reason,
    r.actor,
    r.asked_at,
    r.ended_at
   FROM (outlast._rewind r
     JOIN outlast._consumer c ON ((c.id = r.consumer)));

CREATE VIEW outlast.route AS
 SELECT r.name,
    r.broker,
    r.topic,
    r.types,
    r.ordered,
    r.attributes,
    r.changed_at,
    ('relay/'::text || r.name) AS consumer,
    r.start,
    r.limits
   FROM outlast._route r;

CREATE VIEW outlast.unreadable AS
 SELECT c.name AS consumer,
    u.id,
    u.why,
    u.seen,
    u.first_at,
    u.last_at,
    u.broker_id,
    c.broker,
    c.topic,
    u.payload
   FROM (outlast._unreadable u
     JOIN outlast._consumer c ON ((c.id = u.consumer)));

ALTER TABLE ONLY outlast._event ATTACH PARTITION outlast._event_0 FOR VALUES IN ('0');

ALTER TABLE ONLY outlast._processed_event ATTACH PARTITION outlast._processed_event_0 FOR VALUES IN ('0');

ALTER TABLE ONLY outlast._account_limit
    ADD CONSTRAINT _account_limit_pkey PRIMARY KEY (name);

ALTER TABLE ONLY outlast._account
    ADD CONSTRAINT _account_pkey PRIMARY KEY (name);

ALTER TABLE ONLY outlast._audit
    ADD CONSTRAINT _audit_pkey PRIMARY KEY (id);

ALTER TABLE ONLY outlast._batch
    ADD CONSTRAINT _batch_pkey PRIMARY KEY (consumer, lane, seq);

ALTER TABLE ONLY outlast._command
    ADD CONSTRAINT _command_pkey PRIMARY KEY (id);

ALTER TABLE ONLY outlast._consumer
    ADD CONSTRAINT _consumer_name_key UNIQUE (name);

ALTER TABLE ONLY outlast._consumer
    ADD CONSTRAINT _consumer_pkey PRIMARY KEY (id);

ALTER TABLE ONLY outlast._consumer_type
    ADD CONSTRAINT _consumer_type_pkey PRIMARY KEY (consumer, type);

ALTER TABLE ONLY outlast._contradiction
    ADD CONSTRAINT _contradiction_pkey PRIMARY KEY (command);

ALTER TABLE ONLY outlast._dedup
    ADD CONSTRAINT _dedup_pkey PRIMARY KEY (tenant, type, key);

ALTER TABLE ONLY outlast._delivered
    ADD CONSTRAINT _delivered_pkey PRIMARY KEY (consumer, event_id);

ALTER TABLE ONLY outlast._endpoint
    ADD CONSTRAINT _endpoint_pkey PRIMARY KEY (name);

ALTER TABLE ONLY outlast._entity_look
    ADD CONSTRAINT _entity_look_pkey PRIMARY KEY (xid);

ALTER TABLE ONLY outlast._entity_mark
    ADD CONSTRAINT _entity_mark_pkey PRIMARY KEY (id, marked_at);

ALTER TABLE ONLY outlast._entity
    ADD CONSTRAINT _entity_name_tenant_entity_id_key UNIQUE (name, tenant, entity_id);

ALTER TABLE ONLY outlast._entity
    ADD CONSTRAINT _entity_pkey PRIMARY KEY (id);

ALTER TABLE ONLY outlast._event
    ADD CONSTRAINT _event_pkey PRIMARY KEY (slot, id);

ALTER TABLE ONLY outlast._event_0
    ADD CONSTRAINT _event_0_pkey PRIMARY KEY (slot, id);

ALTER TABLE ONLY outlast._evidence
    ADD CONSTRAINT _evidence_pkey PRIMARY KEY (id);

ALTER TABLE ONLY outlast._exclusive
    ADD CONSTRAINT _exclusive_id_key UNIQUE (id);

ALTER TABLE ONLY outlast._exclusive
    ADD CONSTRAINT _exclusive_pkey PRIMARY KEY (tenant, key, seq);

ALTER TABLE ONLY outlast._fold_place
    ADD CONSTRAINT _fold_place_pkey PRIMARY KEY (consumer, next);

ALTER TABLE ONLY outlast._folded
    ADD CONSTRAINT _folded_pkey PRIMARY KEY (consumer, base);

ALTER TABLE ONLY outlast._foreign_event
    ADD CONSTRAINT _foreign_event_pkey PRIMARY KEY (consumer, event_id);

ALTER TABLE ONLY outlast._foreign_place
    ADD CONSTRAINT _foreign_place_pkey PRIMARY KEY (one);

ALTER TABLE ONLY outlast._former_name
    ADD CONSTRAINT _former_name_pkey PRIMARY KEY (name);

ALTER TABLE ONLY outlast._functions
    ADD CONSTRAINT _functions_pkey PRIMARY KEY (digest);

ALTER TABLE ONLY outlast._house
    ADD CONSTRAINT _house_pkey PRIMARY KEY (one);

ALTER TABLE ONLY outlast._job_claimed
    ADD CONSTRAINT _job_claimed_pkey PRIMARY KEY (id);

ALTER TABLE ONLY outlast._job_end
    ADD CONSTRAINT _job_end_pkey PRIMARY KEY (id);

ALTER TABLE ONLY outlast._job_key
    ADD CONSTRAINT _job_key_pkey PRIMARY KEY (tenant, kind, name, key);

ALTER TABLE ONLY outlast._job_later
    ADD CONSTRAINT _job_later_pkey PRIMARY KEY (id);

ALTER TABLE ONLY outlast._job_look
    ADD CONSTRAINT _job_look_pkey PRIMARY KEY (at);

ALTER TABLE ONLY outlast._job_pause
    ADD CONSTRAINT _job_pause_pkey PRIMARY KEY (name);

ALTER TABLE ONLY outlast._job
    ADD CONSTRAINT _job_pkey PRIMARY KEY (id);

ALTER TABLE ONLY outlast._job_ready
    ADD CONSTRAINT _job_ready_pkey PRIMARY KEY (name, account, tenant, priority, seq);

ALTER TABLE ONLY outlast._job_state
    ADD CONSTRAINT _job_state_pkey PRIMARY KEY (id);

ALTER TABLE ONLY outlast._key_seq
    ADD CONSTRAINT _key_seq_pkey PRIMARY KEY (tenant, type, key);

ALTER TABLE ONLY outlast._late_refs
    ADD CONSTRAINT _late_refs_pkey PRIMARY KEY (id);

ALTER TABLE ONLY outlast._lease_floor
    ADD CONSTRAINT _lease_floor_pkey PRIMARY KEY (consumer, lane, seq);

ALTER TABLE ONLY outlast._lease
    ADD CONSTRAINT _lease_pkey PRIMARY KEY (token);

ALTER TABLE ONLY outlast._migration
    ADD CONSTRAINT _migration_pkey PRIMARY KEY (version);

ALTER TABLE ONLY outlast._missing
    ADD CONSTRAINT _missing_pkey PRIMARY KEY (process);

ALTER TABLE ONLY outlast._moved_event
    ADD CONSTRAINT _moved_event_pkey PRIMARY KEY (slot, consumer, event_id);

ALTER TABLE ONLY outlast._outage
    ADD CONSTRAINT _outage_pkey PRIMARY KEY (consumer, process);

ALTER TABLE ONLY outlast._outbox
    ADD CONSTRAINT _outbox_pkey PRIMARY KEY (name);

ALTER TABLE ONLY outlast._outbox_row
    ADD CONSTRAINT _outbox_row_pkey PRIMARY KEY (consumer, row_id, row_at);

ALTER TABLE ONLY outlast._parked_key
    ADD CONSTRAINT _parked_key_pkey PRIMARY KEY (consumer, tenant, key);

ALTER TABLE ONLY outlast._parked
    ADD CONSTRAINT _parked_pkey PRIMARY KEY (consumer, event_id);

ALTER TABLE ONLY outlast._process
    ADD CONSTRAINT _process_pkey PRIMARY KEY (process, seq);

ALTER TABLE ONLY outlast._processed_event
    ADD CONSTRAINT _processed_event_pkey PRIMARY KEY (slot, consumer, event_id);

ALTER TABLE ONLY outlast._processed_event_0
    ADD CONSTRAINT _processed_event_0_pkey PRIMARY KEY (slot, consumer, event_id);

ALTER TABLE ONLY outlast._rewind
    ADD CONSTRAINT _rewind_consumer_round_key UNIQUE (consumer, round);

ALTER TABLE ONLY outlast._rewind
    ADD CONSTRAINT _rewind_pkey PRIMARY KEY (id);

ALTER TABLE ONLY outlast._ring_slot
    ADD CONSTRAINT _ring_slot_pkey PRIMARY KEY (ring, slot);

ALTER TABLE ONLY outlast._route
    ADD CONSTRAINT _route_pkey PRIMARY KEY (name);

ALTER TABLE ONLY outlast._server
    ADD CONSTRAINT _server_pkey PRIMARY KEY (started, timeline);

ALTER TABLE ONLY outlast._setting
    ADD CONSTRAINT _setting_pkey PRIMARY KEY (name);

ALTER TABLE ONLY outlast._settlement
    ADD CONSTRAINT _settlement_pkey PRIMARY KEY (id);

ALTER TABLE ONLY outlast._started
    ADD CONSTRAINT _started_pkey PRIMARY KEY (token, seq);

ALTER TABLE ONLY outlast._tombstone
    ADD CONSTRAINT _tombstone_pkey PRIMARY KEY (id);

ALTER TABLE ONLY outlast._unfolded
    ADD CONSTRAINT _unfolded_pkey PRIMARY KEY (slot, consumer, event_id);

ALTER TABLE ONLY outlast._unreadable
    ADD CONSTRAINT _unreadable_pkey PRIMARY KEY (consumer, id);

CREATE INDEX _dedup_taken ON outlast._dedup USING btree (taken_at);

CREATE INDEX _delivered_lost ON outlast._delivered USING btree (since) WHERE (token IS NULL);

CREATE INDEX _delivered_token ON outlast._delivered USING btree (token) WHERE (token IS NOT NULL);

CREATE INDEX _entity_converged ON outlast._entity USING btree (converged_at) WHERE ((refs IS NULL) AND (converged_at IS NOT NULL));

CREATE UNIQUE INDEX _event_event_id ON ONLY outlast._event USING btree (event_id, slot);

CREATE UNIQUE INDEX _event_0_event_id_slot_idx ON outlast._event_0 USING btree (event_id, slot);

CREATE INDEX _event_key ON ONLY outlast._event USING btree (key, id) WHERE (key IS NOT NULL);

CREATE INDEX _event_0_key_id_idx ON outlast._event_0 USING btree (key, id) WHERE (key IS NOT NULL);

CREATE INDEX _event_xid ON ONLY outlast._event USING btree (xid, id);

CREATE INDEX _event_0_xid_id_idx ON outlast._event_0 USING btree (xid, id);

CREATE INDEX _evidence_command ON outlast._evidence USING btree (command, id);

CREATE INDEX _flush_token ON outlast._flush USING btree (token);

CREATE INDEX _foreign_event_emitted ON outlast._foreign_event USING btree (emitted_at);

CREATE INDEX _job_claimed_account ON outlast._job_claimed USING btree (account) WHERE (account <> ''::text);

CREATE INDEX _job_claimed_token ON outlast._job_claimed USING btree (token);

CREATE INDEX _job_end_at ON outlast._job_end USING btree (at);

CREATE INDEX _job_key_lives ON outlast._job_key USING btree (lives_until) WHERE (lives_until IS NOT NULL);

CREATE INDEX _job_later_alone ON outlast._job_later USING btree (name, due_at) WHERE alone;

CREATE INDEX _job_later_due ON outlast._job_later USING btree (due_at) WHERE (NOT alone);

CREATE UNIQUE INDEX _job_ready_id ON outlast._job_ready USING btree (id);

CREATE INDEX _job_state_incident ON outlast._job_state USING btree (incident_at) WHERE (incident_at IS NOT NULL);

CREATE INDEX _late_refs_entity ON outlast._late_refs USING btree (entity);

CREATE UNIQUE INDEX _lease_batch ON outlast._lease USING btree (consumer, lane, seq) WHERE (lane IS NOT NULL);

CREATE INDEX _lease_delivered ON outlast._lease USING btree (consumer) WHERE (lane IS NULL);

CREATE UNIQUE INDEX _lease_elected ON outlast._lease USING btree (room) WHERE ((consumer IS NULL) AND ((room)::text = ANY (ARRAY['poller'::text, 'maintenance'::text])));

CREATE INDEX _lease_job ON outlast._lease USING btree (token) WHERE ((room)::text = 'job'::text);

CREATE INDEX _lease_outbox ON outlast._lease USING btree (consumer) WHERE ((room)::text = 'outbox'::text);

CREATE UNIQUE INDEX _lease_parked ON outlast._lease USING btree (consumer, event_id) WHERE (event_id IS NOT NULL);

CREATE INDEX _outbox_row_free ON outlast._outbox_row USING btree (consumer) WHERE (token IS NULL);

CREATE INDEX _outbox_row_key ON outlast._outbox_row USING btree (consumer, tenant, key) WHERE (key IS NOT NULL);

CREATE INDEX _outbox_row_token ON outlast._outbox_row USING btree (token) WHERE (token IS NOT NULL);

CREATE INDEX _parked_behind ON outlast._parked USING btree (consumer, tenant, key, log_id) WHERE (state = 'behind'::text);

CREATE INDEX _parked_due ON outlast._parked USING btree (consumer, next_at) WHERE (state = 'retry'::text);

CREATE INDEX _parked_key_at_limit ON outlast._parked_key USING btree (consumer) WHERE at_limit;

CREATE UNIQUE INDEX _parked_key_leader ON outlast._parked_key USING btree (consumer, leader);

CREATE INDEX _parked_quarantined ON outlast._parked USING btree (consumer, changed_at) WHERE (state = 'quarantined'::text);

CREATE INDEX _parked_since ON outlast._parked USING btree (parked_at, consumer);

CREATE INDEX _parked_waiting ON outlast._parked USING btree (consumer, type, schema_version) WHERE (state = 'waiting-version'::text);

CREATE INDEX _settlement_at ON outlast._settlement USING btree (at);

CREATE UNIQUE INDEX _settlement_key ON outlast._settlement USING btree (tenant, name, key, nth);

CREATE INDEX _tombstone_digest ON outlast._tombstone USING btree (entity, digest);

CREATE INDEX _tombstone_entity ON outlast._tombstone USING btree (entity, id);

ALTER INDEX outlast._event_event_id ATTACH PARTITION outlast._event_0_event_id_slot_idx;

ALTER INDEX outlast._event_key ATTACH PARTITION outlast._event_0_key_id_idx;

ALTER INDEX outlast._event_pkey ATTACH PARTITION outlast._event_0_pkey;

ALTER INDEX outlast._event_xid ATTACH PARTITION outlast._event_0_xid_id_idx;

ALTER INDEX outlast._processed_event_pkey ATTACH PARTITION outlast._processed_event_0_pkey;

CREATE OR REPLACE VIEW outlast.incident AS
 SELECT
        CASE p.class
            WHEN 'too-old'::text THEN 'too-old delivery'::text
            ELSE 'quarantined event'::text
        END AS kind,
    c.name AS consumer,
    c.owner,
    p.event_id AS about,
    p.type,
    p.tenant,
    p.key,
    p.class,
    p.failures,
    p.reason,
    p.signature,
    p.changed_at AS opened_at,
    (p.schema_version)::integer AS version,
    (1)::bigint AS count
   FROM (outlast._parked p
     JOIN outlast._consumer c ON ((c.id = p.consumer)))
  WHERE (p.state = 'quarantined'::text)
UNION ALL
 SELECT 'waiting version'::text AS kind,
    w.consumer,
    w.owner,
    w.about,
    w.type,
    ''::text AS tenant,
    NULL::text AS key,
    'waiting-version'::text AS class,
    0 AS failures,
    format('%s of %s version %s wait for a worker that knows it'::text, w.count, w.type, w.version) AS reason,
    outlast._signature(w.type, 'waiting-version'::text, NULL::text) AS signature,
    w.oldest AS opened_at,
    w.version,
    w.count
   FROM ( SELECT c.name AS consumer,
            c.owner,
            (array_agg(p.event_id ORDER BY p.changed_at, p.log_id))[1] AS about,
            p.type,
            (p.schema_version)::integer AS version,
            count(*) AS count,
            min(p.changed_at) AS oldest
           FROM (outlast._parked p
             JOIN outlast._consumer c ON ((c.id = p.consumer)))
          WHERE (p.state = 'waiting-version'::text)
          GROUP BY c.name, c.owner, p.type, p.schema_version) w
  WHERE (w.oldest < (outlast.clock() - outlast._setting_interval('parked.version_incident'::text)))
UNION ALL
 SELECT 'paused lane'::text AS kind,
    c.name AS consumer,
    c.owner,
    k.leader AS about,
    COALESCE(p.type, ''::text) AS type,
    k.tenant,
    k.key,
    COALESCE(p.class, 'behind'::text) AS class,
    COALESCE(p.failures, 0) AS failures,
    format('%s events are behind this one: the lane of their key is not read'::text, k.behind) AS reason,
    p.signature,
    k.since AS opened_at,
    (p.schema_version)::integer AS version,
    (k.behind)::bigint AS count
   FROM ((outlast._parked_key k
     JOIN outlast._consumer c ON ((c.id = k.consumer)))
     LEFT JOIN outlast._parked p ON (((p.consumer = k.consumer) AND (p.event_id = k.leader))))
  WHERE k.at_limit
UNION ALL
 SELECT 'unreadable message'::text AS kind,
    c.name AS consumer,
    c.owner,
    u.id AS about,
    ''::text AS type,
    ''::text AS tenant,
    NULL::text AS key,
    'permanent'::text AS class,
    0 AS failures,
    u.why AS reason,
    outlast._signature(''::text, 'unreadable'::text, u.why) AS signature,
    u.first_at AS opened_at,
    NULL::integer AS version,
    u.seen AS count
   FROM (outlast._unreadable u
     JOIN outlast._consumer c ON ((c.id = u.consumer)))
UNION ALL
 SELECT
        CASE
            WHEN ((j.kind)::"char" = 'j'::"char") THEN 'stopped job'::text
            WHEN ((j.kind)::"char" = 'e'::"char") THEN 'stopped entity'::text
            WHEN (s.class = 'unknown'::text) THEN 'unknown command'::text
            ELSE 'stopped command'::text
        END AS kind,
    j.name AS consumer,
    NULL::text AS owner,
    j.id AS about,
    j.name AS type,
    j.tenant,
    j.key,
    s.class,
    s.failures,
    s.reason,
    s.signature,
    s.incident_at AS opened_at,
    (j.schema_version)::integer AS version,
    1 AS count
   FROM (outlast._job_state s
     JOIN outlast._job j ON ((j.id = s.id)))
  WHERE (s.incident_at IS NOT NULL)
UNION ALL
 SELECT 'contradicted command'::text AS kind,
    j.name AS consumer,
    NULL::text AS owner,
    j.id AS about,
    j.name AS type,
    j.tenant,
    j.key,
    'contradicted'::text AS class,
    0 AS failures,
    c.reason,
    outlast._signature(j.name, 'contradicted'::text, c.reason) AS signature,
    c.at AS opened_at,
    (j.schema_version)::integer AS version,
    1 AS count
   FROM (outlast._contradiction c
     JOIN outlast._job j ON ((j.id = c.command)))
UNION ALL
 SELECT 'settlement without a command'::text AS kind,
    s.name AS consumer,
    NULL::text AS owner,
    (outlast._provider_key(s.tenant, s.name, s.key))::uuid AS about,
    s.name AS type,
    s.tenant,
    s.key,
    'early'::text AS class,
    0 AS failures,
    'its provider told the end of a command that nobody has given'::text AS reason,
    outlast._signature(s.name, 'early'::text, NULL::text) AS signature,
    (min(s.at) + '7 days'::interval) AS opened_at,
    NULL::integer AS version,
    count(*) AS count
   FROM outlast._settlement s
  WHERE (s.at < (outlast.clock() - '7 days'::interval))
  GROUP BY s.tenant, s.name, s.key
UNION ALL
 SELECT 'late refs'::text AS kind,
    j.name AS consumer,
    NULL::text AS owner,
    j.id AS about,
    j.name AS type,
    j.tenant,
    j.key,
    'late-refs'::text AS class,
    0 AS failures,
    'a runner that had lost its lease had made something elsewhere: look whether it is still needed'::text AS reason,
    outlast._signature(j.name, 'late-refs'::text, NULL::text) AS signature,
    min(l.at) AS opened_at,
    (j.schema_version)::integer AS version,
    count(*) AS count
   FROM (outlast._late_refs l
     JOIN outlast._job j ON ((j.id = l.entity)))
  GROUP BY j.id;

ALTER TABLE ONLY outlast._consumer_type
    ADD CONSTRAINT _consumer_type_consumer_fkey FOREIGN KEY (consumer) REFERENCES outlast._consumer(id);

ALTER TABLE ONLY outlast._delivered
    ADD CONSTRAINT _delivered_consumer_fkey FOREIGN KEY (consumer) REFERENCES outlast._consumer(id);

ALTER TABLE ONLY outlast._former_name
    ADD CONSTRAINT _former_name_consumer_fkey FOREIGN KEY (consumer) REFERENCES outlast._consumer(id);

ALTER TABLE ONLY outlast._outage
    ADD CONSTRAINT _outage_consumer_fkey FOREIGN KEY (consumer) REFERENCES outlast._consumer(id);

ALTER TABLE ONLY outlast._parked
    ADD CONSTRAINT _parked_consumer_fkey FOREIGN KEY (consumer) REFERENCES outlast._consumer(id);

ALTER TABLE ONLY outlast._parked_key
    ADD CONSTRAINT _parked_key_consumer_fkey FOREIGN KEY (consumer) REFERENCES outlast._consumer(id);

ALTER TABLE ONLY outlast._rewind
    ADD CONSTRAINT _rewind_consumer_fkey FOREIGN KEY (consumer) REFERENCES outlast._consumer(id);

ALTER TABLE ONLY outlast._unreadable
    ADD CONSTRAINT _unreadable_consumer_fkey FOREIGN KEY (consumer) REFERENCES outlast._consumer(id);

