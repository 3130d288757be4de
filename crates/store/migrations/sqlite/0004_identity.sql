-- Whom the credentials of a unit's account belong to, in the cloud's own words. Empty where an earlier version made the unit.
ALTER TABLE units ADD COLUMN identity TEXT NOT NULL DEFAULT '';
CREATE INDEX units_account ON units (account);

-- Objects that a check or a plan did not find: much gone at once is a question. Rows are kept for a while, also where the
-- object was made again.
CREATE TABLE gone (
    account   TEXT NOT NULL,
    object_id TEXT NOT NULL,
    kind      TEXT NOT NULL,
    name      TEXT NOT NULL,
    org       TEXT NOT NULL,
    env       TEXT NOT NULL,
    at        BIGINT NOT NULL,
    PRIMARY KEY (account, object_id)
) WITHOUT ROWID;
CREATE INDEX gone_at ON gone (at);
ALTER TABLE resources ADD COLUMN allow_recreate BOOLEAN NOT NULL DEFAULT FALSE;
