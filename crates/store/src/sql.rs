//! Every statement, in one place: plain SQL with numbered parameters, which SQLite and PostgreSQL read alike. What
//! they do not is in [`Dialect`], or named for the one that knows it.

macro_rules! resource_columns {
    () => {
        "kind, name, org, env, api_version, manifest, sealed_paths, generation, created_at, updated_at, source_file, \
         source_document, deleting, state, message, outputs, facts, observed_generation, status_at, secret_names, \
         manifest_seal"
    };
}

macro_rules! units_from {
    () => {
        "SELECT r.kind, r.name, r.org, r.env, u.unit_key, u.token, u.unit_type, u.scope, u.account, u.object_id, \
         u.deposed, u.ready, u.created_at, u.updated_at, u.props, u.outputs, u.identity \
         FROM units u JOIN resources r ON r.id = u.resource_id "
    };
}

macro_rules! the_resource {
    () => {
        "kind = $1 AND name = $2 AND org = $3 AND env = $4"
    };
}

macro_rules! the_resource_id {
    () => {
        "(SELECT id FROM resources WHERE kind = $1 AND name = $2 AND org = $3 AND env = $4)"
    };
}

macro_rules! journal_from {
    () => {
        "SELECT id, fence, kind, name, org, env, unit_key, token, op, what, started_at, ended_at, outcome, detail \
         FROM journal "
    };
}

macro_rules! events_from {
    () => {
        "SELECT id, at, kind, name, org, env, what, detail, task FROM events "
    };
}

/// The right to write and the right to change the schema are each state's own: a database may hold one in each schema.
macro_rules! postgres_lock_key {
    ($of:literal) => {
        concat!("hashtextextended('berth ", $of, " ' || current_schema(), 0)")
    };
}

/// Where the two differ.
pub struct Dialect {
    pub is_sqlite: bool,
    pub begin: &'static str,
    pub fence: &'static str,
    /// Tables, mark, and the schema's version (SQLite) or its name (PostgreSQL).
    pub look: &'static str,
}

pub const SQLITE: Dialect = Dialect {
    is_sqlite: true,
    // The one that writes first goes first; the others wait at once instead of failing later.
    begin: "BEGIN IMMEDIATE",
    fence: FENCE,
    look: "SELECT (SELECT COUNT(*) FROM sqlite_schema), a.application_id, v.user_version \
           FROM pragma_application_id a, pragma_user_version v",
};

pub const POSTGRES: Dialect = Dialect {
    is_sqlite: false,
    begin: "BEGIN",
    // Shared, so that nobody raises the fence between this look and the commit.
    fence: "SELECT number FROM fence WHERE one = 1 FOR SHARE",
    look: "SELECT COUNT(*), COUNT(*) FILTER (WHERE c.relname = 'berth_schema'), current_schema()::text \
           FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
           WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p')",
};

pub const POSTGRES_VERSION: &str = "SELECT version FROM berth_schema";
/// Until the transaction ends.
pub const POSTGRES_SCHEMA_LOCK: &str = concat!("SELECT pg_advisory_xact_lock(", postgres_lock_key!("schema"), ")");
/// The turn of one writer of several servers, until its transaction ends.
pub const POSTGRES_WRITE_TURN: &str = concat!("SELECT pg_advisory_xact_lock(", postgres_lock_key!("write"), ")");
/// Until the connection ends.
pub const POSTGRES_RUN_LOCK: &str = concat!("SELECT pg_try_advisory_lock(", postgres_lock_key!("run"), ")");
pub const POSTGRES_RUN_UNLOCK: &str = concat!("SELECT pg_advisory_unlock(", postgres_lock_key!("run"), ")");
/// Servers share it among themselves; an embedded run cannot have it meanwhile.
pub const POSTGRES_SERVER_LOCK: &str = concat!("SELECT pg_try_advisory_lock_shared(", postgres_lock_key!("run"), ")");
pub const POSTGRES_SERVER_UNLOCK: &str = concat!("SELECT pg_advisory_unlock_shared(", postgres_lock_key!("run"), ")");
/// One transaction of a server's at a time, until it ends. Also its number, to ask for if the answer to its commit is lost.
pub const POSTGRES_TURN: &str = concat!(
    "BEGIN; SELECT pg_current_xact_id()::text FROM (SELECT pg_advisory_xact_lock(",
    postgres_lock_key!("write"),
    ")) AS turn"
);
pub const POSTGRES_HOW_ENDED: &str = "SELECT COALESCE(pg_xact_status($1::text::xid8), '')";
/// Statements of a writer find their rows by index, whatever the planner believes of tables that just grew. A writer that
/// froze amid a transaction loses its turn soon.
pub const POSTGRES_WRITER: &str = "SET idle_in_transaction_session_timeout = '5s'; SET enable_seqscan = off; \
     SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off";
