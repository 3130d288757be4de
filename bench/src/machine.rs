//! The machine, as every report names it.

/// What the figures were measured on.
pub fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info
        .lines()
        .find_map(|l| l.strip_prefix("model name"))
        .map_or("unknown", |l| l.trim_start_matches([' ', '\t', ':']));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = read("/proc/meminfo")
        .lines()
        .find_map(|l| l.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse::<u64>().ok())
        .unwrap_or(0);
    format!(
        "{model}, {cores} cores, {} GiB memory, {} {}",
        memory.div_ceil(1024 * 1024),
        std::env::consts::OS,
        read("/proc/sys/kernel/osrelease").trim()
    )
}
