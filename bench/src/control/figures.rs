//! Many measured times, and what is said of them.

use std::time::Duration;

/// Times of single operations.
#[derive(Debug, Default)]
pub struct Times(Vec<Duration>);

impl Times {
    pub fn add(&mut self, time: Duration) {
        self.0.push(time);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The time that so many of a hundred do not exceed, in milliseconds.
    pub fn percentile_ms(&self, percent: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        // The nearest rank: a time that was measured, never one between two.
        let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).map_or(f64::NAN, |time| time.as_secs_f64() * 1000.0)
    }
}

/// The middle one; of an even number, the lower of the two in the middle.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let mut times = Times::default();
        (1..=200).for_each(|ms| times.add(Duration::from_millis(ms)));
        assert_eq!(times.percentile_ms(50.0), 100.0);
        assert_eq!(times.percentile_ms(99.0), 198.0);
        assert!(Times::default().percentile_ms(50.0).is_nan());
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0]), 1.0);
    }
}
