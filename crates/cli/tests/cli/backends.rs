//! `--backend` and `--device`.

use serde_json::Value;

use super::support::Sandbox;

// No test build includes rocm.
#[test]
fn a_missing_backend_has_a_build_hint() {
    for command in [
        "generate m",
        "eval m --data d",
        "logits m --tokens 1 --out f",
    ] {
        let ran = Sandbox::new().is_misused(&format!("{command} --backend rocm"));
        let expected = "error: this binary was built without the rocm backend\n\
                        hint: build with: cargo run --release --features rocm -- …\n\
                        hint: or choose one that is there: --backend flex";
        assert!(ran.stderr.starts_with(expected), "{}", ran.stderr);
    }
}

/// A command's output as JSON. Stderr is ignored: graphics drivers write to it.
fn printed(line: &str) -> Value {
    let ran = Sandbox::new().succeeds(line);
    serde_json::from_str(&ran.stdout).unwrap()
}

/// The devices of a backend in `emberlm devices --json`.
fn devices(backend: &str) -> Option<Vec<Value>> {
    let listed = printed("devices --json");
    let listed = listed.as_array().unwrap();
    let own = listed
        .iter()
        .find(|listed| listed["backend"] == backend)
        .unwrap();
    let devices = own["devices"].as_array().unwrap().clone();
    own["compiled"].as_bool().unwrap().then_some(devices)
}

#[test]
fn the_cpu_is_listed_with_name_and_memory() {
    let found = devices("flex").unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0]["number"], 0);
    assert_eq!(found[0]["kind"], "cpu");
    assert!(found[0]["memory_bytes"].as_u64().unwrap() > 1 << 28);
    let name = found[0]["name"].as_str().unwrap();
    let ran = Sandbox::new().succeeds("devices");
    let line = ran
        .stdout
        .lines()
        .find(|line| line.trim_start().starts_with("flex"));
    assert!(line.unwrap().contains(name), "{}", ran.stdout);
    ran.prints("not compiled in: ");
    assert_eq!(devices("rocm"), None);
}

/// Those that the kernel reports.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[test]
fn the_instructions_of_the_cpus_products_are_listed() {
    let features = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    let has = |name: &str| features.split_whitespace().any(|feature| feature == name);
    let products = devices("flex").unwrap()[0]["products"].clone();
    let products = products.as_str().unwrap();
    assert_eq!(products.contains("f32 with AVX-512,"), has("avx512f"));
    // The system may deny their use.
    for (text, feature) in [
        ("bf16 with AMX, f16 as f32", "amx_bf16"),
        ("quantized weights with AVX512-VNNI", "avx512_vnni"),
        ("quantized weights with AMX", "amx_int8"),
    ] {
        assert!(has(feature) || !products.contains(text), "{products}");
    }
    let expected = format!("matrix products of flex device 0: {products}\n");
    Sandbox::new().succeeds("devices").prints(&expected);
}

/// The error for a device number that does not exist, which lists the available ones.
fn refused(backend: &str, number: usize) -> String {
    let line = format!("new --preset char-nano --out m --backend {backend} --device {number}");
    let ran = Sandbox::new().is_misused(&line);
    let expected = format!("error: the {backend} backend has no device {number}: 0 is ");
    ran.says(&expected);
    let hint = "hint: list all devices: emberlm devices";
    ran.says(hint);
    ran.stderr
}

#[test]
fn missing_devices_are_rejected() {
    assert!(refused("flex", 1).starts_with("error: the flex backend"));
}

#[test]
fn nvidias_library_is_rejected_on_other_devices() {
    let line = "new --preset char-nano --out m --backend flex --products cublas";
    let ran = Sandbox::new().is_misused(line);
    let expected = "error: --products must be auto or cubecl here (got cublas): the flex backend does not use NVIDIA's libraries\n\
                    hint: leave out --products, or multiply by CubeCL's kernels: --products cubecl\n\
                    hint: or use an NVIDIA GPU: --backend cuda";
    assert!(ran.stderr.starts_with(expected), "{}", ran.stderr);
    let new = "new --preset char-nano --set model.vocab_size=65 --out m --products cubecl";
    Sandbox::new().succeeds(new);
}

