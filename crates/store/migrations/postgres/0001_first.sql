-- The same tables and columns as in SQLite. Names sort by their bytes there, whatever the database's language, so here too.
-- Times are microseconds since 1970 (UTC). JSON is text. A sealed secret is text that starts with `sealed:v1:`.

CREATE TABLE meta (
    name  TEXT COLLATE "C" PRIMARY KEY NOT NULL,
    value TEXT NOT NULL
);

-- One row: the fence grows with each run, and a run with a lower one may write nothing.
CREATE TABLE fence (
    one    INTEGER PRIMARY KEY NOT NULL CHECK (one = 1),
    number BIGINT NOT NULL
);
INSERT INTO fence (one, number) VALUES (1, 0);

CREATE TABLE resources (
    id                  BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind                TEXT COLLATE "C" NOT NULL,
    name                TEXT COLLATE "C" NOT NULL,
    org                 TEXT COLLATE "C" NOT NULL,
    env                 TEXT COLLATE "C" NOT NULL,
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
    unit_key    TEXT COLLATE "C" NOT NULL,
    token       TEXT COLLATE "C" NOT NULL,
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
    id         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    fence      BIGINT NOT NULL,
    kind       TEXT COLLATE "C" NOT NULL,
    name       TEXT COLLATE "C" NOT NULL,
    org        TEXT COLLATE "C" NOT NULL,
    env        TEXT COLLATE "C" NOT NULL,
    unit_key   TEXT COLLATE "C" NOT NULL,
    token      TEXT COLLATE "C" NOT NULL,
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
    id     BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at     BIGINT NOT NULL,
    kind   TEXT COLLATE "C" NOT NULL,
    name   TEXT COLLATE "C" NOT NULL,
    org    TEXT COLLATE "C" NOT NULL,
    env    TEXT COLLATE "C" NOT NULL,
    what   TEXT NOT NULL,
    detail TEXT NOT NULL
);
CREATE INDEX events_resource ON events (kind, name, org, env, id);
