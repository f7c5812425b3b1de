//! Groups of crates, determined by their names.

use super::timings::Unit;

/// A group of crates with a common purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Group {
    /// Burn and its CPU backend.
    Burn,
    /// The runtimes of the GPU backends.
    Gpu,
    /// Tokenizers, their regular expressions, and chat templates.
    Tokenizers,
    /// Readers and writers of data files, with compression.
    DataFormats,
    /// The HTTP server.
    Server,
    /// The command line, the terminal and plots.
    Terminal,
    /// Constrained generation.
    Constraints,
    /// Procedural macros and build scripts that belong to no other group.
    Macros,
    /// The crates of this workspace.
    Emberlm,
    /// Crates that are in none of the lists.
    Other,
}

/// Names of crates by group. A trailing `*` matches any rest of the name. The longest match wins.
const NAMES: [(Group, &[&str]); 9] = [
    (
        Group::Burn,
        &[
            "burn*",
            "cubecl-common",
            "cubecl-zspace",
            "dyn-stack*",
            "equator*",
            "gemm*",
            "half",
            "macerator*",
            "matrixmultiply",
            "ndarray",
            "pulp*",
            "raw-cpuid",
            "rayon",
            "rayon-core",
            "reborrow",
        ],
    ),
    (
        Group::Gpu,
        &[
            "ash",
            "burn-cubecl*",
            "burn-cuda",
            "burn-fusion",
            "burn-rocm",
            "burn-wgpu",
            "codespan-reporting",
            "cubecl*",
            "cubek*",
            "cudarc",
            "glow",
            "gpu-*",
            "khronos*",
            "libloading",
            "metal",
            "naga",
            "objc2*",
            "raw-window-*",
            "renderdoc-sys",
            "spirv",
            "tracel-*",
            "wgpu*",
        ],
    ),
    (
        Group::Tokenizers,
        &[
            "aho-corasick",
            "bstr",
            "dary_heap",
            "esaxx-rs",
            "fancy-regex",
            "macro_rules_attribute*",
            "minijinja*",
            "monostate*",
            "onig*",
            "psm",
            "rayon-cond",
            "regex*",
            "spm_precompiled",
            "stacker",
            "tiktoken-rs",
            "tokenizers",
            "unicode-normalization*",
            "unicode_categories",
        ],
    ),
    (
        Group::DataFormats,
        &[
            "adler2",
            "alloc-no-stdlib",
            "alloc-stdlib",
            "bincode",
            "brotli*",
            "bzip2*",
            "crc32*",
            "csv*",
            "flate2",
            "lz4_flex",
            "memmap2",
            "miniz_oxide",
            "mmap-io",
            "npyz",
            "num-bigint",
            "parquet",
            "pest*",
            "prost*",
            "py_literal",
            "rmp*",
            "safetensors",
            "serde_json",
            "simd-adler32",
            "snap",
            "toml*",
            "twox-hash",
            "zstd*",
        ],
    ),
    (
        Group::Server,
        &[
            "axum*",
            "form_urlencoded",
            "futures*",
            "http*",
            "hyper*",
            "matchit",
            "mime",
            "mio",
            "prometheus-client*",
            "ref-cast*",
            "schemars*",
            "serde_path_to_error",
            "serde_urlencoded",
            "socket2",
            "sync_wrapper",
            "tokio*",
            "tower*",
        ],
    ),
    (
        Group::Terminal,
        &[
            "ab_glyph*",
            "anstream",
            "anstyle*",
            "clap*",
            "colored",
            "colorous",
            "console",
            "crossterm",
            "epaint_default_fonts",
            "fdeflate",
            "indicatif",
            "kasuari",
            "nu-ansi-term",
            "owned_ttf_parser",
            "plotters*",
            "png",
            "ratatui*",
            "roff",
            "rustyline",
            "signal-hook*",
            "strsim",
            "terminal_size",
            "ttf-parser",
        ],
    ),
    (Group::Constraints, &["derivre", "llguidance", "toktrie*"]),
    (
        Group::Macros,
        &[
            "autocfg",
            "bindgen",
            "cc",
            "convert_case",
            "darling*",
            "derive_builder*",
            "derive_more*",
            "find-msvc-tools",
            "heck",
            "ident_case",
            "indoc",
            "instability",
            "jobserver",
            "litrs",
            "paste",
            "pastey",
            "pkg-config",
            "prettyplease",
            "proc-macro*",
            "quote",
            "rustc_version",
            "rustversion",
            "semver",
            "seq-macro",
            "shlex",
            "strum_macros",
            "syn",
            "unicode-ident",
            "version_check",
        ],
    ),
    (Group::Emberlm, &["emberlm*"]),
];

