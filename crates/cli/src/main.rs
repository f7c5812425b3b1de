//! The binary `emberlm`. Its commands are in the library of this package.

use std::process::ExitCode;

// Steps allocate and free the same large buffers: glibc's allocator gives them back to the system each time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    emberlm_cli::main()
}
