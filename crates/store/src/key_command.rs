//! A command that prints the key ring, such as a client of a vault's. It is started without a shell, gets no input, and has
//! its time and its output limited; what it prints is never logged.

use crate::error::StoreError;
use crate::key::RING_BYTES_MAX;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

const ENDS_WITHIN: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(5);
const WORDS_MAX: usize = 64;

pub(crate) fn run(line: &str, place: &str) -> Result<Zeroizing<Vec<u8>>, StoreError> {
    run_within(line, place, ENDS_WITHIN)
}

fn run_within(line: &str, place: &str, limit: Duration) -> Result<Zeroizing<Vec<u8>>, StoreError> {
    let failed = |cause: String| StoreError::Key { place: place.to_owned(), cause };
    let words: Vec<&str> = line.split_whitespace().take(WORDS_MAX).collect();
    let Some((program, args)) = words.split_first() else { return Err(failed("it is empty".into())) };
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // What it complains of may hold what it read.
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| failed(format!("cannot start `{program}`: {error}")))?;
    let output = child.stdout.take();
    let (told, heard) = std::sync::mpsc::sync_channel(1);
    // Reads apart: a command that neither prints nor ends must not be waited for longer than its time.
    std::thread::spawn(move || {
        let mut text = Zeroizing::new(Vec::with_capacity(RING_BYTES_MAX as usize + 1));
        let read = match output {
            Some(output) => output.take(RING_BYTES_MAX + 1).read_to_end(&mut text),
            None => Ok(0),
        };
        _ = told.send(read.map(|_| text));
    });
    let until = Instant::now() + limit;
    let late = || failed(format!("`{program}` did not end within {} seconds", limit.as_secs()));
    let text = match heard.recv_timeout(limit) {
        Ok(Ok(text)) if text.len() as u64 > RING_BYTES_MAX => {
            end(&mut child);
            return Err(failed(format!("`{program}` printed more than {RING_BYTES_MAX} bytes")));
        }
        Ok(Ok(text)) => text,
        Ok(Err(error)) => {
            end(&mut child);
            return Err(failed(format!("cannot read what `{program}` printed: {error}")));
        }
        Err(_) => {
            end(&mut child);
            return Err(late());
        }
    };
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(text),
            Ok(Some(status)) => return Err(failed(format!("`{program}` failed ({status})"))),
            Ok(None) if Instant::now() < until => std::thread::sleep(LOOK_AGAIN),
            Ok(None) => {
                end(&mut child);
                return Err(late());
            }
            Err(error) => return Err(failed(format!("cannot wait for `{program}`: {error}"))),
        }
    }
}

fn end(child: &mut Child) {
    _ = child.kill();
    _ = child.wait();
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn cause(line: &str) -> String {
        match run_within(line, "the test", Duration::from_millis(300)) {
            Err(StoreError::Key { cause, .. }) => cause,
            other => panic!("{:?}", other.is_ok()),
        }
    }

    #[test]
    fn what_it_prints_is_read_and_no_shell_is_there() {
        assert_eq!(run("echo $HOME;id", "the test").unwrap().as_slice(), b"$HOME;id\n");
    }

    #[test]
    fn time_and_output_are_limited() {
        let clock = Instant::now();
        assert!(cause("sleep 30").contains("did not end"));
        assert!(cause("yes key").contains("more than"));
        assert!(cause("false").contains("failed"));
        assert!(cause("/no/such/program secret-word").contains("cannot start"));
        assert!(!cause("/no/such/program secret-word").contains("secret-word"));
        assert_eq!(cause("  "), "it is empty");
        assert!(clock.elapsed() < Duration::from_secs(5));
    }
}