/// Readers too: a plan is kept from when a table was small, and is used when it no longer is.
pub const POSTGRES_READER: &str = "SET enable_seqscan = off; SET jit = off";
/// Other servers hear of it when it is committed.
pub const POSTGRES_COMMIT_NEWS: &str = "SELECT pg_notify('berth', current_schema()::text); COMMIT";
/// A server may be told to acknowledge before it has written; a run is not acknowledged so. What is stricter stays.
pub const POSTGRES_DURABLE: &str =
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'";

// Runs

const FENCE: &str = "SELECT number FROM fence WHERE one = 1";
pub const NEXT_FENCE: &str = "UPDATE fence SET number = number + 1 WHERE one = 1 RETURNING number";
pub const PRUNE_JOURNAL: &str =
    "DELETE FROM journal WHERE ended_at IS NOT NULL AND id <= (SELECT MAX(id) FROM journal) - $1";
pub const PRUNE_EVENTS: &str = "DELETE FROM events WHERE id <= (SELECT MAX(id) FROM events) - $1";
pub const COUNT_OPEN: &str = "SELECT COUNT(*) FROM journal WHERE ended_at IS NULL";

pub const HOLDER: &str = "SELECT value FROM meta WHERE name = 'holder'";
pub const SET_HOLDER: &str = "INSERT INTO meta (name, value) VALUES ('holder', $1) \
     ON CONFLICT (name) DO UPDATE SET value = excluded.value";
pub const CLEAR_HOLDER: &str = "DELETE FROM meta WHERE name = 'holder' AND value = $1";

pub const MODE: &str = "SELECT value FROM meta WHERE name = 'mode'";
pub const SET_MODE: &str = "INSERT INTO meta (name, value) VALUES ('mode', 'server') ON CONFLICT (name) DO NOTHING";

// Key

pub const META: &str = "SELECT value FROM meta WHERE name = $1";
pub const SET_META_ONCE: &str = "INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING";

// Resources

pub const RESOURCE: &str = concat!("SELECT ", resource_columns!(), " FROM resources WHERE ", the_resource!());
/// What is asked for, and the order, come after it.
pub const RESOURCES: &str = concat!("SELECT ", resource_columns!(), " FROM resources WHERE ");
pub const IN_ORDER: &str = " ORDER BY kind, name, org, env";
pub const SAVE_RESOURCE: &str = concat!(
    "INSERT INTO resources (kind, name, org, env, api_version, manifest, sealed_paths, digest, source_file, \
     source_document, created_at, updated_at, generation, deleting, state, message, outputs, facts, \
     observed_generation, status_at, secret_names, secrets, manifest_seal) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $11, 1, FALSE, $13, '', '{}', '{}', 0, NULL, '', '', $12) \
     ON CONFLICT (kind, name, org, env) DO UPDATE SET \
     generation = CASE WHEN resources.digest = excluded.digest THEN resources.generation ELSE resources.generation + 1 END, \
     manifest = CASE WHEN resources.digest = excluded.digest THEN resources.manifest ELSE excluded.manifest END, \
     manifest_seal = CASE WHEN resources.digest = excluded.digest THEN resources.manifest_seal ELSE excluded.manifest_seal END, \
     sealed_paths = CASE WHEN resources.digest = excluded.digest THEN resources.sealed_paths ELSE excluded.sealed_paths END, \
     updated_at = CASE WHEN resources.digest = excluded.digest THEN resources.updated_at ELSE excluded.updated_at END, \
     digest = excluded.digest, api_version = excluded.api_version, \
     source_file = CASE WHEN excluded.source_file = '' THEN resources.source_file ELSE excluded.source_file END, \
     source_document = CASE WHEN excluded.source_file = '' THEN resources.source_document ELSE excluded.source_document END, \
     deleting = FALSE RETURNING ",
    resource_columns!()
);
pub const SET_DELETING: &str =
    concat!("UPDATE resources SET deleting = TRUE, state = $6, status_at = $5 WHERE ", the_resource!());
