-- What rows and logs are authenticated with.

-- Part of what a row's secrets are bound to: drawn at random each time they are written. 0: sealed before there were any.
ALTER TABLE resources ADD COLUMN manifest_seal BIGINT NOT NULL DEFAULT 0;
ALTER TABLE resources ADD COLUMN secrets_seal BIGINT NOT NULL DEFAULT 0;
ALTER TABLE revisions ADD COLUMN manifest_seal BIGINT NOT NULL DEFAULT 0;
ALTER TABLE units ADD COLUMN secrets_seal BIGINT NOT NULL DEFAULT 0;
-- A server of the version before does not know the numbers: what it would write over a numbered row could not be opened.
ALTER TABLE resources ADD CONSTRAINT resources_secrets_seal CHECK (secrets_seal = 0 OR secrets NOT LIKE '%"sealed:v2:%');
ALTER TABLE units ADD CONSTRAINT units_secrets_seal CHECK (secrets_seal = 0 OR secrets NOT LIKE '%"sealed:v2:%');
