-- The control plane: what is due, tasks and their leases, revisions, links, audit, tokens.

ALTER TABLE resources ADD COLUMN labels TEXT NOT NULL DEFAULT '{}';
ALTER TABLE resources ADD COLUMN account TEXT NOT NULL DEFAULT '';
ALTER TABLE resources ADD COLUMN service TEXT NOT NULL DEFAULT '';
ALTER TABLE resources ADD COLUMN applied_by TEXT NOT NULL DEFAULT '';
ALTER TABLE resources ADD COLUMN trace TEXT NOT NULL DEFAULT '';
ALTER TABLE resources ADD COLUMN allow_replace BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE resources ADD COLUMN allow_data_loss BOOLEAN NOT NULL DEFAULT FALSE;
-- When the controller is to look at it; none while it rests. The mark grows each time that is set.
ALTER TABLE resources ADD COLUMN due_at BIGINT;
ALTER TABLE resources ADD COLUMN due_mark BIGINT NOT NULL DEFAULT 0;
ALTER TABLE resources ADD COLUMN attempts BIGINT NOT NULL DEFAULT 0;
-- Of the last lease of a task that changes it.
ALTER TABLE resources ADD COLUMN fence BIGINT NOT NULL DEFAULT 0;
ALTER TABLE resources ADD COLUMN drift_at BIGINT;
ALTER TABLE resources ADD COLUMN drift_every BIGINT;
ALTER TABLE resources ADD COLUMN drift_checked_at BIGINT;
ALTER TABLE resources ADD COLUMN drift TEXT NOT NULL DEFAULT '';
ALTER TABLE resources ADD COLUMN plan_digest TEXT NOT NULL DEFAULT '';
ALTER TABLE resources ADD COLUMN approved_by TEXT NOT NULL DEFAULT '';
-- What can be large comes last, again: a scan that does not ask for it does not read its pages.
ALTER TABLE resources ADD COLUMN large TEXT NOT NULL DEFAULT '';
UPDATE resources SET large = secrets WHERE secrets <> '';
ALTER TABLE resources DROP COLUMN secrets;
ALTER TABLE resources RENAME COLUMN large TO secrets;
ALTER TABLE resources ADD COLUMN plan TEXT NOT NULL DEFAULT '';
CREATE INDEX resources_due ON resources (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX resources_drift ON resources (drift_at) WHERE drift_at IS NOT NULL;

ALTER TABLE events ADD COLUMN task TEXT NOT NULL DEFAULT '';

-- Earlier generations of a manifest; the stored one is in `resources`.
CREATE TABLE revisions (
    resource_id  BIGINT NOT NULL REFERENCES resources (id),
    generation   BIGINT NOT NULL,
    at           BIGINT NOT NULL,
    applied_by   TEXT NOT NULL,
    sealed_paths TEXT NOT NULL,
    manifest     TEXT NOT NULL,
    PRIMARY KEY (resource_id, generation)
) WITHOUT ROWID;

-- Who refers to whom; what is referred to need not be there.
CREATE TABLE links (
    child BIGINT NOT NULL REFERENCES resources (id),
    kind  TEXT NOT NULL,
    name  TEXT NOT NULL,
    org   TEXT NOT NULL,
    env   TEXT NOT NULL,
    PRIMARY KEY (child, kind, name, org, env)
) WITHOUT ROWID;
CREATE INDEX links_parent ON links (kind, name, org, env);

-- `waiting` is a queued task whose time has not come. `cancel_mark` is its resource's mark when someone cancelled it. `checks` are drift checks, which have places of their own.
CREATE TABLE tasks (
    id            TEXT PRIMARY KEY NOT NULL,
    op            TEXT NOT NULL,
    mutates       BOOLEAN NOT NULL,
    checks        BOOLEAN NOT NULL,
    state         TEXT NOT NULL,
    waiting       BOOLEAN NOT NULL,
    cancelling    BOOLEAN NOT NULL,
    cancel_mark   BIGINT,
    kind          TEXT NOT NULL,
    name          TEXT NOT NULL,
    org           TEXT NOT NULL,
    env           TEXT NOT NULL,
    lane_org      TEXT NOT NULL,
    account       TEXT NOT NULL,
    service       TEXT NOT NULL,
    account_limit BIGINT NOT NULL,
    priority      BIGINT NOT NULL,
    generation    BIGINT NOT NULL,
    worker        TEXT NOT NULL,
    fence         BIGINT NOT NULL,
    attempts      BIGINT NOT NULL,
    created_at    BIGINT NOT NULL,
    run_after     BIGINT NOT NULL,
    started_at    BIGINT,
    lease_until   BIGINT,
    ended_at      BIGINT,
    message       TEXT NOT NULL,
    help          TEXT NOT NULL,
    trace         TEXT NOT NULL,
    resources     TEXT NOT NULL,
    payload       TEXT NOT NULL,
    result        TEXT NOT NULL
);
-- A resource has at most one open task that changes it.
CREATE UNIQUE INDEX tasks_one ON tasks (kind, name, org, env) WHERE mutates AND state IN ('queued', 'running');
CREATE INDEX tasks_queue ON tasks (checks, lane_org, account, service, priority DESC, id)
    WHERE state = 'queued' AND NOT waiting;
CREATE INDEX tasks_waiting ON tasks (run_after) WHERE state = 'queued' AND waiting;
CREATE INDEX tasks_leases ON tasks (lease_until) WHERE state = 'running';
CREATE INDEX tasks_ended ON tasks (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX tasks_resource ON tasks (kind, name, org, env, id);

-- One row for each account's work of one service: how much waits and runs, and when it last had its turn.
CREATE TABLE lanes (
    checks  BOOLEAN NOT NULL,
    org     TEXT NOT NULL,
    account TEXT NOT NULL,
    service TEXT NOT NULL,
    queued  BIGINT NOT NULL,
    running BIGINT NOT NULL,
    places  BIGINT NOT NULL,
    turn    BIGINT NOT NULL,
    PRIMARY KEY (checks, org, account, service)
) WITHOUT ROWID;

-- Writes of a running task that were done, so that a repeated one is known.
CREATE TABLE records (
    task  TEXT NOT NULL,
    key   TEXT NOT NULL,
    entry BIGINT,
    PRIMARY KEY (task, key)
) WITHOUT ROWID;

CREATE TABLE task_log (
    task TEXT NOT NULL,
    line BIGINT NOT NULL,
    at   BIGINT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (task, line)
) WITHOUT ROWID;

CREATE TABLE workers (
    name     TEXT PRIMARY KEY NOT NULL,
    services TEXT NOT NULL,
    capacity BIGINT NOT NULL,
    version  TEXT NOT NULL,
    seen_at  BIGINT NOT NULL,
    draining BOOLEAN NOT NULL
);

-- Appended to, never changed. Each hash covers the one before; the last one stands in `meta` too, so that a cut shows.
CREATE TABLE audit (
    id      INTEGER PRIMARY KEY NOT NULL,
    at      BIGINT NOT NULL,
    actor   TEXT NOT NULL,
    action  TEXT NOT NULL,
    target  TEXT NOT NULL,
    detail  TEXT NOT NULL,
    outcome TEXT NOT NULL,
    hash    TEXT NOT NULL
);

-- `hash` is a token's SHA-256; tokens themselves are nowhere.
CREATE TABLE tokens (
    id         TEXT PRIMARY KEY NOT NULL,
    name       TEXT NOT NULL,
    hash       TEXT NOT NULL UNIQUE,
    role       TEXT NOT NULL,
    org        TEXT NOT NULL,
    env        TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    created_by TEXT NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT,
    used_at    BIGINT
);
