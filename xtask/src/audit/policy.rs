//! The policy of `cargo xtask audit`.

/// The only allowed source of dependencies, in cargo's notation.
pub const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Permissive licences, which require notices at most.
pub const LICENCES: [&str; 14] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "Unlicense",
    "WTFPL",
    "Zlib",
];

/// Licences that are allowed for one crate only.
pub const LICENCES_OF_CRATES: [(&str, &str); 7] = [
    // File-level copyleft; the files are unmodified.
    ("colored", "MPL-2.0"),
    ("option-ext", "MPL-2.0"),
    // The licence of bzip2, permissive like BSD's.
    ("libbz2-rs-sys", "bzip2-1.0.6"),
    // Fonts embedded in plots.
    ("epaint_default_fonts", "OFL-1.1"),
    ("epaint_default_fonts", "Ubuntu-font-1.0"),
    // Certificates.
    ("webpki-roots", "CDLA-Permissive-2.0"),
    // libFuzzer, used by the fuzzers only.
    ("libfuzzer-sys", "NCSA"),
];

/// Known advisories that cannot be resolved here, with reasons.
pub const ADVISORIES: [(&str, &str); 3] = [
    (
        "RUSTSEC-2024-0436",
        "`paste` is unmaintained; `gemm`, `pulp`, `tokenizers` and Burn bring it. It is a macro, complete, and gone after compiling",
    ),
    (
        "RUSTSEC-2025-0141",
        "`bincode` is unmaintained; `burn-core` brings it for its own records, which nothing here reads or writes",
    ),
    (
        "RUSTSEC-2026-0192",
        "`ttf-parser` is unmaintained; `plotters` brings it through `ab_glyph` for the letters of plots, which are of embedded fonts only",
    ),
];

/// The allowed numbers of versions of a crate, grouped by the cause of the duplicates. A number above the
/// actual one is also a finding, which keeps the list current.
pub const DUPLICATES: [(&str, &[(&str, usize)]); 8] = [
    (
        "Burn 0.21's dashboard (ratatui with termwiz), and portable-pty in tests",
        &[
            ("bit-set", 3),
            ("bit-vec", 3),
            ("bitflags", 2),
            ("cfg_aliases", 2),
            ("fancy-regex", 3),
            ("fixedbitset", 2),
            ("nix", 3),
            ("nom", 2),
            ("ordered-float", 2),
            ("phf", 2),
            ("phf_generator", 2),
            ("phf_macros", 2),
            ("phf_shared", 2),
            ("syn", 3),
            ("thiserror", 2),
            ("thiserror-impl", 2),
        ],
    ),
    (
        "cubecl and wgpu, which Burn pins",
        &[
            ("cpufeatures", 2),
            ("darling", 4),
            ("darling_core", 4),
            ("darling_macro", 4),
            ("embedded-hal", 2),
            ("foldhash", 2),
            ("hashbrown", 4),
            ("itertools", 2),
            ("libloading", 2),
            ("nb", 2),
            ("object", 2),
            ("prettyplease", 2),
            ("rustc-hash", 2),
            ("shlex", 2),
        ],
    ),
    (
        "Burn's optional parts (tch, candle, image formats), which are resolved with all features and never compiled",
        &[
            ("bzip2", 2),
            ("constant_time_eq", 2),
            ("miniz_oxide", 2),
            ("ndarray", 2),
            ("pastey", 2),
            ("rand", 3),
            ("rand_chacha", 3),
            ("rand_core", 3),
            ("rand_distr", 2),
            ("safetensors", 3),
            ("webpki-roots", 2),
            ("zip", 2),
            ("zstd", 2),
            ("zstd-safe", 2),
            ("ureq", 2),
        ],
    ),
    (
        "tokenizers and tiktoken-rs",
        &[("base64", 3), ("getrandom", 3)],
    ),
    (
        "parquet, npyz, statrs and documented",
        &[
            ("convert_case", 2),
            ("glam", 4),
            ("num-bigint", 2),
            ("strum", 2),
            ("strum_macros", 2),
        ],
    ),
    (
        "the checksums of lzma-rust2",
        &[
            ("block-buffer", 2),
            ("crypto-common", 2),
            ("digest", 2),
            ("sha2", 2),
        ],
    ),
    ("the bindings of MPI", &[("bindgen", 2)]),
    (
        "other platforms than Linux",
        &[("jni-sys", 2), ("r-efi", 2), ("windows-sys", 2)],
    ),
];
