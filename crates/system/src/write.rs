//! Atomic file writes.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Writes a temporary file in the same folder, syncs it, and renames it to `path`. An existing file remains
/// intact if this fails, for example because the disk is full. A device or FIFO, such as `/dev/stdout`, is
/// written directly.
///
/// # Errors
/// The file cannot be written. No partial file remains.
pub fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let found = match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => {
            return File::options().write(true).open(path)?.write_all(content);
        }
        found => found.ok(),
    };
    let target = target(path)?;
    let folder = match target.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    // `tempfile`'s errors name the temporary file. Check for the usual error, a missing folder, without it.
    fs::metadata(folder)?;
    let mut builder = tempfile::Builder::new();
    builder.prefix(".emberlm-partial-");
    #[cfg(unix)]
    let ordinary = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    #[cfg(unix)]
    builder.permissions(ordinary);
    // Removed on drop unless it is persisted.
    let mut temporary = builder.tempfile_in(folder)?;
    // The `write_all` of the inner file: that of `tempfile` names the temporary file in errors.
    temporary.as_file_mut().write_all(content)?;
    if let Some(metadata) = found {
        temporary
            .as_file()
            .set_permissions(metadata.permissions())?;
    }
    temporary.as_file().sync_all()?;
    temporary.persist(&target).map_err(|error| error.error)?;
    sync_folder(folder);
    Ok(())
}

/// Returns the path that an output named `path` creates or replaces. For a symbolic link that is its target, which need not
/// exist, and not the link.
///
/// # Errors
/// The links lead in a circle.
pub fn target(path: &Path) -> io::Result<PathBuf> {
    /// Links that are followed, as Linux does.
    const LINKS: usize = 40;
    // A slash at the end would follow the link.
    let mut target: PathBuf = path.components().collect();
    for _ in 0..LINKS {
        let Ok(next) = fs::read_link(&target) else {
            return Ok(target);
        };
        if let Ok(real) = fs::canonicalize(&target) {
            return Ok(real);
        }
        target = target.parent().unwrap_or(Path::new("")).join(next);
    }
    fs::metadata(path).map(|_| target)
}

/// Syncs the folder to make the new name durable, if the system supports it.
fn sync_folder(folder: &Path) {
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_without_leftovers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for content in ["one", "two"] {
            write_whole(&path, content.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(write_whole(&folder.path().join("none/file"), b"").is_err());
    }

    #[cfg(unix)]
    #[test]
    fn links_and_permissions_are_preserved() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let [path, link] = ["file", "link"].map(|name| folder.path().join(name));
        fs::write(&path, "one").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        write_whole(&link, b"two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert!(link.is_symlink());
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
    }

    #[cfg(unix)]
    #[test]
    fn the_target_of_a_dangling_link_is_created_and_a_circle_is_an_error() {
        use std::os::unix::fs::symlink;

        let folder = tempfile::tempdir().unwrap();
        let [first, second, file] =
            ["first", "second", "file"].map(|name| folder.path().join(name));
        symlink("second", &first).unwrap();
        symlink("file", &second).unwrap();
        write_whole(&first, b"text").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "text");
        assert!(first.is_symlink() && second.is_symlink());

        symlink("circle", folder.path().join("circle")).unwrap();
        assert!(write_whole(&folder.path().join("circle"), b"").is_err());
        assert_eq!(
            target(&folder.path().join("none/")).unwrap(),
            folder.path().join("none")
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn devices_are_written_directly() {
        let error = write_whole(Path::new("/dev/full"), b"text").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(!fs::metadata("/dev/full").unwrap().is_file());
    }
}
