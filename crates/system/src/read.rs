//! Safe reads of untrusted files.
//!
//! Opening a FIFO in place of a configuration file blocks, and reading a link to `/dev/zero` never ends. The
//! functions here open only regular files and read a limited number of bytes.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;

use crate::file_kind::{FileKind, HEAD_BYTES};

/// The size limit of a configuration, a manifest or another description in JSON or TOML: 64 MiB.
pub const DESCRIPTION_LIMIT: u64 = 64 << 20;

/// Opens a regular file for reading. Follows symbolic links.
///
/// # Errors
/// The file cannot be opened, or is a directory, a FIFO, a socket or a device.
pub fn open(path: &Path) -> io::Result<File> {
    let file = open_without_blocking(path)?;
    check_regular(&file.metadata()?)?;
    Ok(file)
}

impl FileKind {
    /// Identifies the regular file at `path`.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn of_file(path: &Path) -> io::Result<Option<Self>> {
        let mut head = Vec::new();
        let file = open(path)?;
        file.take(HEAD_BYTES as u64).read_to_end(&mut head)?;
        Ok(Self::of(&head))
    }
}

/// Reads a regular file of at most `limit` bytes.
///
/// # Errors
/// The file cannot be opened or read, is not a regular file, or is longer than `limit`.
pub fn read_bytes(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_limited(open(path)?, limit)
}

fn read_limited(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len().min(limit);
    // The length is only a hint: the file may change.
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("it is longer than {}", size(limit)),
        ));
    }
    Ok(bytes)
}

/// Reads a regular UTF-8 file of at most `limit` bytes: a description or a template.
///
/// # Errors
/// See [`read_bytes`] and [`check_text`]. Also, the file is not UTF-8.
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    text(read_bytes(path, limit)?)
}

/// Reads a UTF-8 file of at most [`DESCRIPTION_LIMIT`] that the user named. It can be the pipe of a shell, as in
/// `--config <(command)`, but no other FIFO, whose writer may never come.
///
/// # Errors
/// The file cannot be read, is not regular, is longer, is not UTF-8, or fails [`check_text`].
pub fn read_argument(path: &Path) -> io::Result<String> {
    let is_open = ["/dev/fd", "/proc/self/fd", "/dev/stdin"]
        .iter()
        .any(|opened| path.starts_with(opened));
    match is_open {
        true => text(read_limited(File::open(path)?, DESCRIPTION_LIMIT)?),
        false => read_text(path, DESCRIPTION_LIMIT),
    }
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    check_text(&bytes)?;
    // The same message as `fs::read_to_string`.
    String::from_utf8(bytes).map_err(|_| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "stream did not contain valid UTF-8",
        )
    })
}

/// Checks that the contents of a description or a template are not those of another kind of file, such as a Git LFS pointer
/// or a web page that was saved in its place.
///
/// # Errors
/// They are. The message names the kind.
pub fn check_text(contents: &[u8]) -> io::Result<()> {
    match FileKind::of(contents) {
        None | Some(FileKind::Text | FileKind::Xml) => Ok(()),
        Some(kind) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("it is {kind}"),
        )),
    }
}

/// Opens a file without blocking. Without the flag, opening a FIFO waits for a writer.
#[cfg(unix)]
fn open_without_blocking(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;

    use rustix::fs::OFlags;

    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    // The flags fit a C `int`.
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    File::options().read(true).custom_flags(flags).open(path)
}

#[cfg(not(unix))]
fn open_without_blocking(path: &Path) -> io::Result<File> {
    File::open(path)
}

fn check_regular(metadata: &Metadata) -> io::Result<()> {
    if metadata.is_file() {
        return Ok(());
    }
    #[cfg(unix)]
    if metadata.is_dir() {
        return Err(rustix::io::Errno::ISDIR.into());
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("it is {}, not a regular file", kind(metadata)),
    ))
}

#[cfg(unix)]
fn kind(metadata: &Metadata) -> &'static str {
    use std::os::unix::fs::FileTypeExt;

    let kind = metadata.file_type();
    match () {
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () if kind.is_char_device() || kind.is_block_device() => "a device",
        () => "something else",
    }
}

#[cfg(not(unix))]
fn kind(_metadata: &Metadata) -> &'static str {
    "something else"
}

/// Formats a limit for an error message.
fn size(bytes: u64) -> String {
    match bytes {
        0x10_0000.. => format!("{} MiB", bytes >> 20),
        bytes => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_is_read_up_to_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "four").unwrap();
        assert_eq!(read_text(&path, 4).unwrap(), "four");
        let error = read_text(&path, 3).unwrap_err();
        assert_eq!(error.to_string(), "it is longer than 3 bytes");
        fs::write(&path, b"\xff").unwrap();
        assert!(read_text(&path, 4).is_err());
        assert_eq!(read_bytes(&path, 4).unwrap(), b"\xff");
        fs::write(&path, "<!DOCTYPE html><html>").unwrap();
        let error = read_text(&path, 100).unwrap_err();
        assert_eq!(error.to_string(), "it is an HTML page");
    }

    /// A shell passes the output of `<(command)` as such a path.
    #[cfg(target_os = "linux")]
    #[test]
    fn an_argument_can_be_an_open_pipe() {
        use std::io::Write;
        use std::os::fd::AsRawFd;

        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"text").unwrap();
        drop(writer);
        let path = format!("/dev/fd/{}", reader.as_raw_fd());
        assert_eq!(read_argument(Path::new(&path)).unwrap(), "text");
    }

    #[cfg(unix)]
    #[test]
    fn only_regular_files_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
        let error = read_text(&link, 4).unwrap_err().to_string();
        assert_eq!(error, "it is a device, not a regular file");
        let error = open(folder.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
        let fifo = folder.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status();
        assert!(made.unwrap().success());
        let error = open(&fifo).unwrap_err().to_string();
        assert_eq!(error, "it is a FIFO, not a regular file");
        let error = read_argument(&fifo).unwrap_err().to_string();
        assert_eq!(error, "it is a FIFO, not a regular file");
    }
}
