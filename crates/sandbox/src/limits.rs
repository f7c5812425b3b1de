//! Limits a worker sets for itself before it reads a job.

/// Bytes of addresses the process has mapped; none where the platform does not say.
pub fn mapped() -> Option<u64> {
    #[cfg(target_os = "linux")]
    {
        let sizes = std::fs::read_to_string("/proc/self/statm").ok()?;
        let pages: u64 = sizes.split(' ').next()?.parse().ok()?;
        Some(pages * rustix::param::page_size() as u64)
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// Sets the limits that hold for the worker's whole life. `memory` is in bytes above what is mapped now.
#[cfg(unix)]
pub fn apply(memory: u64) {
    use rustix::process::Resource;

    // Files that libraries open while they work, such as the time zone's.
    const FILES: u64 = 16;

    #[cfg(target_os = "linux")]
    {
        // The parent may be gone already: then stdin has ended, and no job is read.
        let _ =
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
        // Where the machine runs out of memory in spite of the limits, the worker goes first.
        let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    }
    lower(Resource::Core, 0);
    lower(Resource::Fsize, 0);
    lower(Resource::Nofile, FILES);
    if let Some(mapped) = mapped() {
        lower(Resource::As, mapped.saturating_add(memory));
    }
}

#[cfg(not(unix))]
pub fn apply(_memory: u64) {}

/// Allows `seconds` of CPU time from now on, after which the system kills the process.
#[cfg(unix)]
pub fn allow_cpu_time(seconds: u64) {
    use rustix::process::{Resource, getrlimit, setrlimit};
    use rustix::time::{ClockId, clock_gettime};

    let used = u64::try_from(clock_gettime(ClockId::ProcessCPUTime).tv_sec).unwrap_or_default();
    let mut limit = getrlimit(Resource::Cpu);
    let wanted = used + seconds + 1;
    limit.current = Some(limit.maximum.map_or(wanted, |most| most.min(wanted)));
    let _ = setrlimit(Resource::Cpu, limit);
}

#[cfg(not(unix))]
pub fn allow_cpu_time(_seconds: u64) {}

/// Lowers a limit for good. A platform that refuses has none.
#[cfg(unix)]
fn lower(resource: rustix::process::Resource, to: u64) {
    let mut limit = rustix::process::getrlimit(resource);
    let to = limit.maximum.map_or(to, |most| most.min(to));
    limit.current = Some(to);
    limit.maximum = Some(to);
    let _ = rustix::process::setrlimit(resource, limit);
}
