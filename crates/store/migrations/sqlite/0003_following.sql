-- What a resource refers to became another while a task made it from what that was before.
ALTER TABLE resources ADD COLUMN stale BOOLEAN NOT NULL DEFAULT FALSE;

-- Open tasks are few among those that have ended: lists of them, and a server's start, must not read all.
CREATE INDEX tasks_open ON tasks (id) WHERE state IN ('queued', 'running');
