//! The `emberlm` binary. Its commands are in this package's library.

use std::process::ExitCode;

// Each training step allocates and frees the same large buffers. glibc's allocator would return them to the
// system every time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    emberlm_cli::main()
}
