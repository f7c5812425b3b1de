//! Writing a file whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Writes a file beside its place, syncs it, and renames it: where the disk is full, what was there before stays. A
/// device or a FIFO, such as `/dev/stdout`, is written to directly.
///
/// # Errors
/// The file cannot be written; nothing of it is left then.
pub fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let found = match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => {
            return File::options().write(true).open(path)?.write_all(content);
        }
        found => found.ok(),
    };
    // A link stays a link: the file that it names is replaced.
    let place = match found {
        Some(_) => fs::canonicalize(path)?,
        None => path.to_owned(),
    };
    let folder = match place.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    // The library's errors name the temporary file; the usual one, a folder that is not there, is reported without it.
    fs::metadata(folder)?;
    let mut builder = tempfile::Builder::new();
    builder.prefix(".emberlm-partial-");
    #[cfg(unix)]
    let ordinary = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    #[cfg(unix)]
    builder.permissions(ordinary);
    // Removed where it is dropped before it has its name.
    let mut aside = builder.tempfile_in(folder)?;
    // Its own `write_all` names the temporary file in errors.
    aside.as_file_mut().write_all(content)?;
    if let Some(metadata) = found {
        aside.as_file().set_permissions(metadata.permissions())?;
    }
    aside.as_file().sync_all()?;
    aside.persist(&place).map_err(|error| error.error)?;
    sync_folder(folder);
    Ok(())
}

/// Makes the new name durable, where the system can do that for a folder.
fn sync_folder(folder: &Path) {
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_else_is_left() {
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
    fn links_and_permissions_stay() {
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

    #[cfg(target_os = "linux")]
    #[test]
    fn a_device_is_written_to_directly() {
        let error = write_whole(Path::new("/dev/full"), b"text").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(!fs::metadata("/dev/full").unwrap().is_file());
    }
}
