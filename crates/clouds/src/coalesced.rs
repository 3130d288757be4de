//! Concurrent requests for the same list share one read of it.

use berth_engine::handler::Outcome;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Mutex;

/// Each caller gets a list that was read after its call began, so that it contains what the caller has just made. Callers that
/// arrive during a read share the next one.
pub struct Coalesced<T> {
    asked: AtomicU64,
    /// The newest list, and the number of the last caller that may use it.
    last: Mutex<(u64, Option<Arc<T>>)>,
}

impl<T> Default for Coalesced<T> {
    fn default() -> Self {
        Self { asked: AtomicU64::new(0), last: Mutex::new((0, None)) }
    }
}

impl<T> Coalesced<T> {
    pub async fn get<F: Future<Output = Outcome<T>>>(&self, fetch: impl FnOnce() -> F) -> Outcome<Arc<T>> {
        let ticket = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let mut last = self.last.lock().await;
        if let (up_to, Some(value)) = &*last
            && *up_to >= ticket
        {
            let value = value.clone();
            if *up_to == ticket {
                // No later caller may use it: free a list that may be large.
                last.1 = None;
            }
            return Ok(value);
        }
        let up_to = self.asked.load(Ordering::SeqCst);
        let value = Arc::new(fetch().await?);
        *last = (up_to, (up_to > ticket).then(|| value.clone()));
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn askers_share_but_never_see_an_answer_older_than_their_question() {
        let coalesced = Arc::new(Coalesced::<u64>::default());
        let world = Arc::new(AtomicU64::new(0));
        let fetches = Arc::new(AtomicU64::new(0));
        let mut askers = Vec::new();
        for _ in 0..50 {
            let (coalesced, world, fetches) = (coalesced.clone(), world.clone(), fetches.clone());
            askers.push(tokio::spawn(async move {
                let made = world.fetch_add(1, Ordering::SeqCst) + 1;
                let seen = coalesced
                    .get(|| async {
                        fetches.fetch_add(1, Ordering::SeqCst);
                        let seen = world.load(Ordering::SeqCst);
                        tokio::time::sleep(Duration::from_millis(5)).await;
                        Ok(seen)
                    })
                    .await
                    .map(|seen| *seen);
                assert!(seen.is_ok_and(|seen| seen >= made));
            }));
        }
        for asker in askers {
            asker.await.unwrap();
        }
        assert!(fetches.load(Ordering::SeqCst) <= 3, "{fetches:?}");
    }
}
