//! On PostgreSQL, servers tell each other that something was written.

use crate::location::Kind;
use crate::store::Store;
use sqlx::postgres::{PgListener, PgPoolOptions};
use std::time::Duration;
use tokio::sync::watch;

const CHANNEL: &str = "berth";
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// None for SQLite, where nobody else writes.
pub(super) fn start(store: &Store, wake: watch::Sender<u64>) -> Option<tokio::task::AbortHandle> {
    let Kind::Postgres(options) = &store.location().0 else { return None };
    let options = options.clone();
    let task = tokio::spawn(async move {
        let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(*options);
        loop {
            if let Err(error) = listen(&pool, &wake).await {
                tracing::debug!(%error, "news of other servers do not arrive; trying again");
            }
            tokio::time::sleep(AGAIN_AFTER).await;
        }
    });
    Some(task.abort_handle())
}

async fn listen(pool: &sqlx::PgPool, wake: &watch::Sender<u64>) -> Result<(), sqlx::Error> {
    let mut listener = PgListener::connect_with(pool).await?;
    let schema: String = sqlx::query_scalar("SELECT current_schema()::text").fetch_one(&mut listener).await?;
    listener.listen(CHANNEL).await?;
    // Something may have been missed before.
    wake.send_modify(|count| *count += 1);
    loop {
        match listener.try_recv().await? {
            Some(news) if news.payload() != schema => {}
            // Without a word: the connection was made anew.
            _ => wake.send_modify(|count| *count += 1),
        }
    }
}