/// Suffixes of procedural macros' names, for crates that are in none of the lists.
const MACRO_ENDS: [&str; 8] = [
    "-derive",
    "_derive",
    "-macro",
    "_macro",
    "-macros",
    "_macros",
    "-impl",
    "_macros-internal",
];

impl Group {
    /// All groups, in the order of their declaration.
    pub const ALL: [Self; 10] = [
        Self::Burn,
        Self::Gpu,
        Self::Tokenizers,
        Self::DataFormats,
        Self::Server,
        Self::Terminal,
        Self::Constraints,
        Self::Macros,
        Self::Emberlm,
        Self::Other,
    ];

    /// The group of a unit. A build script belongs to its crate's group, or to the macros if the crate has no
    /// group. For example, the build script of `zstd-sys` compiles C, which is a cost of the data formats.
    pub fn of(unit: &Unit) -> Self {
        match Self::of_crate(&unit.name) {
            Self::Other if unit.is_build_script() => Self::Macros,
            group => group,
        }
    }

    fn of_crate(name: &str) -> Self {
        let listed = NAMES.iter().flat_map(|(group, patterns)| {
            let lengths = patterns.iter().filter_map(|pattern| matched(pattern, name));
            lengths.map(|length| (length, *group))
        });
        match listed.max_by_key(|(length, _)| *length) {
            Some((_, group)) => group,
            None if MACRO_ENDS.iter().any(|end| name.ends_with(end)) => Self::Macros,
            None => Self::Other,
        }
    }

    /// The title in the table.
    pub fn title(self) -> &'static str {
        match self {
            Self::Burn => "Burn and its CPU backend",
            Self::Gpu => "GPU runtimes",
            Self::Tokenizers => "tokenizers, regular expressions and templates",
            Self::DataFormats => "data formats and compression",
            Self::Server => "HTTP server",
            Self::Terminal => "command line, terminal and plots",
            Self::Constraints => "constrained generation",
            Self::Macros => "procedural macros and build scripts",
            Self::Emberlm => "emberlm",
            Self::Other => "other",
        }
    }
}

/// The number of characters with which a pattern matches a name.
fn matched(pattern: &str, name: &str) -> Option<usize> {
    let matches = match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    };
    matches.then_some(pattern.len())
}

#[cfg(test)]
mod tests {
    use super::super::timings::tests::example;
    use super::*;

    #[test]
    fn crates_are_grouped_by_the_longest_name_that_matches() {
        let cases = [
            ("burn-nn", Group::Burn),
            ("burn-wgpu", Group::Gpu),
            ("cubecl-runtime", Group::Gpu),
            ("cubecl-common", Group::Burn),
            ("regex-automata", Group::Tokenizers),
            ("zstd-sys", Group::DataFormats),
            ("http-body-util", Group::Server),
            ("clap_derive", Group::Terminal),
            ("toktrie", Group::Constraints),
            ("syn", Group::Macros),
            ("zerocopy-derive", Group::Macros),
            ("emberlm-cli", Group::Emberlm),
            ("synstructure", Group::Other),
            ("libc", Group::Other),
        ];
        for (name, group) in cases {
            assert_eq!(Group::of_crate(name), group, "{name}");
        }
    }

    #[test]
    fn build_scripts_of_other_crates_are_with_the_macros() {
        let units = example().units;
        let groups: Vec<_> = units.iter().map(Group::of).collect();
        let expected = [Group::Burn, Group::Macros, Group::Macros, Group::Other];
        assert_eq!(groups, expected);
    }

    #[test]
    fn no_name_is_listed_twice() {
        let mut names: Vec<_> = NAMES.iter().flat_map(|(_, names)| names.iter()).collect();
        let listed = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), listed);
    }
}
