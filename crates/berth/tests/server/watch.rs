//! `berth watch` on a real terminal: what it draws, that it lives, and that the terminal is as before when it ends.

use crate::support::folder::Folder;
use crate::support::server::Server;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const WAIT: Duration = Duration::from_secs(30);

/// A program on a terminal of its own.
pub struct Terminal {
    keys: File,
    child: Child,
    drawn: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    pub fn start(user: &Folder, args: &[&str]) -> Self {
        let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&near).unwrap();
        unlockpt(&near).unwrap();
        let name = ptsname(&near, Vec::new()).unwrap().into_string().unwrap();
        tcsetwinsize(&near, Winsize { ws_row: 40, ws_col: 140, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let far = || Stdio::from(File::options().read(true).write(true).open(&name).unwrap());
        let mut command = user.command(args);
        let child = command.env("TERM", "xterm").stdin(far()).stdout(far()).stderr(far()).spawn().unwrap();
        let keys = File::from(near);
        let mut reads = keys.try_clone().unwrap();
        let drawn: Arc<Mutex<Vec<u8>>> = Arc::default();
        let into = drawn.clone();
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(count @ 1..) = reads.read(&mut part) {
                into.lock().unwrap().extend_from_slice(&part[..count]);
            }
        });
        Self { keys, child, drawn }
    }

    /// What was drawn so far, without what moves the cursor and colours the text.
    fn text(&self) -> String {
        let bytes = self.drawn.lock().unwrap().clone();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let mut plain = String::new();
        let mut chars = text.chars();
        while let Some(one) = chars.next() {
            match one {
                '\u{1b}' => while chars.next().is_some_and(|c| !c.is_ascii_alphabetic()) {},
                one => plain.push(one),
            }
        }
        plain
    }

    #[track_caller]
    pub fn shows(&self, wanted: &str) {
        let until = Instant::now() + WAIT;
        while !self.text().contains(wanted) {
            assert!(Instant::now() < until, "`{wanted}` is not drawn:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    #[track_caller]
    fn ends(mut self) {
        let until = Instant::now() + WAIT;
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "it does not end:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        let left = String::from_utf8_lossy(&self.drawn.lock().unwrap()).into_owned();
        assert!(left.contains("\u{1b}[?1049h") && left.contains("\u{1b}[?1049l"), "the screen is as it was: {left:?}");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[test]
fn the_fleet_is_drawn_lives_and_leaves_the_terminal_as_it_was() {
    let server = Server::start(&[]);
    let user = server.admin();
    let network = |name: &str| {
        format!(
            "apiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {{name: {name}}}\nspec: {{networkName: {name}, region: fra1}}\n"
        )
    };
    user.write("one.yaml", &network("first-net"));
    user.berth(&["apply", "-f", "one.yaml", "--yes"]).ok();
    let mut terminal = Terminal::start(&user, &["watch"]);
    terminal.shows("first-net");
    terminal.shows(&server.url);
    user.write("two.yaml", &network("second-net"));
    user.berth(&["apply", "-f", "two.yaml", "--yes"]).ok();
    terminal.shows("second-net");
    // Details of the first line, back, and out.
    terminal.press("\r");
    terminal.shows("esc close");
    terminal.press("\u{1b}");
    std::thread::sleep(Duration::from_millis(400));
    terminal.press("q");
    terminal.ends();
    // Ctrl-C is as good; without a terminal it says what else there is.
    let mut terminal = Terminal::start(&user, &["watch"]);
    terminal.shows("first-net");
    terminal.press("\u{3}");
    terminal.ends();
    user.berth(&["watch"]).exits(1).says("needs a terminal");
}
