//! `emberlm data export`: writes a dataset as another program's token files.

use std::fs;
use std::path::Path;

use emberlm_data::{Dataset, ExportOptions, export};
use indicatif::HumanCount;

use super::ExportArgs;
use crate::error::CliError;
use crate::new_folder::NewFolder;
use crate::output::{Align, Table, print};
use crate::progress;

/// Writes the files and lists them.
pub(super) fn run(args: ExportArgs) -> Result<(), CliError> {
    let dataset = Dataset::open(&args.dataset)?;
    // Resolves `.` to the folder's name.
    let folder = fs::canonicalize(&args.dataset).map_err(CliError::io("read", &args.dataset))?;
    let mut options = ExportOptions::new(args.format, &folder);
    options.shard_tokens = args.shard_tokens;
    if let Some(name) = args.name {
        options.name = name;
    }
    let ours = |folder: &Path| holds_only(folder, |name| args.format.writes(name));
    let new = NewFolder::begin(&args.out, args.force, "an export of this format", ours)?;
    let bar = progress::bytes("writing", dataset.bytes());
    let written = export(&dataset, &options, new.path(), &|bytes| bar.inc(bytes));
    bar.finish_and_clear();
    let written = written?;
    new.finish()?;
    let mut table = Table::new([Align::Left, Align::Right]);
    for file in &written {
        table.row([&file.file, &format!("{} tokens", HumanCount(file.tokens))]);
    }
    let (from, to) = (args.dataset.display(), args.out.display());
    print(&format!("Exported {from} to {to}\n{}", table.render()))
}

/// Returns true if all file names in the folder satisfy `writes`.
fn holds_only(folder: &Path, writes: impl Fn(&str) -> bool) -> bool {
    let Ok(mut entries) = fs::read_dir(folder) else {
        return false;
    };
    entries.all(|entry| {
        let name = entry.map(|entry| entry.file_name());
        name.is_ok_and(|name| name.to_str().is_some_and(&writes))
    })
}