/// No secrets given means: the ones that are there stay.
pub const STATUS: &str = concat!(
    "UPDATE resources SET state = $5, message = $6, outputs = $7, facts = $8, observed_generation = CASE WHEN $9 > 0 THEN $9 WHEN $14 THEN generation ELSE observed_generation END, \
     status_at = $10, \
     secret_names = CASE WHEN $12 = '' THEN secret_names ELSE $11 END, \
     secrets_seal = CASE WHEN $12 = '' THEN secrets_seal ELSE $13 END, \
     secrets = CASE WHEN $12 = '' THEN secrets ELSE $12 END WHERE ",
    the_resource!()
);
pub const STATUS_SECRETS: &str = concat!("SELECT secrets, secrets_seal FROM resources WHERE ", the_resource!());
pub const FORGET_RESOURCE: &str = concat!("DELETE FROM resources WHERE ", the_resource!());

pub const FORGET_LINKS_OF: &str = concat!("DELETE FROM links WHERE child = ", the_resource_id!());
pub const FORGET_REVISIONS_OF: &str = concat!("DELETE FROM revisions WHERE resource_id = ", the_resource_id!());

// Units

pub const UNITS: &str = concat!(units_from!(), "ORDER BY u.resource_id, u.unit_key, u.created_at");
pub const UNITS_OF: &str = concat!(
    units_from!(),
    "WHERE r.kind = $1 AND r.name = $2 AND r.org = $3 AND r.env = $4 ORDER BY u.unit_key, u.created_at"
);
pub const UNITS_BY_OBJECT: &str = concat!(units_from!(), "WHERE u.object_id = $1 ORDER BY u.resource_id, u.unit_key");
pub const UNITS_IN: &str =
    concat!(units_from!(), "WHERE u.account = $1 ORDER BY u.resource_id, u.unit_key, u.created_at");
/// Whom the objects belong to that an account manages in an org and env.
pub const OWNERS: &str = "SELECT DISTINCT u.identity FROM units u JOIN resources r ON r.id = u.resource_id \
     WHERE u.account = $1 AND r.org = $2 AND r.env = $3 AND u.identity <> ''";
/// One of them, and whether one belongs to whom $4 names. Found at once where all belong to the same.
pub const AN_OWNER: &str = "SELECT u.identity FROM units u JOIN resources r ON r.id = u.resource_id \
     WHERE u.account = $1 AND r.org = $2 AND r.env = $3 AND u.identity <> '' LIMIT 1";
pub const OWNED_BY: &str = "SELECT r.id FROM units u JOIN resources r ON r.id = u.resource_id \
     WHERE u.account = $1 AND r.org = $2 AND r.env = $3 \
     AND SUBSTR(u.identity || ' ', 1, LENGTH($4) + 1) = $4 || ' ' LIMIT 1";
