//! Access to the files that settings name: reads of regular files only, each up to a bound, and atomic replacement.
//!
//! Opening a FIFO blocks until it has a writer, a device may never end, and a file may grow while it is read. So
//! anything but a regular file is an error, and reads end at the bound.

use std::{
    fs::{self, File, Metadata},
    io::{self, ErrorKind, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// Maximum number of consecutive symbolic links, as on Linux. With more, the file cannot be opened.
const MAX_LINKS: usize = 40;

/// Whether a setting names a file; an empty path means none.
pub fn is_set(path: &Path) -> bool {
    !path.as_os_str().is_empty()
}

/// Opens a regular file, or one that symbolic links lead to.
///
/// # Errors
/// The system's error, or that it is not a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    // Before it is opened, because opening a FIFO blocks until it has a writer; and after, because the path may lead
    // elsewhere by then.
    check_regular(&fs::metadata(path)?)?;
    let file = File::open(path)?;
    check_regular(&file.metadata()?)?;
    Ok(file)
}

/// Reads a regular file of at most `max_bytes`. Blocks on file I/O.
///
/// # Errors
/// The system's error, that it is not a regular file, or that it is longer ([`ErrorKind::FileTooLarge`]). No error
/// shows the contents.
pub fn read(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        return Err(io::Error::new(ErrorKind::FileTooLarge, format!("over {max_bytes} bytes")));
    }
    Ok(bytes)
}

/// Reads a regular file of at most `max_bytes` in UTF-8. Blocks on file I/O.
///
/// # Errors
/// The system's error, that it is not a regular file, that it is longer ([`ErrorKind::FileTooLarge`]), or the number of
/// the first line that is not UTF-8. No error shows the contents.
pub fn read_text(path: &Path, max_bytes: u64) -> io::Result<String> {
    String::from_utf8(read(path, max_bytes)?).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
        io::Error::other(format!("line {line}: not UTF-8"))
    })
}

/// Replaces a file atomically by one with these contents and mode 0600: after a crash it has these or the previous
/// contents. Blocks on file I/O.
///
/// # Errors
/// The system's error. The file is unchanged, unless only the sync of its directory failed.
pub fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".tmp");
    let beside = Path::new(&beside);
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(beside)?;
    let written = file.write_all(contents).and_then(|()| file.sync_all()).and_then(|()| fs::rename(beside, path));
    if written.is_err() {
        // Part of a file, which may take the last free space of its disk.
        _ = fs::remove_file(beside);
    }
    written?;
    sync_folder_of(path)
}

/// Syncs the directory of a file to the disk, so that the file exists after a crash. Blocks on file I/O.
///
/// # Errors
/// The system's error.
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    File::open(folder_of(path))?.sync_all()
}

/// Follows symbolic links at the path of a file, which need not exist: replacing a file must not replace a link to it.
pub fn follow_links(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(target) = fs::read_link(&path) else { break };
        path = folder_of(&path).join(target);
    }
    path
}

/// Returns the directory of a file.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| is_set(folder)).unwrap_or(Path::new("."))
}

fn check_regular(metadata: &Metadata) -> io::Result<()> {
    if metadata.is_file() {
        return Ok(());
    }
    let what = if metadata.is_dir() { "a directory" } else { "a FIFO, a socket or a device" };
    Err(io::Error::other(format!("{what}, not a regular file")))
}