#[test]
fn the_cpu_can_be_selected_by_number() {
    let sandbox = Sandbox::new();
    sandbox.succeeds("new --preset char-nano --set model.vocab_size=65 --out m --device 0");
}

/// The number of correct operations and models in a report, as text and JSON.
fn healthy(line: &str) -> usize {
    let ran = Sandbox::new().words(line);
    let all = reported(line);
    let expected = format!("all {all} are right\n");
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    ran.prints(&expected);
    all
}

/// Asserts that all comparisons of a report pass, and returns their number.
fn reported(line: &str) -> usize {
    let report = printed(&format!("{line} --json"));
    let verdicts = report["verdicts"].as_array().unwrap();
    for verdict in verdicts {
        let error = verdict["error"].as_f64().unwrap();
        assert!(error <= verdict["tolerance"].as_f64().unwrap(), "{verdict}");
        assert!(verdict["failure"].is_null(), "{verdict}");
    }
    verdicts.len()
}

#[test]
fn the_doctor_passes_on_the_cpu() {
    // Without a second backend, models are not compared.
    assert!(healthy("doctor") >= 25);
    // One more with bf16, if the CPU supports it.
    let kinds = healthy("doctor --only attention --operations");
    assert!((8..=9).contains(&kinds), "{kinds}");
}

#[cfg(feature = "ndarray")]
#[test]
fn the_doctor_compares_the_families_models() {
    assert_eq!(healthy("doctor --only gpt2"), 1);
    assert_eq!(healthy("doctor --backend ndarray --only llama"), 5);
}

#[cfg(feature = "vulkan")]
mod vulkan {
    use super::*;

    #[test]
    fn the_doctor_passes_on_vulkan() {
        // Each precision that the device supports.
        let linear = reported("doctor --backend vulkan --only linear");
        assert!((2..=4).contains(&linear), "{linear}");
        assert_eq!(reported("doctor --backend vulkan --only char-nano"), 1);
    }

