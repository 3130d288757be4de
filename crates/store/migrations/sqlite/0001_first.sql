-- Times are microseconds since 1970 (UTC). JSON is text. A sealed secret is text that starts with `sealed:v1:`.

CREATE TABLE meta (
    name  TEXT PRIMARY KEY NOT NULL,
    value TEXT NOT NULL
);

-- One row: the fence grows with each run, and a run with a lower one may write nothing.
CREATE TABLE fence (
    one    INTEGER PRIMARY KEY NOT NULL CHECK (one = 1),
    number BIGINT NOT NULL
);
INSERT INTO fence (one, number) VALUES (1, 0);

-- `secrets` comes last, here and in `units`: it can be large, and a scan that does not ask for it does not read its pages.
CREATE TABLE resources (
    id                  INTEGER PRIMARY KEY NOT NULL,
    kind                TEXT NOT NULL,
    name                TEXT NOT NULL,
    org                 TEXT NOT NULL,
    env                 TEXT NOT NULL,
    api_version         TEXT NOT NULL,
    manifest            TEXT NOT NULL,
    sealed_paths        TEXT NOT NULL,
    digest              TEXT NOT NULL,
    generation          BIGINT NOT NULL,
    created_at          BIGINT NOT NULL,
    updated_at          BIGINT NOT NULL,
    source_file         TEXT NOT NULL,
    source_document     BIGINT NOT NULL,
    deleting            BOOLEAN NOT NULL,
    state               TEXT NOT NULL,
    message             TEXT NOT NULL,
    outputs             TEXT NOT NULL,
    facts               TEXT NOT NULL,
    observed_generation BIGINT NOT NULL,
    status_at           BIGINT,
    secret_names        TEXT NOT NULL,
    secrets             TEXT NOT NULL,
    UNIQUE (kind, name, org, env)
);

-- One row for each object ever begun and not yet gone.
CREATE TABLE units (
    resource_id BIGINT NOT NULL REFERENCES resources (id),
    unit_key    TEXT NOT NULL,
    token       TEXT NOT NULL,
    unit_type   TEXT NOT NULL,
    scope       TEXT NOT NULL,
    account     TEXT NOT NULL,
    object_id   TEXT,
    deposed     BOOLEAN NOT NULL,
    ready       BOOLEAN NOT NULL,
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL,
    props       TEXT NOT NULL,
    outputs     TEXT NOT NULL,
    secrets     TEXT NOT NULL,
    PRIMARY KEY (resource_id, unit_key, token)
);
CREATE INDEX units_object ON units (object_id);

-- Journal and events outlive their resource, so they name it in full.
CREATE TABLE journal (
    id         INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
    fence      BIGINT NOT NULL,
    kind       TEXT NOT NULL,
    name       TEXT NOT NULL,
    org        TEXT NOT NULL,
    env        TEXT NOT NULL,
    unit_key   TEXT NOT NULL,
    token      TEXT NOT NULL,
    op         TEXT NOT NULL,
    what       TEXT NOT NULL,
    started_at BIGINT NOT NULL,
    ended_at   BIGINT,
    outcome    TEXT NOT NULL,
    detail     TEXT NOT NULL
);
CREATE INDEX journal_resource ON journal (kind, name, org, env, id);
CREATE INDEX journal_open ON journal (id) WHERE ended_at IS NULL;

CREATE TABLE events (
    id     INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
    at     BIGINT NOT NULL,
    kind   TEXT NOT NULL,
    name   TEXT NOT NULL,
    org    TEXT NOT NULL,
    env    TEXT NOT NULL,
    what   TEXT NOT NULL,
    detail TEXT NOT NULL
);
CREATE INDEX events_resource ON events (kind, name, org, env, id);
