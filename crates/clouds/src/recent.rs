//! Values that were read a short while ago and need not be read again.

use berth_engine::handler::Outcome;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// One value for each key, such as a region.
pub struct Recent<T>(Mutex<HashMap<String, (Instant, Arc<T>)>>);

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(Mutex::new(HashMap::new()))
    }
}

impl<T> Recent<T> {
    /// The value if it is younger than `age`, else what `read` gives.
    pub async fn get<F: Future<Output = Outcome<T>>>(
        &self,
        key: &str,
        age: Duration,
        read: impl FnOnce() -> F,
    ) -> Outcome<Arc<T>> {
        // Held while reading, so that callers who start together read once.
        let mut values = self.0.lock().await;
        if let Some((since, value)) = values.get(key)
            && since.elapsed() < age
        {
            return Ok(value.clone());
        }
        let value = Arc::new(read().await?);
        values.insert(key.to_owned(), (Instant::now(), value.clone()));
        Ok(value)
    }
}