    #[test]
    fn a_missing_driver_has_an_install_hint() {
        let line = "new --preset char-nano --set model.vocab_size=65 --out m --backend vulkan";
        let sandbox = Sandbox::new();
        let mut command = sandbox.command(line.split(' '));
        command.env("VK_ICD_FILENAMES", "/nowhere");
        let ran = command.env("VK_DRIVER_FILES", "/nowhere").output().unwrap();
        let stderr = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(1), "{stderr}");
        let expected = "error: the vulkan backend finds no device it can use: ";
        assert!(stderr.starts_with(expected), "{stderr}");
        let hint = "hint: install the GPU's Vulkan driver";
        assert!(stderr.contains(hint), "{stderr}");
    }

    /// The work of two blocks with the bounds `[step, block, decoded block]`. Returns the counts.
    fn within(preset: &str, bounds: [u64; 3]) -> Value {
        let counted = |layers: usize| {
            let line = format!(
                "measure step --preset {preset} --batch 2 --set train.seq_len=32 --set model.seq_len=64 \
                 --set model.d_model=64 --set model.heads=2 --set model.vocab_size=130 --set model.n_layers={layers} \
                 --decode --backend vulkan --json"
            );
            printed(&line)
        };
        let [one, two] = [1, 2].map(counted);
        let number = |of: &Value, key: &str| of[key].as_u64().unwrap();
        assert_eq!(number(&two, "synchronizations"), 0, "within a step");
        assert_eq!(number(&two["decode"], "synchronizations"), 1, "the token");
        let of_step = |of: &Value| number(of, "launches");
        let of_token = |of: &Value| number(&of["decode"], "launches");
        let found = [
            of_step(&two),
            of_step(&two).saturating_sub(of_step(&one)),
            of_token(&two).saturating_sub(of_token(&one)),
        ];
        let is_within = found
            .iter()
            .zip(bounds)
            .all(|(&found, bound)| found <= bound);
        assert!(is_within, "{preset}: {found:?} of {bounds:?}");
        two
    }

    /// The work of small models, which depends on neither their sizes nor the device. The bounds keep it from growing.
    #[test]
    fn a_step_stays_within_its_budget_of_launches() {
        let llama = "llama-3.2-1b --set model.kv_heads=1 --set model.head_dim=32";
        within(llama, [100, 34, 8]);
        let two = within("gpt2-small", [110, 38, 8]);
        let number = |of: &Value, key: &str| of[key].as_u64().unwrap();
        let launches = number(&two, "launches");
        // Of [2, 32, 64] × [64, 192], the fused projection of queries, keys and values.
        let projection =
            |product: &&Value| (number(product, "m"), number(product, "n")) == (64, 192);
        let products = two["products"].as_array().unwrap().iter();
        assert_eq!(products.filter(projection).count(), 1);
        let kernels = two["kernels"].as_array().unwrap();
        let sum = |key: &str| {
            kernels
                .iter()
                .map(|kernel| number(kernel, key))
                .sum::<u64>()
        };
        assert_eq!(sum("launches"), launches);
        for key in ["bytes_read", "bytes_written"] {
            assert_eq!(sum(key), number(&two, key), "{key}");
            // At least the weights, which the optimizer reads and writes.
            assert!(sum(key) > 4 * 2 * 12 * 64 * 64, "{key}");
        }
    }

    /// A file of several types on the device, in which activations are in f32.
    #[test]
    fn a_gguf_file_stays_packed_and_generates_the_tokens_of_the_cpu() {
        let sandbox = Sandbox::new();
        let sizes =
            "model.d_model=256 --set model.heads=4 --set model.n_layers=2 --set model.seq_len=64";
        sandbox.succeeds(&format!(
            "new --preset llama-nano --set {sizes} --vocab-size 2000 --out model"
        ));
        sandbox.succeeds("export model --format gguf --type q4_k_m --out m.gguf");
        let printed =
            |line: &str| -> Value { serde_json::from_str(&sandbox.succeeds(line).stdout).unwrap() };
        let tokens = |options: &str| {
            let line = "generate m.gguf --tokens 1,2,3 --temperature 0 --max-new-tokens 12 --json";
            printed(&format!("{line} {options}"))["tokens"].clone()
        };
        assert_eq!(tokens("--backend vulkan"), tokens("--weights f32"));
        let line = "bench m.gguf --prompt-tokens 4 --decode 1 --repeat 1 --backend vulkan --json";
        let in_use = printed(line)[0]["device_bytes"].as_u64().unwrap();
        let file = sandbox.bytes("m.gguf").len() as u64;
        assert!(
            5 * in_use <= 6 * file,
            "{in_use} bytes for a file of {file}"
        );
    }

    /// GPT-2's vocabulary size in learned positions takes 147 MiB, but a buffer of Mesa's software device
    /// holds at most 128 MiB. Token tables of that size are split (see `anywhere`), position tables are not.
    #[test]
    fn an_oversized_buffer_ends_the_program_with_its_size() {
        let largest = devices("vulkan").unwrap()[0]["largest_buffer_bytes"].as_u64();
        if largest.unwrap() > 50_257 * 768 * 4 {
            return;
        }
        let line = "new --preset gpt2-small --set model.n_layers=1 --set model.seq_len=50257 --vocab-size 100 --out m --backend vulkan";
        let ran = Sandbox::new().fails(line);
        let expected = "error: the vulkan backend's device takes no buffer of 147.2 MiB\n";
        ran.says(expected);
    }

    /// Each listed adapter opens by its number and initializes the same weights.
    #[test]
    fn devices_open_by_number() {
        let found = devices("vulkan").unwrap();
        assert!(!found.is_empty(), "a test of Vulkan needs a device");
        let sandbox = Sandbox::new();
        for (number, device) in found.iter().enumerate() {
            assert_eq!(device["number"], number);
            assert!(device["largest_buffer_bytes"].as_u64().unwrap() > 0);
            sandbox.succeeds(&format!(
                "new --preset char-nano --set model.vocab_size=65 --out m{number} --backend vulkan --device {number}"
            ));
        }
        refused("vulkan", found.len());
    }
}
