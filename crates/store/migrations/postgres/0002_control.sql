-- The same tables and columns as in SQLite.
-- The control plane: what is due, tasks and their leases, revisions, links, audit, tokens.

ALTER TABLE resources ADD COLUMN labels TEXT NOT NULL DEFAULT '{}';
ALTER TABLE resources ADD COLUMN account TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE resources ADD COLUMN service TEXT COLLATE "C" NOT NULL DEFAULT '';
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
);

-- Who refers to whom; what is referred to need not be there.
CREATE TABLE links (
    child BIGINT NOT NULL REFERENCES resources (id),
    kind  TEXT COLLATE "C" NOT NULL,
    name  TEXT COLLATE "C" NOT NULL,
    org   TEXT COLLATE "C" NOT NULL,
    env   TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (child, kind, name, org, env)
);
CREATE INDEX links_parent ON links (kind, name, org, env);

-- `waiting` is a queued task whose time has not come. `cancel_mark` is its resource's mark when someone cancelled it. `checks` are drift checks, which have places of their own.
CREATE TABLE tasks (
    id            TEXT COLLATE "C" PRIMARY KEY NOT NULL,
    op            TEXT NOT NULL,
    mutates       BOOLEAN NOT NULL,
    checks        BOOLEAN NOT NULL,
    state         TEXT NOT NULL,
    waiting       BOOLEAN NOT NULL,
    cancelling    BOOLEAN NOT NULL,
    cancel_mark   BIGINT,
    kind          TEXT COLLATE "C" NOT NULL,
    name          TEXT COLLATE "C" NOT NULL,
    org           TEXT COLLATE "C" NOT NULL,
    env           TEXT COLLATE "C" NOT NULL,
    lane_org      TEXT COLLATE "C" NOT NULL,
    account       TEXT COLLATE "C" NOT NULL,
    service       TEXT COLLATE "C" NOT NULL,
    account_limit BIGINT NOT NULL,
    priority      BIGINT NOT NULL,
    generation    BIGINT NOT NULL,
    worker        TEXT COLLATE "C" NOT NULL,
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
    org     TEXT COLLATE "C" NOT NULL,
    account TEXT COLLATE "C" NOT NULL,
    service TEXT COLLATE "C" NOT NULL,
    queued  BIGINT NOT NULL,
    running BIGINT NOT NULL,
    places  BIGINT NOT NULL,
    turn    BIGINT NOT NULL,
    PRIMARY KEY (checks, org, account, service)
);

-- Writes of a running task that were done, so that a repeated one is known.
CREATE TABLE records (
    task  TEXT COLLATE "C" NOT NULL,
    key   TEXT COLLATE "C" NOT NULL,
    entry BIGINT,
    PRIMARY KEY (task, key)
);

CREATE TABLE task_log (
    task TEXT COLLATE "C" NOT NULL,
    line BIGINT NOT NULL,
    at   BIGINT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (task, line)
);

CREATE TABLE workers (
    name     TEXT COLLATE "C" PRIMARY KEY NOT NULL,
    services TEXT NOT NULL,
    capacity BIGINT NOT NULL,
    version  TEXT NOT NULL,
    seen_at  BIGINT NOT NULL,
    draining BOOLEAN NOT NULL
);

-- Appended to, never changed. Each hash covers the one before; the last one stands in `meta` too, so that a cut shows.
CREATE TABLE audit (
    id      BIGINT PRIMARY KEY NOT NULL,
    at      BIGINT NOT NULL,
    actor   TEXT NOT NULL,
    action  TEXT NOT NULL,
    target  TEXT NOT NULL,
    detail  TEXT NOT NULL,
    outcome TEXT NOT NULL,
    hash    TEXT COLLATE "C" NOT NULL
);

-- `hash` is a token's SHA-256; tokens themselves are nowhere.
CREATE TABLE tokens (
    id         TEXT COLLATE "C" PRIMARY KEY NOT NULL,
    name       TEXT COLLATE "C" NOT NULL,
    hash       TEXT COLLATE "C" NOT NULL UNIQUE,
    role       TEXT NOT NULL,
    org        TEXT COLLATE "C" NOT NULL,
    env        TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    created_by TEXT NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT,
    used_at    BIGINT
);
