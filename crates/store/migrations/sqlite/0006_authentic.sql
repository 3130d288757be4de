-- What rows and logs are authenticated with.

-- Part of what a row's secrets are bound to: drawn at random each time they are written. 0: sealed before there were any.
ALTER TABLE resources ADD COLUMN manifest_seal BIGINT NOT NULL DEFAULT 0;
ALTER TABLE resources ADD COLUMN secrets_seal BIGINT NOT NULL DEFAULT 0;
ALTER TABLE revisions ADD COLUMN manifest_seal BIGINT NOT NULL DEFAULT 0;
ALTER TABLE units ADD COLUMN secrets_seal BIGINT NOT NULL DEFAULT 0;
