//! What was reached, next to what was to be reached; a miss is said as plainly as a success.

use crate::Target;
use crate::creates::Middle;
use crate::fleet::Fleet;
use std::fmt::Write;

pub fn text(machine: &str, creates: &[Middle], fleets: &[Fleet]) -> String {
    let mut text = format!("Measured on {machine}\n");
    if !creates.is_empty() {
        creates_table(&mut text, creates);
    }
    if !fleets.is_empty() {
        fleet_table(&mut text, fleets);
    }
    goals(&mut text, creates, fleets);
    text
}

fn peer(creates: &[Middle]) -> Option<&Middle> {
    creates.iter().find(|middle| middle.target == Target::Kube)
}

fn creates_table(text: &mut String, creates: &[Middle]) {
    text.push_str(
        "\n| creates by 32 connections | a second | p50 ms | p99 ms | times the peer |\n|---|---:|---:|---:|---:|\n",
    );
    for middle in creates {
        let ratio = peer(creates).map_or("-".to_owned(), |peer| format!("{:.2}", middle.per_second / peer.per_second));
        _ = writeln!(
            text,
            "| {} | {:.0} | {:.1} | {:.1} | {ratio} |",
            middle.target.name(),
            middle.per_second,
            middle.p50_ms,
            middle.p99_ms
        );
    }
}

fn fleet_table(text: &mut String, fleets: &[Fleet]) {
    _ = write!(text, "\n| with {} resources stored |", fleets[0].resources);
    fleets.iter().for_each(|fleet| _ = write!(text, " {} |", fleet.target.name()));
    text.push_str("\n|---|");
    fleets.iter().for_each(|_| text.push_str("---:|"));
    text.push('\n');
    let mut row = |what: &str, value: &dyn Fn(&Fleet) -> String| {
        _ = write!(text, "| {what} |");
        fleets.iter().for_each(|fleet| _ = write!(text, " {} |", value(fleet)));
        text.push('\n');
    };
    row("resources accepted a second, 500 in each request", &|f| format!("{:.0}", f.filled_per_second));
    for workers in [1, 4, 16] {
        let of = |f: &Fleet| {
            f.tasks_per_second
                .iter()
                .find(|(w, _)| *w == workers)
                .map_or("-".to_owned(), |(_, rate)| format!("{rate:.0}"))
        };
        row(&format!("tasks leased and reported a second, workers: {workers}"), &of);
    }
    row("list of 100, p50 / p99 ms", &|f| format!("{:.2} / {:.2}", f.list_p50_ms, f.list_p99_ms));
    row("apply of one, p50 / p99 ms", &|f| format!("{:.2} / {:.2}", f.apply_p50_ms, f.apply_p99_ms));
    row("apply to lease, p50 / p99 ms", &|f| format!("{:.2} / {:.2}", f.to_lease_p50_ms, f.to_lease_p99_ms));
    row("memory at rest / at most, MiB", &|f| format!("{:.0} / {:.0}", f.resident_mib, f.peak_mib));
    row("CPU of the idle server, % of a core", &|f| format!("{:.2}", f.idle_core_percent));
    row("CPU of the idle database, % of a core", &|f| {
        f.database_idle_core_percent.map_or("-".to_owned(), |percent| format!("{percent:.2}"))
    });
    row("ready after, s: empty / with the fleet", &|f| format!("{:.3} / {:.3}", f.start_empty, f.start_full));
}

fn goals(text: &mut String, creates: &[Middle], fleets: &[Fleet]) {
    text.push_str("\n| to reach | reached | |\n|---|---|---|\n");
    let mut goal = |what: &str, reached: String, met: bool| {
        let mark = if met { "met" } else { "**missed**" };
        _ = writeln!(text, "| {what} | {reached} | {mark} |");
    };
    if let Some(peer) = peer(creates) {
        for (target, times) in [(Target::Sqlite, 2.0), (Target::Postgres, 1.0)] {
            if let Some(ours) = creates.iter().find(|middle| middle.target == target) {
                let ratio = ours.per_second / peer.per_second;
                let what = format!("{}: creates a second at least {times} times the peer's", target.name());
                goal(&what, format!("{ratio:.2} times"), ratio >= times);
            }
        }
    }
    for fleet in fleets {
        let name = fleet.target.name();
        let best = fleet.tasks_per_second.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        goal(
            &format!("{name}: at least 2,000 tasks leased and reported a second"),
            format!("{best:.0}"),
            best >= 2000.0,
        );
        let p99 = fleet.to_lease_p99_ms;
        goal(&format!("{name}: apply to lease, p99 at most 25 ms"), format!("{p99:.1} ms"), p99 <= 25.0);
        let mib = fleet.resident_mib;
        goal(&format!("{name}: at most 400 MiB"), format!("{mib:.0} MiB"), mib <= 400.0);
        let idle = fleet.idle_core_percent;
        goal(&format!("{name}: idle at most 3 % of a core"), format!("{idle:.2} %"), idle <= 3.0);
        let start = fleet.start_empty.max(fleet.start_full);
        goal(&format!("{name}: ready in at most 0.3 s"), format!("{start:.3} s"), start <= 0.3);
    }
}
