-- Who workers and people are.

-- Who a token's holder is: issuer and subject of a person's session; empty for a token of a machine's. `owner` is the person
-- who made it, or whose token made it; empty where no person is known.
ALTER TABLE tokens ADD COLUMN identity TEXT NOT NULL DEFAULT '';
ALTER TABLE tokens ADD COLUMN owner TEXT NOT NULL DEFAULT '';
-- The same for whoever applied and approved; empty where only a name is known, from before there was more.
ALTER TABLE resources ADD COLUMN applied_id TEXT NOT NULL DEFAULT '';
ALTER TABLE resources ADD COLUMN approved_id TEXT NOT NULL DEFAULT '';
ALTER TABLE audit ADD COLUMN actor_id TEXT NOT NULL DEFAULT '';

-- ID tokens that were used to log in, until they expire: each logs in once, whichever server it is shown to.
CREATE TABLE logins (
    hash       TEXT PRIMARY KEY NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX logins_expired ON logins (expires_at);

-- What the worker of a task may record: for a change, the steps of the plan that the gate accepted for this lease.
ALTER TABLE tasks ADD COLUMN accepted TEXT NOT NULL DEFAULT '';
