//! When the state can no longer be written, the command says what it had made, and the next run takes it up.

use crate::declared::manifests;
use crate::harness::{Project, all};
use crate::kill_cases::net;
use crate::support::cloud::Cloud;
use crate::support::ran::run;
use std::process::Command;

/// Sizes that the state's files may have, in blocks of 512 bytes: from too little for anything to enough for everything.
const BLOCKS: std::ops::Range<u64> = 8..900;
const STEP: usize = 20;

fn networks() -> String {
    let one = |n: u32| net(&format!("net-{n}"), "fra1", "").replace("name: net}", &format!("name: net-{n}}}"));
    (0..4).map(one).collect::<Vec<_>>().join("---\n")
}

#[test]
fn on_a_full_disk_what_was_made_is_told() {
    let text = networks();
    let told = std::sync::atomic::AtomicUsize::new(0);
    let jobs = BLOCKS.step_by(STEP).map(|blocks| (format!("{blocks} blocks"), blocks)).collect();
    all(jobs, |_, blocks| {
        let cloud = Cloud::instant();
        let project = Project::with(&[("all.yaml", &text)]);
        let args = ["apply", "-f", "all.yaml", "--yes", "--parallelism", "1"];
        let plain = project.command(&cloud, &args);
        // A write beyond the limit then fails as it does on a full disk, and does not end the process.
        let mut limited = Command::new("/bin/sh");
        limited.args(["-c", "trap '' XFSZ; ulimit -f \"$0\"; exec \"$@\"", &blocks.to_string()]);
        limited.arg(plain.get_program()).args(plain.get_args()).current_dir(project.work()).env_clear();
        limited.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let ran = run(limited.stdin(std::process::Stdio::null()));
        let made = cloud.objects("civo.network");
        if ran.code != Some(0) {
            assert_eq!(ran.code, Some(1), "{ran}");
            for network in &made {
                let name = network["name"].as_str().expect("a name");
                let lines: Vec<&str> = ran.stderr.lines().filter(|line| line.contains(name)).collect();
                assert!(!lines.is_empty() && lines.iter().all(|line| !line.contains("not tried")), "{name}\n{ran}");
                let done = lines.iter().any(|line| line.contains('\u{2713}'));
                assert!(done || lines.iter().any(|line| line.contains("made civo.network")), "{name}\n{ran}");
            }
            if !made.is_empty() {
                told.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        }
        project.berth(&cloud, &args).ok();
        cloud.holds(&manifests(&text));
    });
    assert!(told.into_inner() > 0, "no size let something be made and not be recorded");
}
