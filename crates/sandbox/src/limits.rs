//! Limits that a worker sets for itself before it reads a job.

/// Returns the size of the mapped address space in bytes, or `None` if the platform does not report it.
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

/// Sets the limits for the worker's whole lifetime. `memory` is in bytes, in addition to the memory already
/// mapped.
#[cfg(unix)]
pub fn apply(memory: u64) {
    use rustix::process::Resource;

    // Enough for files that libraries open at run time, such as time zone data.
    const FILES: u64 = 16;

    #[cfg(target_os = "linux")]
    {
        // If the parent has already died, stdin has ended and no job is read.
        let _ =
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
        // If the machine runs out of memory despite the limits, the worker is killed first.
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

/// Allows `seconds` more of CPU time, after which the kernel kills the process.
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

/// Lowers a limit permanently. Errors are ignored: some platforms do not support every limit.
#[cfg(unix)]
fn lower(resource: rustix::process::Resource, to: u64) {
    let mut limit = rustix::process::getrlimit(resource);
    let to = limit.maximum.map_or(to, |most| most.min(to));
    limit.current = Some(to);
    limit.maximum = Some(to);
    let _ = rustix::process::setrlimit(resource, limit);
}