/// The object in use before one that was replaced; of several, the newest.
pub const UNIT_SECRETS: &str = concat!(
    "SELECT token, secrets, secrets_seal FROM units WHERE resource_id = ",
    the_resource_id!(),
    " AND unit_key = $5 ORDER BY deposed, created_at DESC LIMIT 1"
);
/// An id that is known never becomes unknown again, an identity that is known never another one, and no secrets given means:
/// the ones that are there stay.
pub const SAVE_UNIT: &str = "INSERT INTO units (resource_id, unit_key, token, unit_type, scope, account, object_id, \
     deposed, ready, created_at, updated_at, props, outputs, secrets, identity, secrets_seal) \
     SELECT id, $5, $6, $7, $8, $9, $10, $11, $12, $13, $13, $14, $15, $16, $17, $18 FROM resources \
     WHERE kind = $1 AND name = $2 AND org = $3 AND env = $4 \
     ON CONFLICT (resource_id, unit_key, token) DO UPDATE SET unit_type = excluded.unit_type, scope = excluded.scope, \
     account = excluded.account, object_id = COALESCE(excluded.object_id, units.object_id), \
     deposed = excluded.deposed, ready = excluded.ready, updated_at = excluded.updated_at, props = excluded.props, \
     outputs = excluded.outputs, \
     identity = CASE WHEN units.identity = '' THEN excluded.identity ELSE units.identity END, \
     secrets_seal = CASE WHEN excluded.secrets = '' THEN units.secrets_seal ELSE excluded.secrets_seal END, \
     secrets = CASE WHEN excluded.secrets = '' THEN units.secrets ELSE excluded.secrets END";
/// The only way to another account.
pub const MOVE_UNIT: &str = concat!(
    "UPDATE units SET identity = $7, updated_at = $8 WHERE resource_id = ",
    the_resource_id!(),
    " AND unit_key = $5 AND token = $6"
);
pub const FORGET_UNIT: &str =
    concat!("DELETE FROM units WHERE resource_id = ", the_resource_id!(), " AND unit_key = $5 AND token = $6");
/// Only a row whose object was never seen: a refused create left nothing behind.
pub const FORGET_UNBORN_UNIT: &str = concat!(
    "DELETE FROM units WHERE resource_id = ",
    the_resource_id!(),
    " AND unit_key = $5 AND token = $6 AND object_id IS NULL"
);
pub const FORGET_UNITS_OF: &str = concat!("DELETE FROM units WHERE resource_id = ", the_resource_id!());

// Journal

pub const INTENT: &str = "INSERT INTO journal (kind, name, org, env, unit_key, token, op, what, started_at, fence, \
     ended_at, outcome, detail) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, NULL, '', '') RETURNING id";
pub const CLOSE: &str = "UPDATE journal SET ended_at = $2, outcome = $3, detail = $4 WHERE id = $1 AND ended_at IS NULL \
     RETURNING kind, name, org, env, unit_key, token, op";
/// Entries that an earlier run left open and that what was just written settles.
pub const SETTLE_UNIT: &str = concat!(
    "UPDATE journal SET ended_at = $7, outcome = 'interrupted' WHERE ended_at IS NULL AND fence < $8 AND ",
    the_resource!(),
    " AND unit_key = $5 AND token = $6"
);
pub const SETTLE_RESOURCE: &str = concat!(
    "UPDATE journal SET ended_at = $5, outcome = 'interrupted' WHERE ended_at IS NULL AND fence < $6 AND ",
    the_resource!()
);
pub const JOURNAL: &str = concat!(journal_from!(), "ORDER BY id DESC LIMIT $1");
pub const JOURNAL_OPEN: &str = concat!(journal_from!(), "WHERE ended_at IS NULL ORDER BY id DESC LIMIT $1");

// Events

pub const EVENT: &str =
    "INSERT INTO events (kind, name, org, env, at, what, detail, task) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
pub const EVENTS: &str = concat!(events_from!(), "ORDER BY id DESC LIMIT $1");
pub const HISTORY: &str = concat!(
    "SELECT at, what, detail, op, unit_key, outcome, ended_at FROM (\
     SELECT id, 1 AS part, started_at AS at, what, detail, op, unit_key, outcome, ended_at FROM journal WHERE ",
    the_resource!(),
    " UNION ALL SELECT id, 2 AS part, at, what, detail, '' AS op, '' AS unit_key, '' AS outcome, at AS ended_at \
     FROM events WHERE ",
    the_resource!(),
    ") AS both_parts ORDER BY at DESC, part DESC, id DESC LIMIT $5 OFFSET $6"
);
