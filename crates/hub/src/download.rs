//! Downloads one file: resumed after a break, checked by its hash, and moved into the cache when it is complete.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sha1::Sha1;
use sha2::{Digest, Sha256};
use ureq::http::StatusCode;

use crate::cache::{Cache, create_parent};
use crate::client::{Client, Failure, Hash, RemoteFile, network};
use crate::error::HubError;
use crate::name::ModelName;

/// The size of reads and writes in bytes.
const BLOCK: usize = 256 << 10;
/// The bytes by which a file must grow for the count of failed attempts to begin again.
const PROGRESS: u64 = 64 << 10;

/// Downloads `file` into the cache unless its content is there. `received` is called with the bytes that the content
/// has so far. Another process that downloads the same file is waited for.
pub(crate) fn download(
    client: &Client<'_>,
    cache: &Cache,
    name: &ModelName,
    commit: &str,
    file: &RemoteFile,
    received: &mut dyn FnMut(u64),
) -> Result<(), HubError> {
    let blob = cache.blob(name, file.hash.name());
    let lock = cache.lock(name, file.hash.name());
    create_parent(&blob)?;
    create_parent(&lock)?;
    let locked = File::create(&lock).map_err(HubError::file("create", &lock))?;
    locked.lock().map_err(HubError::file("lock", &lock))?;
    // Checked under the lock, since another process may just have completed it.
    if !is_complete(&blob, file) {
        let url = client.address(name, commit, &file.path);
        let partial = with_suffix(&blob, ".incomplete");
        let mut transfer = Transfer {
            client,
            name,
            url: &url,
            partial: &partial,
            size: file.size,
            received,
        };
        transfer.run()?;
        if let Err(error) = check(&url, &partial, file) {
            // A damaged content cannot be resumed.
            let _ = fs::remove_file(&partial);
            return Err(error);
        }
        fs::rename(&partial, &blob).map_err(HubError::file("create", &blob))?;
    }
    received(file.size);
    Ok(())
}

/// Returns true if the content is in the cache. Contents are checked before they get their name.
fn is_complete(blob: &Path, file: &RemoteFile) -> bool {
    fs::metadata(blob).is_ok_and(|found| found.len() == file.size)
}

/// The transfer of one file.
struct Transfer<'a> {
    client: &'a Client<'a>,
    name: &'a ModelName,
    url: &'a str,
    /// The file that is written.
    partial: &'a Path,
    /// Its size when it is complete.
    size: u64,
    received: &'a mut dyn FnMut(u64),
}

impl Transfer<'_> {
    /// Appends to the partial file what it lacks.
    fn run(&mut self) -> Result<(), HubError> {
        let failed = |action| HubError::file(action, self.partial);
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.partial)
            .map_err(failed("create"))?;
        if file.metadata().map_err(failed("read"))?.len() > self.size {
            file.set_len(0).map_err(failed("write"))?;
        }
        let mut failures = 0;
        // Of the furthest position ever reached: a server may begin again at byte 0.
        let mut furthest = file.metadata().map_err(failed("read"))?.len();
        loop {
            let failed = |action| HubError::file(action, self.partial);
            let start = file.seek(SeekFrom::End(0)).map_err(failed("read"))?;
            (self.received)(start);
            if start == self.size {
                return file.sync_all().map_err(failed("write"));
            }
            if let Err(failure) = self.append(&mut file, start) {
                let now = file
                    .stream_position()
                    .map_err(HubError::file("read", self.partial))?;
                if now >= furthest.saturating_add(PROGRESS) {
                    (failures, furthest) = (0, now);
                }
                self.client.pause_or_fail(failure, &mut failures)?;
            }
        }
    }

    /// Appends to `file`, which has `start` bytes, those of one response.
    fn append(&mut self, file: &mut File, start: u64) -> Result<(), Failure> {
        let (url, size) = (self.url, self.size);
        let stored =
            |error: io::Error| Failure::Final(HubError::file("write", self.partial)(error));
        let broken = |at: u64, reason: &dyn Display| {
            let reason = format!("{reason} after {at} of {size} bytes");
            Failure::Passing(network(url, &reason), None)
        };
        let response = match self.client.get(url, start, self.name) {
            // The server's file is not longer than the partial one, so the latter is not a part of it.
            Err(Failure::Final(error @ HubError::Status { status: 416, .. })) if start > 0 => {
                file.set_len(0).map_err(stored)?;
                return Err(Failure::Passing(error, None));
            }
            response => response?,
        };
        let mut at = start;
        // The server ignores ranges: start again.
        if start > 0 && response.status() != StatusCode::PARTIAL_CONTENT {
            file.set_len(0).map_err(stored)?;
            at = file.seek(SeekFrom::Start(0)).map_err(stored)?;
        }
        let mut body = response.into_body().into_reader();
        let mut block = vec![0; BLOCK];
        while at < size {
            let wanted = usize::try_from(size - at).map_or(BLOCK, |rest| rest.min(BLOCK));
            let read = body
                .read(&mut block[..wanted])
                .map_err(|error| broken(at, &error))?;
            if read == 0 {
                return Err(broken(at, &"the connection ended"));
            }
            file.write_all(&block[..read]).map_err(stored)?;
            at += read as u64;
            (self.received)(at);
        }
        Ok(())
    }
}

/// Checks the hash of the downloaded bytes.
fn check(url: &str, path: &Path, file: &RemoteFile) -> Result<(), HubError> {
    let read = |error| HubError::file("read", path)(error);
    let mut content = File::open(path).map_err(read)?;
    let mut beginning = Vec::new();
    (&mut content)
        .take(64)
        .read_to_end(&mut beginning)
        .map_err(read)?;
    content.rewind().map_err(read)?;
    let found = match &file.hash {
        Hash::Sha256(_) => digest(Sha256::new(), content),
        Hash::Git(_) => {
            let git = Sha1::new_with_prefix(format!("blob {}\0", file.size));
            digest(git, content)
        }
    }
    .map_err(read)?;
    if found.eq_ignore_ascii_case(file.hash.name()) {
        return Ok(());
    }
    let reason = match beginning.starts_with(b"version https://git-lfs") {
        true => "it is a Git LFS pointer instead of the content".to_owned(),
        false => format!("its hash is {found} instead of {}", file.hash.name()),
    };
    Err(HubError::Damaged {
        url: url.to_owned(),
        reason,
    })
}

/// The hash of all bytes of `content`, in hexadecimal digits.
fn digest(mut hasher: impl Digest, mut content: File) -> io::Result<String> {
    let mut block = vec![0; BLOCK];
    loop {
        match content.read(&mut block)? {
            0 => break,
            read => hasher.update(&block[..read]),
        }
    }
    Ok(hasher
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}
