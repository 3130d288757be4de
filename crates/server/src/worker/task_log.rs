//! The progress and the log of a running task, with secrets redacted, sent in small batches.

use super::api::TaskApi;
use super::lease::Lease;
use crate::pb;
use berth_engine::progress::{Progress, Watcher};
use berth_model::REDACTED;
use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Lines that wait to be sent; more than that and the oldest are left out.
const WAITING_MAX: usize = 500;
/// Bytes of one line.
const LINE_BYTES_MAX: usize = 2_000;
/// Lines in one call.
const BATCH: usize = 100;
/// How long lines are collected before they are sent.
const COLLECT: Duration = Duration::from_millis(300);
/// Anything shorter is too common a text to be replaced wherever it appears.
const SECRET_BYTES_MIN: usize = 6;
/// Parts of a longer secret, such as the keys in a kubeconfig, are secret by themselves from this length on.
const PART_BYTES_MIN: usize = 20;

#[derive(Default)]
pub struct TaskLog {
    state: Mutex<State>,
    news: Notify,
}

#[derive(Default)]
struct State {
    secrets: Vec<SecretString>,
    lines: VecDeque<(Timestamp, String)>,
    left_out: usize,
    doing: String,
    told: String,
}

impl TaskLog {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on these are replaced wherever they appear.
    pub fn hide<'s>(&self, secrets: impl IntoIterator<Item = &'s SecretString>) {
        let mut state = self.state();
        for secret in secrets {
            let text = secret.expose_secret();
            let parts = text.split_whitespace().filter(|part| {
                part.len() >= PART_BYTES_MIN && !part.ends_with(':') && !part.contains("://") && *part != text
            });
            for text in parts.chain([text]).filter(|text| text.len() >= SECRET_BYTES_MIN) {
                if !state.secrets.iter().any(|known| known.expose_secret() == text) {
                    state.secrets.push(SecretString::from(text.to_owned()));
                }
            }
        }
        // The longest first: a part of one must not keep the whole from being found.
        state.secrets.sort_by_key(|secret| std::cmp::Reverse(secret.expose_secret().len()));
    }

    /// The text without secrets.
    pub fn redacted(&self, text: &str) -> String {
        redact(&self.state().secrets, text)
    }

    pub fn line(&self, text: &str) {
        let mut state = self.state();
        let mut text = redact(&state.secrets, text);
        if text.len() > LINE_BYTES_MAX {
            let end = (0..=LINE_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            text.truncate(end);
            text.push('…');
        }
        if state.lines.len() >= WAITING_MAX {
            state.lines.pop_front();
            state.left_out += 1;
        }
        state.lines.push_back((Timestamp::now(), text));
        drop(state);
        self.news.notify_one();
    }

    fn doing(&self, text: &str) {
        {
            let mut state = self.state();
            let text = redact(&state.secrets, text);
            if state.doing == text {
                return;
            }
            state.doing = text;
        }
        self.line(text);
    }

    /// What is to be sent next.
    fn batch(&self) -> Option<(String, Vec<pb::LogText>)> {
        let mut state = self.state();
        if state.lines.is_empty() && state.doing == state.told {
            return None;
        }
        let mut lines = Vec::new();
        if state.left_out > 0 {
            let text = format!("… {} lines were left out", state.left_out);
            lines.push(pb::LogText { at: Timestamp::now().as_microsecond(), text });
            state.left_out = 0;
        }
        while lines.len() < BATCH
            && let Some((at, text)) = state.lines.pop_front()
        {
            lines.push(pb::LogText { at: at.as_microsecond(), text });
        }
        state.told = state.doing.clone();
        Some((state.doing.clone(), lines))
    }

    /// Sends what comes, until it is dropped. What cannot be sent is lost: it is for people who look.
    pub async fn stream(self: Arc<Self>, api: Arc<dyn TaskApi>, lease: Arc<Lease>) {
        loop {
            self.news.notified().await;
            tokio::time::sleep(COLLECT).await;
            self.flush(&*api, &lease).await;
        }
    }

    /// Sends what is left.
    pub async fn flush(&self, api: &dyn TaskApi, lease: &Lease) {
        while lease.holds()
            && let Some((message, lines)) = self.batch()
        {
            let request = pb::ProgressRequest { held: Some(lease.held.clone()), message, lines };
            if let Err(fault) = api.progress(request).await {
                tracing::debug!(%fault, "progress was lost");
                return;
            }
        }
    }
}

fn redact(secrets: &[SecretString], text: &str) -> String {
    let mut text = text.to_owned();
    for secret in secrets {
        let secret = secret.expose_secret();
        if text.contains(secret) {
            text = text.replace(secret, REDACTED);
        }
    }
    text
}

impl Watcher for TaskLog {
    fn see(&self, progress: Progress) {
        match progress {
            Progress::Waits { .. } => {}
            Progress::Started { verb, .. } => self.doing(verb),
            Progress::Doing { what, .. } => self.doing(&what),
            Progress::Done { summary, took, .. } => {
                self.doing(&format!("done in {:.1} s: {summary}", took.as_secs_f64()));
            }
            Progress::Failed { trouble, .. } => {
                self.doing(&trouble.to_string());
                trouble.help.iter().for_each(|line| self.line(&line.to_string()));
            }
            Progress::Skipped { because, .. } => self.doing(&format!("not done: {because}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_replaced_wherever_they_appear() {
        let log = TaskLog::default();
        let kubeconfig = "users:\n- token: abcdefghijklmnopqrstuvwxyz0123\n";
        log.hide([&SecretString::from("hunter2-long"), &SecretString::from(kubeconfig), &SecretString::from("ab")]);
        log.line("a hunter2-long and abcdefghijklmnopqrstuvwxyz0123, ab");
        let (_, lines) = log.batch().unwrap();
        assert_eq!(lines[0].text, "a (secret) and (secret), ab");
        assert!(log.batch().is_none());
        assert_eq!(log.redacted("xhunter2-longx"), "x(secret)x");
    }

    #[test]
    fn a_flood_is_cut_at_its_oldest_end() {
        let log = TaskLog::default();
        for number in 0..WAITING_MAX + 10 {
            log.line(&format!("line {number}"));
        }
        let (_, lines) = log.batch().unwrap();
        assert_eq!(lines.len(), BATCH);
        assert!(lines[0].text.contains("10 lines were left out") && lines[1].text == "line 10");
    }
}
